// One of several processes that share a limit. Its threads request permits, hold them for a while, and release them.
//  --brokers B --topic T [--limit 4] [--count 1] [--threads 4] [--least-ms 300] [--most-ms 700] [--seconds 20]
//  --topic  the token log
//  --count  permits in each request

#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/bench_common.hpp"
#include "turnstile/kafka/limiters.hpp"
#include "turnstile/log.hpp"
#include "turnstile/token_service.hpp"

int main(int argc, char** argv) {
  using namespace turnstile;
  using namespace std::chrono_literals;
  bench::Args args(argc, argv);
  const std::string brokers = args.text("brokers"), topic = args.text("topic");
  const std::int64_t at_once = args.number("limit", 4), count = args.number("count", 1);
  const std::int64_t threads = args.number("threads", 4), seconds = args.number("seconds", 20);
  const std::int64_t least_ms = args.number("least-ms", 300), most_ms = args.number("most-ms", 700);
  args.done();

  const auto domain =
      kafka::open_limiters({{"bootstrap.servers", brokers}}, {.name = topic}, {}, make_logger({"warn", "text"}));
  if (!domain->wait_until_joined(30s)) bench::die("not joined within 30 s");
  TokenService tokens(domain);
  tokens.limit("bench", at_once);
  const std::int64_t end_ns = bench::now_ns() + seconds * 1'000'000'000;
  std::atomic<std::int64_t> longest_wait_ns{0}, requests{0};
  {
    std::vector<std::jthread> workers;
    for (std::int64_t t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] {
        std::mt19937_64 random(static_cast<std::uint64_t>(t));
        std::uniform_int_distribution<std::int64_t> length(least_ms, most_ms);
        while (bench::now_ns() < end_ns) {
          const std::int64_t asked_ns = bench::now_ns();
          const auto answer = tokens.request("bench", count, Priority::normal, 120s);
          const auto* granted = std::get_if<Granted>(&answer);
          if (granted == nullptr) bench::die("no permits within 120 s: " + domain->halted());
          const std::int64_t waited_ns = bench::now_ns() - asked_ns;
          for (auto seen = longest_wait_ns.load();
               seen < waited_ns && !longest_wait_ns.compare_exchange_weak(seen, waited_ns);) {
          }
          ++requests;
          std::this_thread::sleep_for(std::chrono::milliseconds(length(random)));
          tokens.release(granted->token);
        }
      });
    }
  }
  bench::Report("fw_wide")
      .add("limit", at_once)
      .add("count", count)
      .add("requests", requests.load())
      .add("longest_wait_ms", static_cast<double>(longest_wait_ns) / 1e6)
      .print();
  return 0;
}
