#include <algorithm>
#include <utility>

#include "inbox_state.hpp"
#include "turnstile/error.hpp"
#include "turnstile/ports/handler_sql.hpp"
#include "turnstile/ports/param_text.hpp"

namespace turnstile::testing {

namespace {

Statement record(std::string_view sql, std::span<const Param> params, bool deferred, std::size_t message) {
  Statement statement{std::string(sql), {}, deferred, message};
  ports::each_param(params, [&](const Param& param) { statement.params.push_back(ports::param_text(param)); });
  return statement;
}

}  // namespace

std::vector<ports::Admission> MemorySession::begin(const ports::InboxScope& scope,
                                                   std::span<const ports::InboxEntry> entries) {
  return open(scope, scope.fence ? std::span<const Fence>(&*scope.fence, 1) : std::span<const Fence>(), entries);
}

std::vector<ports::Admission> MemorySession::begin_shared(const ports::InboxScope& scope,
                                                          std::span<const ports::InboxShare> shares) {
  std::vector<Fence> fences;
  std::vector<ports::InboxEntry> entries;
  for (const auto& share : shares) {
    fences.push_back(share.fence);
    entries.insert(entries.end(), share.entries.begin(), share.entries.end());
  }
  return open(scope, fences, entries);
}

std::vector<ports::Admission> MemorySession::open(const ports::InboxScope& scope, std::span<const Fence> fences,
                                                  std::span<const ports::InboxEntry> entries) {
  rollback();
  Lock lock(state_->mutex);
  state_->require_available();
  if (!state_->begin_faults.empty()) {
    const auto fault = state_->begin_faults.front();
    state_->begin_faults.pop_front();
    std::rethrow_exception(fault);
  }
  for (const Fence& fence : fences) state_->owned(fence);  // throws before any is held
  for (const Fence& fence : fences) {
    ++state_->owned(fence).sharers;
    slots_.push_back(fence.slot);
  }
  open_ = true;
  lost_ = false;
  outage_ = state_->outages;
  history_ = state_->history;
  scope_ = scope;
  message_ = 0;
  try {
    if (numbers_records(scope.mode) && !entries.empty()) return admit_numbered(entries, lock);
    return admit(scope, entries, lock);
  } catch (...) {
    if (lock) lock.unlock();
    rollback();
    throw;
  }
}

std::vector<ports::Admission> MemorySession::admit(const ports::InboxScope& scope,
                                                   std::span<const ports::InboxEntry> entries) {
  require_open();
  Lock lock(state_->mutex);
  return admit(scope, entries, lock);
}

std::vector<ports::Admission> MemorySession::admit(const ports::InboxScope& scope,
                                                   std::span<const ports::InboxEntry> entries, Lock& lock) {
  const auto before = mine_;
  acquire(scope, entries, lock);
  std::vector<ports::Admission> admissions;
  std::set<MessageId> seen;
  for (const ports::InboxEntry& entry : entries) {
    const InboxKey key{scope.handler, entry.id};
    const auto mine = mine_.find(key);
    if (mine != mine_.end() && !before.contains(key) && seen.insert(entry.id).second) {
      admissions.push_back(ports::Admission::fresh);
      continue;
    }
    const auto& kept = mine != mine_.end() ? mine->second : state_->ids.at(key);
    admissions.push_back(entry.differs_from(kept) ? ports::Admission::mismatch : ports::Admission::duplicate);
  }
  return admissions;
}

/// Takes the ids that are not there, in the order of ids. Waits for concurrent transactions that have them
/// (hazard: blocked-insert, insert-order).
void MemorySession::acquire(const ports::InboxScope& scope, std::span<const ports::InboxEntry> entries, Lock& lock) {
  std::map<InboxKey, std::optional<std::int64_t>> wanted;
  for (const ports::InboxEntry& entry : entries) wanted.try_emplace({scope.handler, entry.id}, entry.fingerprint);
  for (const auto& [key, fingerprint] : wanted) {
    const bool free = state_->changed.wait_for(lock, scope.lock_timeout, [&, &sought = key] {
      return !state_->pending.contains(sought) || mine_.contains(sought);
    });
    if (!free) throw StoreBusy("an open transaction holds the same id (SQLSTATE 55P03)");
    check_still_there(lock);
    if (state_->ids.contains(key) || mine_.contains(key)) continue;
    state_->pending.insert(key);
    mine_.emplace(key, fingerprint);
  }
}

void MemorySession::require_open() {
  if (!open_) throw Error(Code::api_misused, "no transaction is open: it was committed, rolled back or lost before");
}

void MemorySession::check_still_there(Lock&) {
  if (outage_ == state_->outages && !state_->unavailable) return;
  lost_ = true;
  throw StoreUnavailable("the store was made unavailable by the test");
}

void MemorySession::throw_spoiled() {
  if (failure_is_deferred_) std::rethrow_exception(failure_);
  try {
    std::rethrow_exception(failure_);
  } catch (const SqlError& error) {
    throw SqlError(
        std::string(
            "a statement failed, but the handler continued, so its transaction cannot be committed (SQLSTATE 25P02): ") +
            error.what(),
        "25P02");
  }
}

void MemorySession::at_message(std::size_t index) {
  message_ = index;
  message_mark_ = {executed_, deferred_.size(), published_.size(), responses_};
}

bool MemorySession::undo_message() noexcept {
  if (!open_ || lost_ || failure_ || executed_ != message_mark_.executed) return false;
  deferred_.resize(message_mark_.deferred);
  published_.resize(message_mark_.published);
  responses_ = message_mark_.responses;
  return true;
}

Rows MemorySession::execute(const Statement& statement) {
  ++executed_;
  try {
    std::optional<Rows> answer;
    decltype(state_->hook) hook;
    {
      Lock lock(state_->mutex);
      check_still_there(lock);
      hook = state_->hook;
    }
    if (hook) answer = hook(statement);
    const Lock lock(state_->mutex);
    if (!answer) {
      if (const auto failing = state_->failures.find(statement.sql); failing != state_->failures.end()) {
        throw SqlError("made to fail by the test (SQLSTATE " + failing->second + ")", failing->second);
      }
      const auto scripted = state_->answers.find(statement.sql);
      answer = scripted == state_->answers.end() ? Rows(0, 1) : scripted->second;
    }
    done_.push_back(statement);
    return *answer;
  } catch (const StoreUnavailable&) {
    lost_ = true;
    rollback();
    throw;
  } catch (const SqlError& error) {
    failure_is_deferred_ = statement.deferred;
    failure_ = statement.deferred
                   ? std::make_exception_ptr(DeferredSqlError(error.what(), error.sqlstate, statement.message))
                   : std::current_exception();
    std::rethrow_exception(failure_);
  } catch (...) {
    failure_is_deferred_ = true;  // a deadlock is no message's fault: commit() throws it again
    failure_ = std::current_exception();
    throw;
  }
}

void MemorySession::flush() {
  const auto deferred = std::exchange(deferred_, {});
  for (const Statement& statement : deferred) execute(statement);
}

Rows MemorySession::run(std::string_view sql, std::span<const Param> params) {
  require_open();
  ports::check_handler_sql(sql);
  const Statement statement = record(sql, params, false, message_);
  if (failure_) throw SqlError("the transaction is aborted by an earlier error (SQLSTATE 25P02)", "25P02");
  flush();
  return execute(statement);
}

void MemorySession::queue(std::string_view sql, std::span<const Param> params) {
  require_open();
  ports::check_handler_sql(sql);
  deferred_.push_back(record(sql, params, true, message_));
}

void MemorySession::respond(const MessageId& id, std::string_view body) { respond(scope_.handler, id, body); }

void MemorySession::respond(HandlerId handler, const MessageId& id, std::string_view body) {
  require_open();
  responses_[{handler, id}] = body;
}

void MemorySession::publish(const OwnedMessage& message, const MessageId& id) {
  require_open();
  published_.push_back(outbox_record(message, id));
}

void MemorySession::commit() {
  require_open();
  try {
    if (failure_) throw_spoiled();
    flush();
    Lock lock(state_->mutex);
    check_still_there(lock);
    std::optional<CommitFault> fault;
    if (!state_->commit_faults.empty()) {
      fault = state_->commit_faults.front();
      state_->commit_faults.pop_front();
    }
    lock.unlock();
    if (fault == CommitFault::unavailable) throw StoreUnavailable("made unavailable by the test");
    if (fault == CommitFault::busy) throw StoreBusy("made busy by the test (SQLSTATE 40P01)");
    if (fault) {
      const auto ids = kept_ids();
      end(*fault == CommitFault::in_doubt_committed);
      lock.lock();
      if (fault == CommitFault::in_doubt_elsewhere) state_->ids.insert(ids.begin(), ids.end());
      if (fault == CommitFault::in_doubt_outage) {
        ++state_->outages;
        state_->unavailable = true;
      }
      throw CommitInDoubt("the answer to COMMIT was lost by the test");
    }
    end(true);
  } catch (...) {
    rollback();
    throw;
  }
}

void MemorySession::rollback() noexcept {
  if (open_) end(false);
}

ports::Standing MemorySession::standing() noexcept {
  const std::lock_guard lock(state_->mutex);
  if (lost_) return ports::Standing::lost;
  if (open_ && outage_ != state_->outages) return ports::Standing::lost_unseen;
  return open_ && !failure_ ? ports::Standing::sound : ports::Standing::failed;
}

void MemorySession::end(bool commit) noexcept {
  {
    const std::lock_guard lock(state_->mutex);
    if (history_ == state_->history) end_in_state(commit);
    else ++state_->rollbacks;  // the store went back to an earlier time, and does not know this transaction
  }
  state_->changed.notify_all();
  open_ = false;
  slots_.clear();
  mine_.clear();
  moves_to_.reset();
  book_ = {};
  requests_.clear();
  responses_.clear();
  published_.clear();
  retries_ = {};
  done_.clear();
  deferred_.clear();
  failure_ = nullptr;
}

/// The ids that the inbox has after the commit.
std::map<InboxKey, std::optional<std::int64_t>> MemorySession::kept_ids() const {
  auto ids = mine_;
  for (const MessageId& id : retries_.taken_back) ids.erase({scope_.handler, id});
  for (const auto& retry : retries_.deferred) ids.erase({scope_.handler, retry.id});
  return ids;
}

/// Call it with the mutex held.
void MemorySession::end_in_state(bool commit) {
  for (auto& [key, fingerprint] : mine_) state_->pending.erase(key);
  if (commit) state_->ids.merge(kept_ids());
  if (moves_to_) end_numbered(commit);
  if (commit) {
    for (auto& [key, body] : responses_) state_->responses[key] = std::move(body);
    for (ports::OutboxRecord& published : published_) state_->put_out(std::move(published));
    for (const auto& retry : retries_.deferred) state_->add_retry(scope_.handler, retry, retries_.settled);
    for (const auto& ref : retries_.settled) state_->end_retry(scope_.handler, ref);
    state_->committed.insert(state_->committed.end(), done_.begin(), done_.end());
  }
  ++(commit ? state_->commits : state_->rollbacks);
  for (const std::int32_t slot : slots_) --state_->fences.at(slot).sharers;
}

std::vector<bool> MemorySession::settled(HandlerId handler, const std::optional<Fence>& fence,
                                         std::span<const MessageId> ids) {
  const std::lock_guard lock(state_->mutex);
  state_->require_available();
  const bool ours = !fence || fence->history == state_->history;
  std::vector<bool> found;
  for (const MessageId& id : ids) found.push_back(ours && state_->ids.contains({handler, id}));
  return found;
}

/// Call it with the mutex held.
std::optional<std::string> MemorySession::kept_response(const InboxKey& key) const {
  const auto request = requests_.find(key.second);
  if (request != requests_.end()) {
    const auto kept = state_->request_responses.find({window_of(request->second.producer), request->second.number});
    return kept == state_->request_responses.end() ? std::nullopt : std::optional(kept->second);
  }
  const auto kept = state_->responses.find(key);
  return kept == state_->responses.end() ? std::nullopt : std::optional(kept->second);
}

std::vector<std::optional<std::string>> MemorySession::responses(HandlerId handler, std::span<const MessageId> ids) {
  const std::lock_guard lock(state_->mutex);
  state_->require_available();
  std::vector<std::optional<std::string>> found;
  for (const MessageId& id : ids) {
    const auto mine = responses_.find({handler, id});
    if (mine != responses_.end()) found.emplace_back(mine->second);
    else found.push_back(kept_response({handler, id}));
  }
  return found;
}

}  // namespace turnstile::testing
