// Whether deleting old ids delays inserts: the time of a transaction that inserts ids, with and without the purger, in
// turns, on one table.
// --postgres URL --schema S --old 3000000 --connections 4 --batch 20 --rounds 10 --seconds 10 --partitions 1
// The schema must not exist. The program creates it and fills it with ids of 9 days, and 8 days are kept. The runner
// drops it.

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "inbox/purger.hpp"
#include "tests/bench/fw_common.hpp"
#include "tests/bench/raw_postgres.hpp"
#include "turnstile/log.hpp"
#include "turnstile/postgres/migrations.hpp"
#include "turnstile/postgres/store.hpp"

namespace {

using namespace turnstile;
using namespace std::chrono_literals;

struct Shape {
  std::int64_t connections;
  std::int64_t batch;
  double seconds;
};

/// An id in the form of UUIDv7: in the order of time, with a random end.
MessageId next_id(std::atomic<std::uint64_t>& number) {
  const std::uint64_t n = number.fetch_add(1) + 1;
  std::array<std::uint8_t, 16> bytes{};
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[i] = static_cast<std::uint8_t>(n >> (8 * (7 - i)));
    bytes[8 + i] = static_cast<std::uint8_t>(bench::scramble(n) >> (8 * i));
  }
  MessageId id;
  static_assert(sizeof id.bytes == sizeof bytes);
  std::copy(bytes.begin(), bytes.end(), id.bytes.begin());
  return id;
}

/// Each connection inserts ids, one transaction after another. Returns the time of each transaction, in milliseconds.
std::vector<double> insert(ports::Store& store, const ports::InboxScope& scope, const Shape& shape,
                           std::atomic<std::uint64_t>& number) {
  std::vector<std::vector<double>> each(static_cast<std::size_t>(shape.connections));
  {
    std::vector<std::jthread> threads;
    for (auto& times : each) {
      threads.emplace_back([&] {
        const auto session = store.open_session();
        const std::int64_t start_ns = bench::now_ns();
        std::vector<ports::InboxEntry> entries(static_cast<std::size_t>(shape.batch));
        while (bench::seconds_since(start_ns) < shape.seconds) {
          for (auto& entry : entries) entry.id = next_id(number);
          const std::int64_t before_ns = bench::now_ns();
          session->begin(scope, entries);
          session->commit();
          times.push_back(static_cast<double>(bench::now_ns() - before_ns) / 1e6);
        }
      });
    }
  }
  std::vector<double> all;
  for (const auto& times : each) all.insert(all.end(), times.begin(), times.end());
  return all;
}

void fill(bench::Database& db, const std::string& schema, std::int64_t old) {
  constexpr std::int64_t chunk = 100'000;
  for (std::int64_t from = 0; from < old; from += chunk) {
    const std::int64_t to = std::min(old, from + chunk);
    db.exec(
        ("INSERT INTO " + schema +
         ".inbox (handler, id, slot, record_offset, seen_at) SELECT 1, gen_random_uuid(), 1, n, now() - interval '9 "
         "days' FROM generate_series(" +
         std::to_string(from + 1) + ", " + std::to_string(to) + ") n")
            .c_str());
  }
  db.exec(("VACUUM ANALYZE " + schema + ".inbox").c_str());
  db.exec("CHECKPOINT");
}

}  // namespace

int main(int argc, char** argv) {
  bench::Args args(argc, argv);
  const std::string url = args.text("postgres"), schema = args.text("schema");
  const std::int64_t old = args.number("old", 3'000'000), rounds = args.number("rounds", 10);
  const std::int64_t partitions = args.number("partitions", 1);
  const Shape shape{args.number("connections", 4), args.number("batch", 20), args.real("seconds", 10)};
  args.done();

  const auto settings = bench::postgres_settings(url, schema);
  postgres::migrate_up(settings, postgres::embedded_migration_list(), static_cast<int>(partitions));
  const auto store = postgres::open_store(settings);
  const HandlerId handler = store->register_handler("bench");
  const TopicPartition at{"bench", 0};
  const Fence fence = store->partitions().claim_partitions("bench", {&at, 1}, 5s).front().fence;
  const auto retention =
      std::make_shared<detail::HandlerRetention>(store->retention(), handler, "bench", kKeepIdsByDefault);
  const auto run_log = std::make_shared<detail::RunLog>(make_logger({"warn", "text"}), "bench");
  bench::Database db(url);
  fill(db, schema, old);

  const std::string left_sql = "SELECT count(*) FROM " + schema + ".inbox WHERE seen_at < now() - interval '8 days'";
  std::atomic<std::uint64_t> number{0};
  std::vector<double> without, with;
  for (std::int64_t round = 0; round < 2 * rounds; ++round) {
    std::unique_ptr<detail::Purger> purger;
    if (round % 2 == 1) {
      purger = std::make_unique<detail::Purger>(detail::Purger::Settings{.look_first = 1ms, .look_every = 1ms},
                                                std::vector{retention},
                                                std::shared_ptr<ports::Retention>(store, &store->retention()), run_log);
    }
    const auto times = insert(*store, {handler, fence, 5s, 30s}, shape, number);
    purger.reset();
    auto& into = round % 2 == 1 ? with : without;
    into.insert(into.end(), times.begin(), times.end());
  }
  const std::int64_t left = db.number(left_sql.c_str());
  if (left == 0) bench::die("all old ids were deleted before the end, so that it was not measured: give more --old");
  if (left == old) bench::die("nothing was deleted");

  const double p99_without = bench::percentile(without, 0.99), p99_with = bench::percentile(with, 0.99);
  bench::Report("fw_purge")
      .add("connections", shape.connections)
      .add("batch", shape.batch)
      .add("partitions", partitions)
      .add("inserts", static_cast<std::int64_t>(without.size() + with.size()))
      .add("deleted", old - left)
      .add("deleted_per_second", static_cast<double>(old - left) / (static_cast<double>(rounds) * shape.seconds))
      .add("rate_without", static_cast<double>(without.size()) / (static_cast<double>(rounds) * shape.seconds))
      .add("rate_with", static_cast<double>(with.size()) / (static_cast<double>(rounds) * shape.seconds))
      .add("p50_without_ms", bench::percentile(without, 0.5))
      .add("p50_with_ms", bench::percentile(with, 0.5))
      .add("p99_without_ms", p99_without)
      .add("p99_with_ms", p99_with)
      .add("p99_ratio", p99_with / p99_without)
      .print();
  return 0;
}
