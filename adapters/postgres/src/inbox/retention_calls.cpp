#include "inbox/retention_calls.hpp"

#include <algorithm>
#include <utility>

#include "inbox/calls.hpp"
#include "turnstile/error.hpp"
#include "wire/encode.hpp"
#include "wire/server_clock.hpp"
#include "wire/text_rows.hpp"

namespace turnstile::postgres {

namespace {

/// A step of the purger takes milliseconds. If a lock or a disk delays it, it gives up.
constexpr std::chrono::milliseconds kPurgePatience{200};
constexpr const char* kPurgeLimit = "SET LOCAL statement_timeout = '2s'";
/// The longest time to the next step: until then, claims that stand for nothing stay.
constexpr std::chrono::minutes kLookAtClaims{1};

class PostgresRetention final : public ports::Retention {
 public:
  explicit PostgresRetention(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  KeptIds keep_ids(HandlerId handler, std::optional<std::chrono::seconds> keep_for) override;
  /// Throws Error while the clock cannot be trusted: nothing is deleted then.
  ports::PurgeStep purge_step(std::int64_t most) override;

 private:
  const std::shared_ptr<Shared> shared_;
  ServerClock clock_;
};

KeptIds PostgresRetention::keep_ids(HandlerId handler, std::optional<std::chrono::seconds> keep_for) {
  const auto kept = call_in_transaction(*shared_, [&](Pipeline& pipeline) {
    pipeline.arguments().add_int(handler.value);
    if (keep_for) pipeline.arguments().add_int(keep_for->count());
    else pipeline.arguments().add_null(0);
    pipeline.add(shared_->statements.keep_ids, kCaller, Pipeline::Keep::text);
  });
  KeptIds ids;
  const auto* row = kept[0].get();
  if (!PQgetisnull(row, 0, 0)) ids.kept_for = std::chrono::seconds(number_at(kept[0], 0, 0));
  if (!PQgetisnull(row, 0, 1)) ids.all_since = Timestamp(std::chrono::milliseconds(number_at(kept[0], 0, 1)));
  return ids;
}

ports::PurgeStep PostgresRetention::purge_step(std::int64_t most) {
  const auto kept = call_in_transaction(*shared_, kPurgePatience, [&](Pipeline& pipeline) {
    // Ids that a crash of the server restores are deleted again, so this commit need not wait for the disk.
    pipeline.add("SET LOCAL synchronous_commit = off", kCaller);
    pipeline.add(kPurgeLimit, kCaller);
    pipeline.add(shared_->statements.drop_lapsed_claims, kCaller);
    pipeline.arguments().add_int(most);
    pipeline.arguments().add_int(ServerClock::wall_us());
    if (const auto expected = clock_.expected_us()) pipeline.arguments().add_int(*expected);
    else pipeline.arguments().add_null(0);
    pipeline.add(shared_->statements.purge_step, kCaller, Pipeline::Keep::text);
  });
  const PGresult* row = kept[0].get();
  clock_.shows(number_at(kept[0], 0, 2));
  const bool rivalled = PQgetisnull(row, 0, 1);
  if (!PQgetisnull(row, 0, 5))
    throw Error(Code::ids_not_deleted,
                held_by_step(std::chrono::seconds(number_at(kept[0], 0, 4)), text_at(kept[0], 0, 5)));
  if (!PQgetisnull(row, 0, 3))
    throw Error(Code::ids_not_deleted, held_by_difference(std::chrono::seconds(number_at(kept[0], 0, 3))));
  const std::chrono::milliseconds due(rivalled ? 0 : number_at(kept[0], 0, 1));
  return {number_at(kept[0], 0, 0), std::min<std::chrono::milliseconds>(due, kLookAtClaims), rivalled};
}

}  // namespace

std::shared_ptr<ports::Retention> open_retention(std::shared_ptr<Shared> shared) {
  return std::make_shared<PostgresRetention>(std::move(shared));
}

}  // namespace turnstile::postgres
