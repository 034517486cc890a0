// The cost of a permit. First, taken and released while the process holds enough, by one thread and by eight. Second,
// requested while it holds none, compared with a record that goes to the broker and comes back, in turns.
//  --brokers B --topic T --pairs 20000000 --misses 500

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/bench/bench_common.hpp"
#include "tests/bench/raw_round_trip.hpp"
#include "turnstile/kafka/limiters.hpp"
#include "turnstile/log.hpp"

namespace {

using namespace turnstile;
using namespace std::chrono_literals;

/// CPU time of a pair, in nanoseconds. With eight threads on two cores, wall-clock time would be mostly waiting for a
/// core.
double pair_ns(ports::Limiter& limiter, std::int64_t threads, std::int64_t pairs, std::atomic<std::int64_t>& missed) {
  const std::int64_t each = pairs / threads;
  const double before = bench::cpu_seconds();
  {
    std::vector<std::jthread> all;
    for (std::int64_t t = 0; t < threads; ++t) {
      all.emplace_back([&] {
        for (std::int64_t i = 0; i < each;) {
          if (const Permit permit = limiter.try_acquire()) ++i;
          else ++missed;  // the pool closes for a moment if this machine delays the domain's thread by a second
        }
      });
    }
  }
  return (bench::cpu_seconds() - before) * 1e9 / static_cast<double>(each * threads);
}

Permit wait_for(ports::Limiter& limiter) {
  std::mutex mutex;
  std::condition_variable changed;
  Permit got;
  limiter.acquire_later(1, Priority::normal, [&](Permit permit) {
    const std::lock_guard lock(mutex);
    got = std::move(permit);
    changed.notify_one();
  });
  std::unique_lock lock(mutex);
  if (!changed.wait_for(lock, 30s, [&] { return static_cast<bool>(got); })) bench::die("no permit within 30 s");
  return got;
}

}  // namespace

int main(int argc, char** argv) {
  bench::Args args(argc, argv);
  const std::string brokers = args.text("brokers"), topic = args.text("topic");
  const std::int64_t pairs = args.number("pairs", 20'000'000), misses = args.number("misses", 500);
  args.done();
  const auto domain =
      kafka::open_limiters({{"bootstrap.servers", brokers}}, {.name = topic}, {}, make_logger({"warn", "text"}));
  if (!domain->wait_until_joined(30s)) bench::die("not joined within 30 s");

  const auto held = domain->open("held", 16);
  {
    std::vector<Permit> block;
    for (int i = 0; i < 16; ++i) block.push_back(wait_for(*held));
  }
  std::atomic<std::int64_t> missed{0};
  const double one_ns = pair_ns(*held, 1, pairs, missed), eight_ns = pair_ns(*held, 8, pairs, missed);
  if (missed > pairs / 100)
    bench::die("permits that this process holds were not to be had " + std::to_string(missed) + " times");

  const auto asked = domain->open("missed", 1'000'000);
  bench::RoundTrip round_trip(brokers, topic + "-echo");
  std::vector<Permit> kept;
  std::vector<double> asks, trips;
  for (std::int64_t i = 0; i < misses; ++i) {
    std::int64_t before_ns = bench::now_ns();
    kept.push_back(wait_for(*asked));
    asks.push_back(static_cast<double>(bench::now_ns() - before_ns) / 1e6);
    before_ns = bench::now_ns();
    round_trip.once();
    trips.push_back(static_cast<double>(bench::now_ns() - before_ns) / 1e6);
  }
  bench::Report("fw_permits")
      .add("local_1_ns", one_ns)
      .add("local_8_ns", eight_ns)
      .add("not_to_be_had", missed.load())
      .add("miss_p50_ms", bench::percentile(asks, 0.5))
      .add("miss_p99_ms", bench::percentile(asks, 0.99))
      .add("round_trip_p50_ms", bench::percentile(trips, 0.5))
      .add("round_trip_p99_ms", bench::percentile(trips, 0.99))
      .print();
  return 0;
}
