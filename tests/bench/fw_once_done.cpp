// once() with an id that is done, compared with a single SELECT by the inbox's primary key, in turns.
//  --postgres URL --schema S [--ids 10000] [--asks 20000]
// The runner creates the schema, and drops it.

#include <memory>
#include <vector>

#include "tests/bench/fw_common.hpp"
#include "tests/bench/raw_postgres.hpp"
#include "turnstile/inbox.hpp"
#include "turnstile/postgres/store.hpp"

namespace {

using namespace turnstile;

constexpr const char* kHandlerName = "once-done";

/// Ids that took effect, as after a year of use. Returns some of them for the calls.
std::vector<std::string> done_ids(bench::Database& db, const std::string& schema, HandlerId handler, std::int64_t ids) {
  const std::string table = schema + ".inbox";
  db.exec(("INSERT INTO " + table + " (handler, id, slot, record_offset) SELECT " + std::to_string(handler.value) +
           ", gen_random_uuid(), 0, n FROM generate_series(1, " + std::to_string(ids) + ") n")
              .c_str());
  db.exec(("VACUUM ANALYZE " + table).c_str());
  db.exec("CHECKPOINT");
  return db.texts(("SELECT id FROM " + table + " ORDER BY record_offset").c_str());
}

template <class Ask>
double took_ms(Ask ask) {
  const std::int64_t before_ns = bench::now_ns();
  ask();
  return static_cast<double>(bench::now_ns() - before_ns) / 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  bench::Args args(argc, argv);
  const std::string url = args.text("postgres"), schema = args.text("schema");
  const std::int64_t count = args.number("ids", 10'000), asks = args.number("asks", 20'000);
  args.done();

  const auto store = postgres::open_store(bench::postgres_settings(url, schema));
  const HandlerId handler = store->register_handler(kHandlerName);
  bench::Database db(url);
  const auto ids = done_ids(db, schema, handler, count);
  db.prepare_look_up(schema, handler.value);

  Inbox inbox{store};
  std::vector<double> bare, once;
  for (std::int64_t i = 0; i < asks; ++i) {
    const std::string& id = ids[bench::scramble(static_cast<std::uint64_t>(i)) % ids.size()];
    bare.push_back(took_ms([&] {
      if (!db.look_up(id)) bench::die(id + " is not there");
    }));
    once.push_back(took_ms([&] {
      const Once seen = inbox.once(kHandlerName, id, [](Context&) { bench::die("it ran"); });
      if (seen.kind != Once::Kind::repeated) bench::die(id + " was not known");
    }));
  }
  const double bare_p50 = bench::percentile(bare, 0.5), once_p50 = bench::percentile(once, 0.5);
  bench::Report("fw_once_done")
      .add("asks", asks)
      .add("bare_p50_ms", bare_p50)
      .add("bare_p99_ms", bench::percentile(bare, 0.99))
      .add("once_p50_ms", once_p50)
      .add("once_p99_ms", bench::percentile(once, 0.99))
      .add("p50_ratio", once_p50 / bare_p50)
      .print();
  return 0;
}
