// Deletes old ids, window by window of the table's blocks. A repeated `DELETE … WHERE seen_at < x LIMIT n` walks over
// everything that it has deleted before; this reads each block once, after it has looked for the first and the last block
// with old rows.
// In a partitioned inbox each partition has its own blocks and row numbers. Responses are deleted after their ids.

#include <algorithm>

#include "admin/session.hpp"
#include "wire/server_clock.hpp"

namespace turnstile::postgres {

namespace {

constexpr Patience kScan{600'000};
constexpr Patience kBatch{60'000};
// 128 blocks hold about 15,000 rows of the inbox: a window is one or two batches.
constexpr std::int64_t kWindowBlocks = 128;

std::string tid(std::int64_t block) { return "(" + std::to_string(block) + ",0)"; }

// An advisory lock until the end of the transaction, one for each schema (hazard: purge-locks, pooled-session).
// purge_step() takes the same lock.
constexpr std::string_view kOnlyCleaner =
    "SELECT pg_try_advisory_xact_lock(hashtextextended('turnstile.purge.' || current_schema(), 0))";

// Tables that contain rows; the responses are last.
constexpr std::string_view kLeaves =
    "SELECT c.oid::regclass, c.relname, c.relname = 'response' FROM pg_class c "
    "WHERE c.relkind = 'r' AND (c.oid IN ('inbox'::regclass, 'response'::regclass) "
    "   OR c.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'inbox'::regclass)) ORDER BY 3, 2";

// The horizon is recorded before the ids are deleted.
constexpr std::string_view kHorizon =
    "INSERT INTO horizon AS h (handler, forgotten_before) "
    "SELECT id, $1::timestamptz FROM handler WHERE $2::smallint IS NULL OR id = $2 "
    "ON CONFLICT (handler) DO UPDATE SET forgotten_before = excluded.forgotten_before "
    " WHERE h.forgotten_before < excluded.forgotten_before";

constexpr std::string_view kSwept =
    "INSERT INTO sweep (leaf, swept_at) VALUES ($1::name, clock_timestamp()) "
    "ON CONFLICT (leaf) DO UPDATE SET swept_at = excluded.swept_at";

/// The statements for a table.
struct Leaf {
  std::string name;
  std::string old_blocks;  ///< the blocks with rows to delete; NULL if there are none
  std::string remove;
  bool is_response;

  Leaf(const std::string& place, std::string leaf_name, bool response)
      : name(std::move(leaf_name)), is_response(response) {
    const std::string old = std::string("old.") + (is_response ? "replied_at" : "seen_at") +
                            " < $1::timestamptz AND ($2::smallint IS NULL OR old.handler = $2)";
    old_blocks = "SELECT min(block), max(block) + 1 FROM (SELECT ((ctid::text::point)[0])::bigint AS block FROM " +
                 place + " old WHERE " + old + ") blocks";
    // A dead letter needs the id of its message: as in purge_step(), migration 22.
    const std::string needed = is_response
                                   ? "SELECT FROM inbox i WHERE i.handler = old.handler AND i.id = old.id"
                                   : "SELECT FROM dead d WHERE d.message_id = old.id AND d.handler = old.handler AND "
                                     "(d.replayed_at IS NULL OR d.replayed_at >= $1::timestamptz) OFFSET 0";
    // Rows here never change, so between the subquery and the delete a ctid means the same row, or none.
    remove = "DELETE FROM " + place + " WHERE ctid = ANY (ARRAY(SELECT ctid FROM " + place +
             " old WHERE ctid >= $3::tid AND ctid < $4::tid AND " + old + " AND NOT EXISTS (" + needed +
             ") LIMIT $5::bigint))";
  }
};

}  // namespace

std::vector<KeptFor> Admin::kept(const std::optional<std::string>& handler) {
  const Rows rows = session_->ask(
      "SELECT h.name, CASE WHEN k.keep_s < 3155760000 THEN k.keep_s END FROM kept k JOIN handler h ON h.id = k.handler "
      "WHERE $1::text IS NULL OR h.name = $1 ORDER BY h.name",
      {handler});
  std::vector<KeptFor> all;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    KeptFor& kept = all.emplace_back(KeptFor{rows.get<std::string>(row, 0), std::nullopt});
    if (rows.at(row, 1)) kept.kept_for = std::chrono::seconds(rows.get<std::int64_t>(row, 1));
  }
  return all;
}

ClockReport Admin::clock() {
  const Rows rows = session_->ask(
      "SELECT ahead_s, step_s, to_char(held_until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), abs(ahead_s) > 300 "
      "FROM look_at_clock(timestamptz 'epoch' + $1::bigint * interval '1 microsecond', NULL)",
      {std::to_string(ServerClock::wall_us())});
  ClockReport report{.ahead = std::chrono::seconds(rows.get<std::int64_t>(0, 0)), .held = {}};
  if (rows.at(0, 2))
    report.held = held_by_step(std::chrono::seconds(rows.get<std::int64_t>(0, 1)), rows.get<std::string>(0, 2));
  else if (rows.get<bool>(0, 3)) report.held = held_by_difference(report.ahead);
  return report;
}

std::vector<std::string> Admin::undeclared(const std::optional<std::string>& handler) {
  const Rows rows = session_->ask(
      "SELECT h.name FROM handler h WHERE ($1::text IS NULL OR h.name = $1) "
      "AND NOT EXISTS (SELECT FROM retention r WHERE r.handler = h.id) "
      "AND EXISTS (SELECT FROM inbox i WHERE i.handler = h.id) ORDER BY h.name",
      {handler});
  std::vector<std::string> names;
  for (std::size_t row = 0; row < rows.size(); ++row) names.push_back(rows.get<std::string>(row, 0));
  return names;
}

PurgeResult Admin::purge(const PurgeOptions& options) {
  PurgeResult result;
  // The limit is computed once, by the database's clock, so that a long purge does not chase ids that grow old while it
  // runs.
  const Rows cut = session_->ask(
      "SELECT (clock_timestamp() - make_interval(secs => $1::double precision))::text, "
      "       (SELECT id FROM handler WHERE name = $2), $2::text IS NULL",
      {std::to_string(options.older_than.count()), options.handler});
  const std::optional<std::string> before = cut.at(0, 0), handler = cut.at(0, 1);
  if (!handler && !cut.get<bool>(0, 2)) return result;  // no handler of this name has ever registered

  // Purges one window of a table. Returns how many rows it deleted; absent if another purger holds the lock.
  const auto remove = [&](const Leaf& leaf, std::int64_t first, std::int64_t end) {
    const Arguments arguments{before, handler, tid(first), tid(end), std::to_string(options.batch)};
    return session_->transact(kBatch, [&]() -> std::optional<std::int64_t> {
      if (!session_->run(kOnlyCleaner).get<bool>(0, 0)) return std::nullopt;
      return static_cast<std::int64_t>(session_->run(leaf.remove, arguments).affected());
    });
  };
  const auto clean = [&](const Leaf& leaf) {
    const Rows old = session_->ask(leaf.old_blocks, {before, handler}, kScan);
    if (!old.at(0, 0)) return PurgeEnd::complete;
    session_->ask(kHorizon, {before, handler});
    const auto end = old.get<std::int64_t>(0, 1);
    for (auto first = old.get<std::int64_t>(0, 0); first < end;) {
      const std::int64_t window_end = std::min(first + kWindowBlocks, end);
      const auto deleted = remove(leaf, first, window_end);
      if (!deleted) return PurgeEnd::rivalled;
      if (!leaf.is_response) result.deleted += *deleted;
      if (*deleted < options.batch) first = window_end;
      if (*deleted > 0 && options.on_batch && !options.on_batch(result.deleted)) return PurgeEnd::stopped;
    }
    return PurgeEnd::complete;
  };

  const Rows leaves = session_->ask(kLeaves);
  for (std::size_t row = 0; row < leaves.size() && result.end == PurgeEnd::complete; ++row) {
    const Leaf leaf(leaves.get<std::string>(row, 0), leaves.get<std::string>(row, 1), leaves.get<bool>(row, 2));
    result.end = clean(leaf);
    if (result.end == PurgeEnd::complete && !handler) session_->ask(kSwept, {leaf.name});
  }
  return result;
}

RetentionReport Admin::retention() {
  const Rows rows = session_->ask(
      "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint, coalesce(sum(greatest(reltuples, 0)), 0)::bigint, "
      "       (SELECT (extract(epoch FROM min(coalesce(s.swept_at, s.due_at))) * 1000000)::bigint FROM sweep s "
      "         WHERE s.leaf <> 'response'), "
      "       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint "
      "FROM pg_class WHERE oid IN (SELECT 'inbox'::regclass UNION ALL SELECT inhrelid FROM pg_inherits "
      "                             WHERE inhparent = 'inbox'::regclass)");
  RetentionReport report;
  report.bytes = rows.get<std::int64_t>(0, 0);
  report.rows_about = rows.get<std::int64_t>(0, 1);
  report.swept_at = time_or_none(rows, 0, 2);
  report.now = time_at(rows, 0, 3);
  report.kept = kept(std::nullopt);
  return report;
}

}  // namespace turnstile::postgres
