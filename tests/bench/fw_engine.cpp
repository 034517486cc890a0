// The engine alone: mode at_least_once, handlers that sleep or do nothing, no database.
//  --brokers B --topic T --messages N --ms 0 [--order partition|key|none] [--at-once 0] [--seconds 0]
//  --at-once   limit, and as many workers; 0: the defaults
//  --seconds   stops after this time, for the memory limit; then --messages is only the number of messages in the topic

#include <chrono>
#include <condition_variable>
#include <thread>

#include "tests/bench/fw_common.hpp"

namespace {

using namespace turnstile;

Order order_of(const std::string& text) {
  if (text == "partition") return Order::partition;
  if (text == "key") return Order::key;
  if (text == "none") return Order::none;
  bench::die("--order: partition, key or none, not " + text);
}

/// The handler's own measurements: how long it slept, and how many slept at once.
struct Sleeps {
  std::atomic<std::int64_t> count{0};
  std::atomic<std::int64_t> slept_ns{0};

  void sleep(std::chrono::milliseconds each) {
    const std::int64_t before_ns = bench::now_ns();
    std::this_thread::sleep_for(each);
    slept_ns += bench::now_ns() - before_ns;
    ++count;
  }
  [[nodiscard]] double mean_ms() const {
    return count == 0 ? 0 : static_cast<double>(slept_ns) / static_cast<double>(count) / 1e6;
  }
};

/// Stops the Consumer when the time is over, or earlier when this object is destroyed.
class Alarm {
 public:
  Alarm(Consumer& app, std::int64_t seconds)
      : thread_([&app, seconds](const std::stop_token& stop) {
          std::mutex mutex;
          std::condition_variable_any never;
          std::unique_lock lock(mutex);
          never.wait_for(lock, stop, std::chrono::seconds(seconds), [] { return false; });
          app.stop();
        }) {}

 private:
  std::jthread thread_;
};

}  // namespace

int main(int argc, char** argv) {
  bench::Args args(argc, argv);
  Config config = bench::plain_config(args.text("brokers"), "fw-engine");
  const std::string topic = args.text("topic");
  const std::int64_t wanted = args.number("messages");
  const std::chrono::milliseconds each(args.number("ms", 0));
  const std::string order = args.text("order", "partition");
  const std::int64_t at_once = args.number("at-once", 0);
  const std::int64_t seconds_most = args.number("seconds", 0);
  bench::add_admin(config, args);
  args.done();

  config.consumer.workers = static_cast<int>(at_once);
  Consumer app(std::move(config));
  Sleeps sleeps;
  Pipeline pipeline([&sleeps, each](const Message& message) {
    if (message.text().empty()) bench::die("a message without payload");
    if (each.count() > 0) sleeps.sleep(each);
  });
  ordered_by(order_of(order)).decorate(pipeline);
  if (at_once > 0) limit(at_once).decorate(pipeline);
  const auto progress = std::make_shared<bench::Progress>(app, wanted);
  app.topic(topic, std::move(pipeline)).observe(progress);
  {
    std::optional<Alarm> alarm;
    if (seconds_most > 0) alarm.emplace(app, seconds_most);
    bench::run(app);
  }
  bench::Report report("fw_engine");
  report.add("order", order).add("asked_ms", static_cast<std::int64_t>(each.count())).add("at_once", at_once);
  report.add("messages", progress->settled()).add("failed", progress->failed()).add("mean_ms", sleeps.mean_ms());
  if (seconds_most == 0) {
    const double seconds = progress->seconds();
    report.add("seconds", seconds).add("rate", static_cast<double>(progress->settled()) / seconds);
  }
  report.add("cpu_seconds", bench::cpu_seconds()).add("resident_bytes", bench::resident().highest).print();
  return 0;
}
