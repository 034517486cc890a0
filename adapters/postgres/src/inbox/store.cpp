#include "turnstile/postgres/store.hpp"

#include <algorithm>
#include <map>

#include "inbox/calls.hpp"
#include "inbox/claims.hpp"
#include "inbox/joined_session.hpp"
#include "inbox/outbox.hpp"
#include "inbox/producers.hpp"
#include "inbox/session.hpp"
#include "inbox/trials.hpp"
#include "migrations/schema.hpp"
#include "turnstile/error.hpp"
#include "wire/decode.hpp"
#include "wire/encode.hpp"
#include "wire/server_clock.hpp"
#include "wire/text.hpp"

namespace turnstile::postgres {

namespace {

std::string text_at(const Result& result, int row, int column) {
  return {PQgetvalue(result.get(), row, column), static_cast<std::size_t>(PQgetlength(result.get(), row, column))};
}

std::int64_t number_at(const Result& result, int row, int column) {
  return std::stoll(PQgetvalue(result.get(), row, column));
}

/// A step of the purger takes milliseconds. If a lock or a disk delays it, it gives up.
constexpr std::chrono::milliseconds kPurgePatience{200};
constexpr const char* kPurgeLimit = "SET LOCAL statement_timeout = '2s'";

class Store final : public InboxStore {
 public:
  explicit Store(const PostgresSettings& settings) : shared_(std::make_shared<Shared>(settings)) {}

  void cut(bool now) noexcept override {
    *shared_->cut = now;
    shared_->handlers.look_at_cut();
    shared_->calls.look_at_cut();
  }
  std::unique_ptr<InboxSession> open_session() override { return std::make_unique<Session>(shared_); }
  std::unique_ptr<InboxSession> join(Transaction& transaction) override { return postgres::join(shared_, transaction); }
  std::optional<Recorded> find(HandlerId handler, const MessageId& id) override;
  std::shared_ptr<Claims> claims() override { return open_claims(shared_); }
  std::shared_ptr<Producers> producers() override { return open_producers(shared_); }
  std::shared_ptr<Outbox> outbox() override { return open_outbox(shared_); }
  std::shared_ptr<Trials> trials() override { return open_trials(shared_); }
  void check_schema() override;
  HandlerId register_handler(const std::string& name) override;
  std::string first_group(HandlerId handler, const std::string& group) override;
  std::int64_t history() override;
  std::vector<PartitionClaim> claim_partitions(const std::string& group, std::span<const TopicPartition> partitions,
                                               std::chrono::milliseconds lock_timeout) override;
  std::vector<WatermarkState> advance_watermarks(std::span<const WatermarkUpdate> updates) override;
  std::int32_t begin_incarnation(const Fence& fence, Offset first) override;
  bool record_dead(const DeadMessage& message) override;
  std::set<Offset> dead_between(HandlerId handler, const Fence& fence, Offset first, Offset last,
                                std::optional<DeadReason> reason) override;
  KeptIds keep_ids(HandlerId handler, std::optional<std::chrono::seconds> keep_for) override;
  PurgeStep purge_step(std::int64_t most) override;

 private:
  std::vector<Result> call(const Fill& fill) { return postgres::call(*shared_, fill); }
  std::vector<Result> call_in_transaction(std::chrono::milliseconds lock_timeout, const Fill& fill) {
    return postgres::call_in_transaction(*shared_, lock_timeout, fill);
  }

  std::shared_ptr<Shared> shared_;
  ServerClock clock_;
};

void Store::check_schema() {
  Pool::Loan link = shared_->calls.take();
  try {
    link->pipeline.leave();
    link->connection.patience(answer_within(shared_->settings, shared_->settings.lock_timeout));
    check_ledger(link->connection, shared_->settings);
  } catch (const ConnectionLost& lost) {
    if (!link->used || lost.unanswered) throw_lost(lost);
    link.reset();
    shared_->calls.renew();
    return check_schema();
  }
}

HandlerId Store::register_handler(const std::string& name) {
  const auto& sql = shared_->statements;
  for (;;) {
    for (const std::string* statement : {&sql.find_handler, &sql.register_handler}) {
      try {
        const auto kept = call_at_start(*shared_, [&](Pipeline& pipeline) {
          pipeline.arguments().add_text(name);
          pipeline.add(*statement, kCaller, Pipeline::Keep::text);
        });
        if (PQntuples(kept[0].get()) > 0) return {static_cast<std::int16_t>(number_at(kept[0], 0, 0))};
      } catch (const StoreFailed& error) {
        if (error.sqlstate != "22003") throw;
        throw Error(Code::api_misused, "handler \"" + name + "\": all 32,767 handler ids of the schema " +
                                           shared_->settings.schema +
                                           " are used up; handler names must not be made from values");
      }
    }
    // A concurrent transaction took the number, or the name, which then exists now.
  }
}

std::string Store::first_group(HandlerId handler, const std::string& group) {
  for (int tries = 0; tries < 10; ++tries) {
    const auto kept = call_at_start(*shared_, [&](Pipeline& pipeline) {
      pipeline.arguments().add_int(handler.value);
      pipeline.arguments().add_text(group);
      pipeline.add(shared_->statements.first_group, kCaller, Pipeline::Keep::text);
    });
    if (PQntuples(kept[0].get()) > 0) return text_at(kept[0], 0, 0);
  }
  throw Error(Code::store_rewound, "handler number " + std::to_string(handler.value) +
                                       " is not in table handler of schema " + shared_->settings.schema +
                                       ": it was there a moment ago; start again");
}

std::optional<Recorded> Store::find(HandlerId handler, const MessageId& id) {
  // From the connections of transactions: the caller opens one next if nothing is found.
  const auto kept = postgres::call(*shared_, shared_->handlers, [&](Pipeline& pipeline) {
    pipeline.arguments().add_int(handler.value);
    add_uuid(pipeline.arguments(), id);
    pipeline.add(shared_->statements.find, kCaller, Pipeline::Keep::binary);
  });
  const PGresult* row = kept[0].get();
  if (PQntuples(row) == 0) return std::nullopt;
  Recorded recorded;
  if (!PQgetisnull(row, 0, 0)) recorded.fingerprint = int64_in(row, 0, 0);
  if (!PQgetisnull(row, 0, 1)) recorded.response = bytes_in(row, 0, 1);
  return recorded;
}

std::int64_t Store::history() {
  const auto kept =
      call([&](Pipeline& pipeline) { pipeline.add(shared_->statements.history, kCaller, Pipeline::Keep::text); });
  return number_at(kept[0], 0, 0);
}

std::vector<PartitionClaim> Store::claim_partitions(const std::string& group,
                                                    std::span<const TopicPartition> partitions,
                                                    std::chrono::milliseconds lock_timeout) {
  if (partitions.empty()) return {};
  std::vector<std::string> topics;
  std::vector<std::int64_t> numbers;
  for (const auto& at : partitions) {
    topics.push_back(at.topic);
    numbers.push_back(at.partition);
  }
  const Param params[] = {Param(group), Param(topics), Param(numbers)};
  const auto kept = call_in_transaction(lock_timeout, [&](Pipeline& pipeline) {
    pipeline.add(shared_->statements.add_fences, params, kCaller);
    pipeline.add(shared_->statements.claim, params, kCaller, Pipeline::Keep::text);
  });

  std::vector<PartitionClaim> claims;
  for (int row = 0; row < PQntuples(kept[0].get()); ++row) {
    PartitionClaim claim;
    claim.at = {text_at(kept[0], row, 0), static_cast<std::int32_t>(number_at(kept[0], row, 1))};
    claim.fence = {static_cast<std::int32_t>(number_at(kept[0], row, 2)),
                   {number_at(kept[0], row, 3)},
                   number_at(kept[0], row, 4)};
    claim.incarnation = static_cast<std::int32_t>(number_at(kept[0], row, 5));
    if (!PQgetisnull(kept[0].get(), row, 6)) claim.watermark = number_at(kept[0], row, 6);
    if (!PQgetisnull(kept[0].get(), row, 7)) claim.progress = number_at(kept[0], row, 7);
    claim.is_clean = number_at(kept[0], row, 8) == 1;
    claim.store = shared_->settings.schema + '/' + text_at(kept[0], row, 9);
    claims.push_back(std::move(claim));
  }
  // In the order of `partitions`.
  std::vector<PartitionClaim> ordered;
  for (const auto& at : partitions) {
    const auto found = std::find_if(claims.begin(), claims.end(), [&](const auto& claim) { return claim.at == at; });
    if (found == claims.end())
      throw StoreUnavailable(to_string(at) + ": its fence vanished while it was claimed; try again");
    ordered.push_back(*found);
  }
  return ordered;
}

std::vector<WatermarkState> Store::advance_watermarks(std::span<const WatermarkUpdate> updates) {
  if (updates.empty()) return {};
  const auto kept = call_in_transaction(shared_->settings.lock_timeout, [&](Pipeline& pipeline) {
    // If a crash of the server moves a watermark back, a consumer reads messages again that the inbox rejects. So this
    // commit need not wait for the disk.
    pipeline.add("SET LOCAL synchronous_commit = off", kCaller);
    ArgumentBlock& to = pipeline.arguments();
    const std::size_t count = updates.size();
    add_int8_array(to, count, [&](std::size_t i) { return std::optional<std::int64_t>(updates[i].fence.slot); });
    add_int8_array(to, count, [&](std::size_t i) { return std::optional(updates[i].fence.epoch.value); });
    add_int8_array(to, count, [&](std::size_t i) { return std::optional(updates[i].fence.history); });
    add_int8_array(to, count, [&](std::size_t i) { return std::optional(updates[i].watermark); });
    add_int8_array(to, count, [&](std::size_t i) { return updates[i].known; });
    pipeline.add(shared_->statements.advance, kCaller, Pipeline::Keep::text);
  });
  std::map<std::int64_t, WatermarkState> by_slot;
  for (int row = 0; row < PQntuples(kept[0].get()); ++row) {
    by_slot[number_at(kept[0], row, 0)] =
        number_at(kept[0], row, 1) == 0 ? WatermarkState::moved : WatermarkState::behind;
  }
  std::vector<WatermarkState> states;
  for (const WatermarkUpdate& update : updates) {
    const auto found = by_slot.find(update.fence.slot);
    states.push_back(found == by_slot.end() ? WatermarkState::not_ours : found->second);
  }
  return states;
}

std::int32_t Store::begin_incarnation(const Fence& fence, Offset first) {
  const auto kept = call_in_transaction(shared_->settings.lock_timeout, [&](Pipeline& pipeline) {
    pipeline.arguments().add_int(fence.slot);
    pipeline.arguments().add_int(fence.epoch.value);
    pipeline.arguments().add_int(first);
    pipeline.arguments().add_int(fence.history);
    pipeline.add(shared_->statements.incarnation, kCaller, Pipeline::Keep::text);
  });
  if (PQntuples(kept[0].get()) == 0) throw_fenced(fence);
  return static_cast<std::int32_t>(number_at(kept[0], 0, 0));
}

bool Store::record_dead(const DeadMessage& message) {
  const auto& record = message.record;
  const auto& headers = record.headers;
  const auto kept = call([&](Pipeline& pipeline) {
    ArgumentBlock& to = pipeline.arguments();
    to.add_int(message.handler.value);
    to.add_int(message.fence.slot);
    to.add_int(message.fence.epoch.value);
    to.add_int(record.offset);
    if (message.id) add_uuid(to, *message.id);
    else to.add_null(kUuid);
    to.add_text(to_text(message.reason));
    to.add_text(printable(message.error));
    to.add_int(message.attempts);
    add_record_time(to, record.timestamp);
    add_bytea(to, record.key);
    add_bytea(to, record.payload);
    add_bytea_array(to, headers.size(),
                    [&](std::size_t i) { return std::optional<std::string_view>(headers[i].name); });
    add_bytea_array(to, headers.size(),
                    [&](std::size_t i) { return std::optional<std::string_view>(headers[i].value); });
    if (message.dead_letter) {
      to.add_text(message.dead_letter->at.topic);
      to.add_int(message.dead_letter->at.partition);
      to.add_int(message.dead_letter->offset);
    } else {
      for (int i = 0; i < 3; ++i) to.add_null(0);
    }
    to.add_int(message.fence.history);
    pipeline.add(shared_->statements.record_dead, kCaller, Pipeline::Keep::text);
  });
  if (PQntuples(kept[0].get()) == 0) throw_fenced(message.fence);
  return number_at(kept[0], 0, 0) == 1;
}

std::set<Offset> Store::dead_between(HandlerId handler, const Fence& fence, Offset first, Offset last,
                                     std::optional<DeadReason> reason) {
  const auto kept = call([&](Pipeline& pipeline) {
    pipeline.arguments().add_int(handler.value);
    pipeline.arguments().add_int(fence.slot);
    pipeline.arguments().add_int(first);
    pipeline.arguments().add_int(last);
    pipeline.arguments().add_int(fence.history);
    if (!reason) pipeline.arguments().add_null(0);
    else pipeline.arguments().add_text(to_text(*reason));
    pipeline.add(shared_->statements.dead_between, kCaller, Pipeline::Keep::text);
  });
  std::set<Offset> offsets;
  for (int row = 0; row < PQntuples(kept[0].get()); ++row) offsets.insert(number_at(kept[0], row, 0));
  return offsets;
}

KeptIds Store::keep_ids(HandlerId handler, std::optional<std::chrono::seconds> keep_for) {
  const auto kept = call_at_start(*shared_, [&](Pipeline& pipeline) {
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

/// Throws Error while the clock cannot be trusted: nothing is deleted then.
PurgeStep Store::purge_step(std::int64_t most) {
  const auto kept = call_in_transaction(kPurgePatience, [&](Pipeline& pipeline) {
    // Ids that a crash of the server restores are deleted again, so this commit need not wait for the disk.
    pipeline.add("SET LOCAL synchronous_commit = off", kCaller);
    pipeline.add(kPurgeLimit, kCaller);
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
  return {number_at(kept[0], 0, 0), std::chrono::milliseconds(rivalled ? 0 : number_at(kept[0], 0, 1)), rivalled};
}

}  // namespace

std::shared_ptr<InboxStore> open_store(const PostgresSettings& settings) {
  check_settings(settings);
  return std::make_shared<Store>(settings);
}

}  // namespace turnstile::postgres
