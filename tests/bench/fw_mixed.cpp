// A consumer and a TokenService in one process, under one limit. Each of them alone could use all permits. It reports
// how many permits each of them got.
//   --brokers B --topic T --log L [--limit 4] [--workers 8] [--threads 8] [--ms 5] [--seconds 10]
//   --log      the token log
//   --workers  of the consumer, and --threads of the service: both more than the limit

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/fw_common.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/kafka/limiters.hpp"
#include "turnstile/log.hpp"
#include "turnstile/token_service.hpp"

int main(int argc, char** argv) {
  using namespace turnstile;
  using namespace std::chrono_literals;
  bench::Args args(argc, argv);
  Config config = bench::plain_config(args.text("brokers"), "mixed");
  config.consumer.workers = static_cast<int>(args.number("workers", 8));
  const std::string topic = args.text("topic"), log = args.text("log");
  const std::int64_t at_once = args.number("limit", 4), threads = args.number("threads", 8);
  const std::chrono::milliseconds each(args.number("ms", 5));
  const std::chrono::seconds time(args.number("seconds", 10));
  args.done();

  const auto logger = make_logger({"warn", "text"});
  const auto domain = kafka::open_limiters(config.kafka, {.name = log}, {}, logger);
  if (!domain->wait_until_joined(30s)) bench::die("not joined within 30 s");
  Backends backends;
  backends.broker = kafka::open_broker(config.kafka, logger);
  backends.limiters = domain;

  std::atomic<std::int64_t> handled{0}, called{0};
  Pipeline pipeline([&](const Message&) {
    ++handled;
    std::this_thread::sleep_for(each);
  });
  ordered_by(Order::none).decorate(pipeline);
  limit("bench", at_once).decorate(pipeline);
  Consumer app(config, backends);
  app.topic(topic, std::move(pipeline)).handle_signals(false);
  std::jthread runs([&] { app.run(); });

  TokenService tokens(domain);
  tokens.limit("bench", at_once);
  std::int64_t handlers = 0, calls = 0;
  {
    std::vector<std::jthread> callers;
    for (std::int64_t t = 0; t < threads; ++t) {
      callers.emplace_back([&](const std::stop_token& stop) {
        while (const Permit permit = tokens.acquire("bench", std::chrono::milliseconds::max(), stop)) {
          ++called;
          std::this_thread::sleep_for(each);
        }
      });
    }
    for (int waits = 0; handled < 10 || called < 10; ++waits) {
      if (waits > 600) bench::die("one of the two was granted nothing within 60 s");
      std::this_thread::sleep_for(100ms);
    }
    handlers = -handled;
    calls = -called;
    std::this_thread::sleep_for(time);
    handlers += handled;
    calls += called;
  }
  app.stop();
  runs.join();
  if (calls == 0) bench::die("the token service was granted nothing");
  bench::Report("fw_mixed")
      .add("limit", at_once)
      .add("handlers", handlers)
      .add("calls", calls)
      .add("ratio", static_cast<double>(handlers) / static_cast<double>(calls))
      .print();
  return 0;
}
