// One of several processes whose threads take a permit, hold it, and release it, for --seconds. The board counts them.
//  --brokers B --topic T --board FILE --slot 0 --limit 16 --threads 16 --ms 10 --seconds 20 --from-ns 0 --waits FILE
//  [--lease-ms 10000] [--snapshot-every 4096]
//  --topic    the token log
//  --from-ns  CLOCK_MONOTONIC; waits that begin before it are not written
//  --waits    all waits for a permit, in nanoseconds, as 64-bit integers

#include <chrono>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/bench/bench_common.hpp"
#include "tests/bench/board.hpp"
#include "turnstile/kafka/limiters.hpp"
#include "turnstile/log.hpp"
#include "turnstile/token_service.hpp"

int main(int argc, char** argv) {
  using namespace turnstile;
  using namespace std::chrono_literals;
  bench::Args args(argc, argv);
  const std::string brokers = args.text("brokers"), topic = args.text("topic"), file = args.text("waits");
  bench::Board board(args.text("board"), args.number("slot"));
  const std::int64_t at_once = args.number("limit"), threads = args.number("threads");
  const std::int64_t from_ns = args.number("from-ns"), seconds = args.number("seconds");
  const std::chrono::milliseconds each(args.number("ms"));
  TokenSettings settings;
  settings.lease = std::chrono::milliseconds(args.number("lease-ms", settings.lease.count()));
  settings.snapshot_every = args.number("snapshot-every", settings.snapshot_every);
  args.done();

  const auto domain =
      kafka::open_limiters({{"bootstrap.servers", brokers}}, {.name = topic}, settings, make_logger({"warn", "text"}));
  if (!domain->wait_until_joined(30s)) bench::die("not joined within 30 s");
  TokenService tokens(domain);
  tokens.limit("bench", at_once);
  board.slot().ready = 1;
  const std::int64_t end_ns = from_ns + seconds * 1'000'000'000;
  std::mutex mutex;
  std::vector<std::int64_t> all;
  {
    std::vector<std::jthread> workers;
    for (std::int64_t t = 0; t < threads; ++t) {
      workers.emplace_back([&] {
        std::vector<std::int64_t> waits;
        while (bench::now_ns() < end_ns) {
          const std::int64_t asked_ns = bench::now_ns();
          const Permit permit = tokens.acquire("bench", 60s);
          const std::int64_t got_ns = bench::now_ns();
          if (!permit) bench::die("no permit within 60 s: " + domain->halted());
          if (asked_ns >= from_ns) waits.push_back(got_ns - asked_ns);
          board.start();
          std::this_thread::sleep_for(each);
          board.stop(got_ns);
        }
        const std::lock_guard lock(mutex);
        all.insert(all.end(), waits.begin(), waits.end());
      });
    }
  }
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(all.data()),
             static_cast<std::streamsize>(all.size() * sizeof(std::int64_t)));
  bench::Report("fw_tokens")
      .add("limit", at_once)
      .add("threads", threads)
      .add("waits", static_cast<std::int64_t>(all.size()))
      .add("cpu_seconds", bench::cpu_seconds())
      .print();
  return 0;
}
