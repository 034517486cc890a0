// One of several processes to look at with `turnstile top`. Its handlers need one limiter, and its threads take and
// release permits of the others. It runs until SIGTERM, and prints "ready" once each limiter has granted a permit.
//   --brokers B --topic T --group G --postgres URL --schema S [--limiters 50] [--limit 4] [--ms 100]
//   --ms  how long a handler sleeps, and how long a thread holds its permit

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/fw_common.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/kafka/limiters.hpp"
#include "turnstile/log.hpp"
#include "turnstile/postgres/store.hpp"
#include "turnstile/token_service.hpp"

int main(int argc, char** argv) {
  using namespace turnstile;
  using namespace std::chrono_literals;
  bench::Args args(argc, argv);
  Config config = bench::plain_config(args.text("brokers"), "unused");
  config.kafka["group.id"] = args.text("group");
  const std::string topic = args.text("topic"), postgres = args.text("postgres"), schema = args.text("schema");
  config.postgres = bench::postgres_settings(postgres, schema);
  const std::int64_t limiters = args.number("limiters", 50), at_once = args.number("limit", 4);
  const std::chrono::milliseconds each(args.number("ms", 100));
  args.done();

  const auto logger = make_logger({"warn", "text"});
  const auto domain = kafka::open_limiters(config.kafka, {.name = args.text("group") + ".tokens"}, {}, logger);
  if (!domain->wait_until_joined(30s)) bench::die("not joined within 30 s");
  Backends backends;
  backends.broker = kafka::open_broker(config.kafka, logger);
  backends.limiters = domain;
  backends.store = postgres::open_store(*config.postgres);

  std::atomic<std::int64_t> granted{0};
  std::atomic<bool> handled{false};
  const auto now_granted = [&] {
    if (++granted == limiters) {
      std::puts("ready");
      std::fflush(stdout);
    }
  };
  const auto name_of = [](std::int64_t number) {
    return (number < 10 ? "limiter-0" : "limiter-") + std::to_string(number);
  };
  Pipeline pipeline([&](const Message&) {
    if (!handled.exchange(true)) now_granted();
    std::this_thread::sleep_for(each);
  });
  ordered_by(Order::none).decorate(pipeline);
  limit(name_of(1), at_once).decorate(pipeline);
  transactional().decorate(pipeline);
  Consumer app(config, backends);
  app.topic(topic, std::move(pipeline));

  TokenService tokens(domain);
  std::vector<std::jthread> callers;
  for (std::int64_t n = 2; n <= limiters; ++n) {
    tokens.limit(name_of(n), at_once);
    callers.emplace_back([&, name = name_of(n)](const std::stop_token& stop) {
      bool first = true;
      while (!stop.stop_requested()) {
        const Permit permit = tokens.acquire(name, std::chrono::milliseconds::max(), stop);
        if (!permit) return;
        if (std::exchange(first, false)) now_granted();
        std::this_thread::sleep_for(each);
      }
    });
  }
  try {
    app.run();
  } catch (const std::exception& e) {
    bench::die(std::string("the framework: ") + e.what());
  }
  return 0;
}
