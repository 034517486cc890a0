#include <algorithm>
#include <utility>

#include "inbox_state.hpp"
#include "turnstile/error.hpp"
#include "turnstile/replay.hpp"

namespace turnstile::testing {

RetryRow* MemoryInbox::State::find_retry(HandlerId handler, const ports::RetryRef& ref) {
  const auto row = retries.find(ref.number);
  const bool expected = row != retries.end() && row->second.handler == handler &&
                        row->second.attempts == ref.attempts && row->second.sent;
  return expected ? &row->second : nullptr;
}

bool MemoryInbox::State::is_key_stored(HandlerId handler, std::string_view key, std::int64_t below,
                                       const std::set<std::int64_t>& except) const {
  return std::any_of(retries.begin(), retries.lower_bound(below), [&](const auto& entry) {
    const RetryRow& row = entry.second;
    return row.handler == handler && row.in_order && row.record.key == key && !except.contains(entry.first);
  });
}

void MemoryInbox::State::add_retry(HandlerId handler, const ports::DeferredRetry& retry,
                                   const std::vector<ports::RetryRef>& settled) {
  const Timestamp due = now() + retry.delay;
  if (retry.back) {
    RetryRow* const row = find_retry(handler, *retry.back);
    if (row == nullptr) return;
    std::set<std::int64_t> gone;
    for (const auto& ref : settled) gone.insert(ref.number);
    row->attempts = retry.attempts;
    row->due = row->in_order && row->record.key && is_key_stored(handler, *row->record.key, retry.back->number, gone)
                   ? std::nullopt
                   : std::optional(due);
    row->sent = false;
    row->error = retry.error;
    return;
  }
  const bool is_there = std::any_of(retries.begin(), retries.end(), [&](const auto& entry) {
    return entry.second.handler == handler && entry.second.id == retry.id;
  });
  if (is_there) return;
  const bool behind = retry.in_order && retry.record.key && is_key_stored(handler, *retry.record.key);
  retries[++retry_numbers] = {.handler = handler,
                              .id = retry.id,
                              .attempts = retry.attempts,
                              .due = behind ? std::nullopt : std::optional(due),
                              .in_order = retry.in_order,
                              .record = retry.record,
                              .error = retry.error};
}

void MemoryInbox::State::end_retry(HandlerId handler, const ports::RetryRef& ref) {
  const RetryRow* const row = find_retry(handler, ref);
  if (row == nullptr) return;
  const RetryRow gone = *row;
  retries.erase(ref.number);
  if (!gone.in_order || !gone.record.key) return;
  bool is_first = true;
  int promoted = 0;
  for (auto& [number, next] : retries) {
    if (next.handler != handler || !next.in_order || next.record.key != gone.record.key) continue;
    if (std::exchange(is_first, false) && next.due && *next.due > now()) return;  // it waits for its next attempt
    if (next.due) continue;
    next.due = now();
    if (++promoted == 2) return;
  }
}

std::size_t MemoryInbox::State::release_retries(std::span<const ports::OutboxShard> shards, std::size_t most) {
  std::size_t moved = 0;
  for (auto& [number, row] : retries) {
    if (moved == most) break;
    if (row.sent || !row.due || *row.due > now()) continue;
    OwnedMessage message = row.record;
    const auto handler = std::find_if(handlers.begin(), handlers.end(),
                                      [&, of = row.handler](const auto& entry) { return entry.second == of; });
    message.headers.push_back({std::string(kReplayedFrom), to_string(TopicPartition{message.topic, message.partition}) +
                                                               "@" + std::to_string(message.offset)});
    message.headers.push_back({std::string(kReplayedFor), handler->first});
    if (const auto group = first_groups.find(row.handler); group != first_groups.end())
      message.headers.push_back({std::string(kReplayedGroup), group->second});
    message.headers.push_back({std::string(kRetry), ports::RetryRef{number, row.attempts}.text()});
    auto record = outbox_record(message, row.id);
    if (std::find(shards.begin(), shards.end(), record.shard) == shards.end()) continue;
    row.sent = true;
    put_out(std::move(record));
    ++moved;
  }
  return moved;
}

std::optional<Timestamp> MemoryInbox::State::next_retry() const {
  std::optional<Timestamp> next;
  for (const auto& [number, row] : retries) {
    if (!row.sent && row.due) next = next ? std::min(*next, *row.due) : *row.due;
  }
  return next;
}

std::vector<ports::RetryTurn> MemorySession::retry_turns(std::span<const ports::RetryQuestion> questions) {
  require_open();
  Lock lock(state_->mutex);
  check_still_there(lock);
  std::set<std::int64_t> back;
  const auto expected = [&](const ports::RetryQuestion& question) {
    const RetryRow* const row = question.back ? state_->find_retry(scope_.handler, *question.back) : nullptr;
    return row != nullptr && row->id == question.id ? row : nullptr;
  };
  std::vector<ports::RetryTurn> turns;
  for (const auto& question : questions) {
    const bool is_stored = std::any_of(state_->retries.begin(), state_->retries.end(), [&](const auto& entry) {
      return entry.second.handler == scope_.handler && entry.second.id == question.id;
    });
    if (question.back) {
      const RetryRow* const row = expected(question);
      const bool behind = row != nullptr && row->in_order && row->record.key &&
                          state_->is_key_stored(scope_.handler, *row->record.key, question.back->number, back);
      turns.push_back(row == nullptr ? ports::RetryTurn::over
                      : behind       ? ports::RetryTurn::behind
                                     : ports::RetryTurn::runs);
      // An earlier message that comes after this one in the batch does not run before it.
      if (row != nullptr) back.insert(question.back->number);
    } else if (is_stored) {
      turns.push_back(ports::RetryTurn::stored);
    } else {
      const bool behind = question.key && state_->is_key_stored(scope_.handler, *question.key);
      turns.push_back(behind ? ports::RetryTurn::behind : ports::RetryTurn::runs);
    }
  }
  return turns;
}

void MemorySession::write_retries(const ports::RetryChanges& changes) {
  require_open();
  if (slots_.empty()) throw Error(Code::api_misused, "write_retries() needs a transaction with a fence");
  retries_ = changes;
}

}  // namespace turnstile::testing
