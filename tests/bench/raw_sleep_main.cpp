// How long a sleep really lasts here: --threads threads sleep for --ms repeatedly, for --seconds, without any
// framework. `rate` is the best possible rate of this many handlers.

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/bench/bench_common.hpp"

int main(int argc, char** argv) {
  using namespace bench;
  Args args(argc, argv);
  const auto threads = args.number("threads", 64);
  const std::chrono::milliseconds each(args.number("ms"));
  const auto seconds = args.number("seconds", 4);
  args.done();

  std::atomic<std::int64_t> sleeps{0};
  std::atomic<std::int64_t> slept_ns{0};
  const std::int64_t start_ns = now_ns();
  {
    std::vector<std::jthread> sleepers;
    for (std::int64_t t = 0; t < threads; ++t) {
      sleepers.emplace_back([&] {
        std::int64_t count = 0, sum_ns = 0;
        while (now_ns() - start_ns < seconds * 1'000'000'000) {
          const std::int64_t before_ns = now_ns();
          std::this_thread::sleep_for(each);
          sum_ns += now_ns() - before_ns;
          ++count;
        }
        sleeps += count;
        slept_ns += sum_ns;
      });
    }
  }
  const double mean_ms = static_cast<double>(slept_ns) / static_cast<double>(sleeps) / 1e6;
  Report("raw_sleep")
      .add("threads", threads)
      .add("asked_ms", static_cast<std::int64_t>(each.count()))
      .add("mean_ms", mean_ms)
      .add("rate", static_cast<double>(sleeps) / seconds_since(start_ns))
      .add("cpu_seconds", cpu_seconds())
      .print();
  return 0;
}
