#include "turnstile/testing/inbox.hpp"

#include <algorithm>

#include "inbox_state.hpp"
#include "turnstile/error.hpp"

namespace turnstile::testing {

void MemoryInbox::State::require_available() const {
  if (unavailable) throw StoreUnavailable("the store was made unavailable by the test");
}

FenceRow& MemoryInbox::State::owned(const Fence& fence) {
  if (FenceRow* row = find_owned(fence)) return *row;
  throw Fenced("slot " + std::to_string(fence.slot) + ": epoch " + std::to_string(fence.epoch.value) +
               " is over: another member owns the partition, or the database has changed (a restart, a failover)");
}

FenceRow* MemoryInbox::State::find_owned(const Fence& fence) {
  const auto found = fences.find(fence.slot);
  if (found == fences.end() || fence.history != history || found->second.epoch != fence.epoch.value) return nullptr;
  return &found->second;
}

MemoryInbox::MemoryInbox() : state_(std::make_shared<State>()) {}
MemoryInbox::~MemoryInbox() = default;

std::vector<Statement> MemoryInbox::committed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->committed;
}

std::vector<OwnedMessage> MemoryInbox::published() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<OwnedMessage> all;
  for (const OutboxRow& row : state_->outbox) all.push_back(row.record.message);
  for (const auto& [due, record] : state_->scheduled) all.push_back(record.message);
  return all;
}

std::optional<std::string> MemoryInbox::response(HandlerId handler, const MessageId& id) const {
  const std::lock_guard lock(state_->mutex);
  const auto kept = state_->responses.find({handler, id});
  return kept == state_->responses.end() ? std::nullopt : std::optional(kept->second);
}

bool MemoryInbox::contains(HandlerId handler, const MessageId& id) const {
  const std::lock_guard lock(state_->mutex);
  return state_->ids.contains({handler, id});
}

std::size_t MemoryInbox::size() const {
  const std::lock_guard lock(state_->mutex);
  return state_->ids.size();
}

std::vector<ports::DeadMessage> MemoryInbox::dead() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<ports::DeadMessage> all;
  for (const auto& [key, message] : state_->dead) all.push_back(message);
  return all;
}

std::optional<Offset> MemoryInbox::watermark(std::int32_t slot) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->fences.find(slot);
  return found == state_->fences.end() ? std::nullopt : found->second.watermark;
}

std::size_t MemoryInbox::commits() const {
  const std::lock_guard lock(state_->mutex);
  return state_->commits;
}

std::size_t MemoryInbox::rollbacks() const {
  const std::lock_guard lock(state_->mutex);
  return state_->rollbacks;
}

Rows MemoryInbox::rows(std::initializer_list<std::vector<std::optional<std::string>>> cells) {
  Rows rows(cells.size() == 0 ? 0 : cells.begin()->size(), cells.size());
  for (const auto& row : cells) {
    for (const auto& cell : row) rows.add(cell);
  }
  return rows;
}

void MemoryInbox::answer(const std::string& sql, Rows rows) {
  const std::lock_guard lock(state_->mutex);
  state_->answers.insert_or_assign(sql, std::move(rows));
}

void MemoryInbox::fail(const std::string& sql, const std::string& sqlstate) {
  const std::lock_guard lock(state_->mutex);
  state_->failures.insert_or_assign(sql, sqlstate);
}

void MemoryInbox::on_statement(std::function<std::optional<Rows>(const Statement&)> hook) {
  const std::lock_guard lock(state_->mutex);
  state_->hook = std::move(hook);
}

void MemoryInbox::fail_next_commit(CommitFault fault) {
  const std::lock_guard lock(state_->mutex);
  state_->commit_faults.push_back(fault);
}

void MemoryInbox::fail_next_begin(std::exception_ptr error) {
  const std::lock_guard lock(state_->mutex);
  state_->begin_faults.push_back(std::move(error));
}

void MemoryInbox::set_unavailable(bool unavailable) {
  const std::lock_guard lock(state_->mutex);
  if (unavailable && !state_->unavailable) ++state_->outages;
  state_->unavailable = unavailable;
}

MemoryInbox::Replica MemoryInbox::replica() const {
  const std::lock_guard lock(state_->mutex);
  return std::make_shared<const Tables>(static_cast<const Tables&>(*state_));
}

void MemoryInbox::fail_over(const Replica& replica) {
  {
    const std::lock_guard lock(state_->mutex);
    static_cast<Tables&>(*state_) = *replica;
    for (auto& [slot, row] : state_->fences) row.sharers = 0;
    for (auto& [whose, row] : state_->progress) row.locked = false;
    for (auto& [whose, row] : state_->claims) row.begun = true;  // its recorded state may be out of date
    state_->pending.clear();
    ++state_->history;
    ++state_->outages;
  }
  state_->changed.notify_all();
}

void MemoryInbox::set_schema_problem(const std::string& problem) {
  const std::lock_guard lock(state_->mutex);
  state_->schema_problem = problem;
}

void MemoryInbox::insert(HandlerId handler, const ports::InboxEntry& entry) {
  const std::lock_guard lock(state_->mutex);
  state_->ids.emplace(InboxKey{handler, entry.id}, entry.fingerprint);
}

std::unique_ptr<ports::InboxSession> MemoryInbox::open_session() { return std::make_unique<MemorySession>(state_); }

void MemoryInbox::check_schema() {
  const std::lock_guard lock(state_->mutex);
  state_->require_available();
  if (!state_->schema_problem.empty()) throw SchemaError(Code::schema_outdated, state_->schema_problem);
}

HandlerId MemoryInbox::register_handler(const std::string& name) {
  const std::lock_guard lock(state_->mutex);
  state_->require_available();
  const auto next = static_cast<std::int16_t>(state_->handlers.size() + 1);
  return state_->handlers.try_emplace(name, HandlerId{next}).first->second;
}

std::string MemoryInbox::first_group(HandlerId handler, const std::string& group) {
  const std::lock_guard lock(state_->mutex);
  state_->require_available();
  return state_->first_groups.try_emplace(handler, group).first->second;
}

std::int64_t MemoryInbox::history() {
  const std::lock_guard lock(state_->mutex);
  state_->require_available();
  return state_->history;
}

std::vector<ports::PartitionClaim> MemoryInbox::claim_partitions(const std::string& group,
                                                                 std::span<const TopicPartition> partitions,
                                                                 const ports::ClaimWait& wait) {
  std::unique_lock lock(state_->mutex);
  state_->require_available();
  std::vector<FenceRow*> rows;
  std::vector<ports::PartitionClaim> claims;
  for (const TopicPartition& at : partitions) {
    auto found = std::find_if(state_->fences.begin(), state_->fences.end(), [&](const auto& slot_and_row) {
      return slot_and_row.second.group == group && slot_and_row.second.at == at;
    });
    if (found == state_->fences.end()) {
      const auto slot = static_cast<std::int32_t>(state_->fences.size() + 1);
      found = state_->fences.emplace(slot, FenceRow{group, at, 0, 0, std::nullopt, 0, 0}).first;
    }
    rows.push_back(&found->second);
    claims.push_back({at, {found->first, {}}, {}, {}, 0});
  }
  const bool free = state_->changed.wait_for(lock, wait.lock_timeout, [&] {
    return std::all_of(rows.begin(), rows.end(), [](const FenceRow* row) { return row->sharers == 0; });
  });
  state_->require_available();
  if (!free) throw StoreBusy("an open transaction of the old owner holds the fence (SQLSTATE 55P03)");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    claims[i].is_clean = rows[i]->epoch == rows[i]->released_epoch;
    claims[i].fence.epoch.value = ++rows[i]->epoch;
    claims[i].fence.history = state_->history;
    claims[i].store = state_->name;
    claims[i].watermark = rows[i]->watermark;
    claims[i].incarnation = rows[i]->incarnation;
    for (const auto& [whose, row] : state_->progress) {
      if (whose.second != claims[i].fence.slot || row.incarnation != claims[i].incarnation) continue;
      claims[i].progress.push_back({whose.first, row.next});
    }
  }
  return claims;
}

std::vector<ports::WatermarkState> MemoryInbox::advance_watermarks(std::span<const ports::WatermarkUpdate> updates) {
  const std::lock_guard lock(state_->mutex);
  state_->require_available();
  std::vector<ports::WatermarkState> states;
  for (const ports::WatermarkUpdate& update : updates) {
    FenceRow* const row = state_->find_owned(update.fence);
    if (row == nullptr) {
      states.push_back(ports::WatermarkState::not_ours);
      continue;
    }
    auto& watermark = row->watermark;
    const bool behind = watermark < update.known;  // absent is the lowest value
    if (!behind) watermark = std::max(watermark.value_or(update.watermark), update.watermark);
    states.push_back(behind ? ports::WatermarkState::behind : ports::WatermarkState::moved);
  }
  return states;
}

std::int32_t MemoryInbox::begin_incarnation(const Fence& fence, Offset first, std::int32_t at_least) {
  const std::lock_guard lock(state_->mutex);
  state_->require_available();
  FenceRow& row = state_->owned(fence);
  row.watermark = first;
  return row.incarnation = std::max(row.incarnation + 1, at_least);
}

bool MemoryInbox::record_dead(const ports::DeadMessage& message) {
  const std::lock_guard lock(state_->mutex);
  state_->require_available();
  const FenceRow& fence = state_->owned(message.fence);
  if (message.retry) state_->end_retry(message.handler, *message.retry);
  return state_->dead
      .try_emplace({message.handler, message.fence.slot, fence.incarnation, message.record.offset}, message)
      .second;
}

std::set<Offset> MemoryInbox::dead_between(HandlerId handler, const Fence& fence, Offset first, Offset last,
                                           std::optional<DeadReason> reason) {
  const std::lock_guard lock(state_->mutex);
  state_->require_available();
  std::set<Offset> offsets;
  const auto row = state_->fences.find(fence.slot);
  if (row == state_->fences.end() || fence.history != state_->history) return offsets;
  const std::int32_t incarnation = row->second.incarnation;
  const auto end = state_->dead.upper_bound({handler, fence.slot, incarnation, last});
  for (auto it = state_->dead.lower_bound({handler, fence.slot, incarnation, first}); it != end; ++it)
    if (!reason || it->second.reason == *reason) offsets.insert(std::get<Offset>(it->first));
  return offsets;
}

KeptIds MemoryInbox::keep_ids(HandlerId handler, std::optional<std::chrono::seconds> keep_for) {
  const std::lock_guard lock(state_->mutex);
  state_->require_available();
  auto& longest = state_->kept.try_emplace(handler, keep_for).first->second;
  if (!keep_for) longest.reset();
  else if (longest) longest = std::max(*longest, *keep_for);
  return {longest, std::nullopt};
}

ports::PurgeStep MemoryInbox::purge_step(std::int64_t) {
  const std::lock_guard lock(state_->mutex);
  state_->require_available();
  for (auto at = state_->claims.begin(); at != state_->claims.end();) {
    ClaimRow& row = at->second;
    const bool lapsed =
        row.state == ClaimRow::State::claimed && !row.begun && row.expires < std::chrono::steady_clock::now();
    if (lapsed && row.fence > 1) row.state = ClaimRow::State::failed;
    at = lapsed && row.fence == 1 ? state_->claims.erase(at) : std::next(at);
  }
  return {0, std::chrono::hours(24), false};
}

}  // namespace turnstile::testing
