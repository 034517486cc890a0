// Old ids go window by window of the table's blocks. A plain `DELETE … WHERE seen_at < x LIMIT n`, repeated, walks over
// all that it has deleted before, again and again; this reads each block once. The block range index on seen_at gives
// the first and the last block with old rows, so that what is young is not read.

#include <algorithm>

#include "admin_session.hpp"

namespace turnstile::postgres {

namespace {

constexpr Patience kScan{600'000, 5'000};
constexpr Patience kBatch{60'000, 5'000};
// 128 blocks hold about 15,000 rows of the inbox: a window is a batch or two, and one entry of the block range index.
constexpr std::int64_t kWindowBlocks = 128;

struct BlockRange {
  std::int64_t first = 0;
  std::int64_t end = 0;
};

std::string tid(std::int64_t block) { return "(" + std::to_string(block) + ",0)"; }

// An advisory lock that lives as long as the transaction (traps 9, 14), one for each schema.
constexpr std::string_view kOnlyCleaner =
    "SELECT pg_try_advisory_xact_lock(hashtextextended('turnstile.purge.' || current_schema(), 0))";

// Blocks that hold rows to delete; empty when there are none.
constexpr std::string_view kOldBlocks =
    "SELECT min(block), max(block) + 1 FROM (SELECT ((ctid::text::point)[0])::bigint AS block FROM inbox "
    "WHERE seen_at < $1::timestamptz AND ($2::smallint IS NULL OR handler = $2)) old";

// Rows of the inbox never change, so between the sub-query and the delete a ctid means the same row, or none.
constexpr std::string_view kDelete =
    "DELETE FROM inbox WHERE ctid = ANY (ARRAY(SELECT ctid FROM inbox WHERE ctid >= $1::tid AND ctid < $2::tid "
    "AND seen_at < $3::timestamptz AND ($4::smallint IS NULL OR handler = $4) LIMIT $5::bigint))";

}  // namespace

PurgeResult Admin::purge(const PurgeOptions& options) {
  PurgeResult result;
  // The cut is taken once, by the database's clock: a long purge does not run after its own tail.
  const Rows cut = session_->ask(
      "SELECT (clock_timestamp() - make_interval(secs => $1::double precision))::text, "
      "       (SELECT id FROM handler WHERE name = $2), $2::text IS NULL",
      {std::to_string(options.older_than.count()), options.handler});
  const std::optional<std::string> before = cut.at(0, 0), handler = cut.at(0, 1);
  if (!handler && !cut.get<bool>(0, 2)) return result;  // nobody of that name has ever registered

  const Rows old = session_->ask(kOldBlocks, {before, handler}, kScan);
  if (!old.at(0, 0)) return result;
  BlockRange blocks{old.get<std::int64_t>(0, 0), old.get<std::int64_t>(0, 1)};

  while (blocks.first < blocks.end) {
    const std::int64_t window_end = std::min(blocks.first + kWindowBlocks, blocks.end);
    const Arguments arguments{tid(blocks.first), tid(window_end), before, handler, std::to_string(options.batch)};
    const auto deleted = session_->transact(kBatch, [&]() -> std::optional<std::int64_t> {
      if (!session_->run(kOnlyCleaner).get<bool>(0, 0)) return std::nullopt;
      return static_cast<std::int64_t>(session_->run(kDelete, arguments).affected());
    });
    if (!deleted) {
      result.end = PurgeEnd::rivalled;
      return result;
    }
    result.deleted += *deleted;
    if (*deleted < options.batch) blocks.first = window_end;
    if (*deleted > 0 && options.on_batch && !options.on_batch(result.deleted)) {
      result.end = PurgeEnd::stopped;
      return result;
    }
  }
  return result;
}

}  // namespace turnstile::postgres
