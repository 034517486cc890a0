// How long the first page of dead letters takes, filtered by topic, reason and time.
// --postgres URL --schema S --letters 1000000 --pages 200
// The schema must not exist. The program creates it and fills it. The runner drops it.

#include <chrono>
#include <vector>

#include "tests/bench/fw_common.hpp"
#include "tests/bench/raw_postgres.hpp"
#include "turnstile/postgres/admin.hpp"
#include "turnstile/postgres/migrations.hpp"

namespace {

using namespace turnstile;

/// 3 topics of 8 partitions. Half of the letters are of the first topic, and a tenth of those were rejected. They died
/// one after the other over 30 days.
void fill(bench::Database& db, const std::string& schema, std::int64_t letters) {
  db.exec(("SET search_path = " + schema).c_str());
  db.exec("INSERT INTO handler (id, name) VALUES (1, 'charge')");
  db.exec(
      "INSERT INTO fence (consumer_group, topic, partition) "
      "SELECT 'billing', t, p FROM unnest(ARRAY['payments', 'refunds', 'emails']) t, generate_series(0, 7) p");
  db.exec(
      ("INSERT INTO dead (handler, slot, incarnation, record_offset, message_id, reason, error, attempts, record_payload, "
       "header_names, header_values, died_at) "
       "SELECT 1, f.slot, 0, n, md5(n::text)::uuid, CASE n % 10 WHEN 0 THEN 'rejected' ELSE 'failed' END, "
       "       'order ' || n || ' has no customer', 5, convert_to(repeat('x', 200), 'UTF8'), '{}', '{}', "
       "       now() - interval '30 days' * (1 - n::double precision / " +
       std::to_string(letters) + ") FROM generate_series(1, " + std::to_string(letters) +
       ") n JOIN fence f ON f.partition = (n / 4) % 8 "
       "AND f.topic = (ARRAY['payments', 'payments', 'refunds', 'emails'])[n % 4 + 1] ORDER BY n")
          .c_str());
  db.exec("VACUUM ANALYZE dead");
  db.exec("CHECKPOINT");
}

}  // namespace

int main(int argc, char** argv) {
  bench::Args args(argc, argv);
  const std::string url = args.text("postgres"), schema = args.text("schema");
  const std::int64_t letters = args.number("letters", 1'000'000), pages = args.number("pages", 200);
  args.done();

  const auto settings = bench::postgres_settings(url, schema);
  postgres::migrate_up(settings, postgres::embedded_migration_list(), 1);
  bench::Database db(url);
  fill(db, schema, letters);
  const std::string scans_sql =
      "SELECT coalesce(sum(seq_scan), 0)::bigint FROM pg_stat_user_tables WHERE relname = 'dead' AND schemaname = '" +
      schema + "'";

  postgres::Admin admin(settings);
  postgres::DeadFilter filter;
  filter.topic = "payments";
  filter.reason = "rejected";
  filter.since =
      std::chrono::floor<std::chrono::microseconds>(std::chrono::system_clock::now()) - std::chrono::days(20);
  filter.until = *filter.since + std::chrono::days(15);
  filter.most = 50;
  db.exec("SELECT pg_stat_force_next_flush()");
  const std::int64_t scans = db.number(scans_sql.c_str());
  std::vector<double> times;
  for (std::int64_t page = 0; page < pages + 10; ++page) {
    const std::int64_t start_ns = bench::now_ns();
    if (admin.dead(filter).letters.size() != 50) bench::die("a page is not full");
    if (page >= 10) times.push_back(static_cast<double>(bench::now_ns() - start_ns) / 1e6);
  }
  { const postgres::Admin ended(std::move(admin)); }  // its session reports its scans at its end
  db.exec("SELECT pg_sleep(2)");
  if (db.number(scans_sql.c_str()) != scans)
    bench::die("a page was read by a scan of the whole table, not by an index");
  bench::Report("fw_dead_list")
      .add("letters", letters)
      .add("pages", pages)
      .add("p50_ms", bench::percentile(times, 0.5))
      .add("p99_ms", bench::percentile(times, 0.99))
      .print();
  return 0;
}
