// One of several processes whose handlers sleep under one limit. It runs until SIGTERM. The board counts the handlers.
//  --brokers B --topic T --group G --board FILE --slot 0 --limit 16 --ms 10 [--workers 0] [--lease-ms 10000]
//  [--session-ms 45000] [--strict 0] [--postgres URL --schema S]
//  --workers   0: the default
//  --postgres  handlers take effect once, and partitions are fenced; without it: mode at_least_once

#include <chrono>
#include <thread>

#include "tests/bench/board.hpp"
#include "tests/bench/fw_common.hpp"

namespace {

class Assigned final : public turnstile::Observer {
 public:
  explicit Assigned(bench::Board& board) : board_(board) {}
  void on_assigned(const turnstile::TopicPartition&, turnstile::Epoch) noexcept override {
    board_.slot().assigned_ns = bench::now_ns();
  }

 private:
  bench::Board& board_;
};

}  // namespace

int main(int argc, char** argv) {
  using namespace turnstile;
  bench::Args args(argc, argv);
  Config config = bench::plain_config(args.text("brokers"), "unused");
  config.kafka["group.id"] = args.text("group");
  config.kafka["session.timeout.ms"] = std::to_string(args.number("session-ms", 45'000));
  config.kafka["heartbeat.interval.ms"] =
      std::to_string(std::min<std::int64_t>(args.number("session-ms", 45'000) / 3, 3'000));
  config.limits.lease = std::chrono::milliseconds(args.number("lease-ms", 10'000));
  config.limits.strict = args.number("strict", 0) != 0;
  config.consumer.workers = static_cast<int>(args.number("workers", 0));
  const std::string postgres = args.text("postgres", ""), schema = args.text("schema", "");
  if (!postgres.empty()) config.postgres = bench::postgres_settings(postgres, schema);
  bench::Board board(args.text("board"), args.number("slot"));
  const std::string topic = args.text("topic");
  const std::int64_t at_once = args.number("limit");
  const std::chrono::milliseconds each(args.number("ms"));
  args.done();

  Consumer app(std::move(config));
  Pipeline pipeline([&](const Message&) {
    const std::int64_t started_ns = bench::now_ns();
    board.start();
    std::this_thread::sleep_for(each);
    board.stop(started_ns);
  });
  ordered_by(Order::none).decorate(pipeline);
  limit("bench", at_once).decorate(pipeline);
  handler_timeout(std::chrono::seconds(3)).decorate(pipeline);
  if (!postgres.empty()) transactional().decorate(pipeline);
  app.topic(topic, std::move(pipeline)).observe(std::make_shared<Assigned>(board));
  board.slot().ready = 1;
  try {
    app.run();
  } catch (const std::exception& e) {
    bench::die(std::string("the framework: ") + e.what());
  }
  return 0;
}
