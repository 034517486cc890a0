// A member of a group that prints "PARTITION NANOSECONDS" (CLOCK_MONOTONIC) for each message: a handler in mode
// transactional without an effect. It runs until SIGTERM.
//  --brokers B --topic T --group G --postgres URL --schema S

#include <cstdio>

#include "tests/bench/fw_common.hpp"

int main(int argc, char** argv) {
  using namespace turnstile;
  bench::Args args(argc, argv);
  Config config = bench::plain_config(args.text("brokers"), "fw-member");
  config.kafka["group.id"] = args.text("group");
  config.postgres = bench::postgres_settings(args.text("postgres"), args.text("schema"));
  const std::string topic = args.text("topic");
  args.done();

  Consumer app(std::move(config));
  const auto note = [](const Message& message) {
    std::printf("%d %lld\n", message.partition(), static_cast<long long>(bench::now_ns()));
    std::fflush(stdout);
  };
  app.topic(topic, note | transactional() | handler_id("member"));
  try {
    app.run();
  } catch (const std::exception& e) {
    bench::die(std::string("the framework: ") + e.what());
  }
  return 0;
}
