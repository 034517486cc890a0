// How a session's transaction begins: its fences are checked, and its ids are taken in.

#include <algorithm>
#include <cstring>
#include <utility>

#include "inbox/calls.hpp"
#include "inbox/session.hpp"
#include "turnstile/error.hpp"
#include "wire/decode.hpp"
#include "wire/encode.hpp"
#include "wire/entries.hpp"

namespace turnstile::postgres {

namespace {

/// How long the function of a trigger can leave other timeouts to later transactions of its connection.
constexpr std::chrono::seconds kTimeoutsLast{1};
/// A batch that finds out costs as much as two.
constexpr std::size_t kContendedBatches = 100;

}  // namespace

std::vector<ports::Admission> Session::begin(const ports::InboxScope& scope,
                                             std::span<const ports::InboxEntry> entries) {
  if (auto admissions = begin_next(scope, entries)) return std::move(*admissions);
  return open(scope, entries, [&] { return admit(scope, entries); });
}

std::vector<ports::Admission> Session::begin_shared(const ports::InboxScope& scope,
                                                    std::span<const ports::InboxShare> shares) {
  std::vector<ports::InboxEntry> entries;
  for (const auto& share : shares) {
    entries.insert(entries.end(), share.entries.begin(), share.entries.end());
    if (share.fence.history == shares.front().fence.history) continue;
    abandon();
    throw_fenced(shares.front().fence);  // the database has one history, so one of the epochs is over
  }
  return open(scope, entries, [&] { return admit_shared(scope, entries, shares); });
}

std::vector<ports::Admission> Session::open(const ports::InboxScope& scope, std::span<const ports::InboxEntry> entries,
                                            const Admit& admit) {
  abandon();
  sort_distinct(entries, order_);
  ended_ = false;
  lost_.reset();
  for (;;) {
    loan_ = shared_->handlers.take();
    const bool may_be_old = loan_->used;
    try {
      expect_answers(scope);
      auto admissions = admit();
      have_answers();
      return admissions;
    } catch (const ConnectionLost& lost) {
      close();
      if (!may_be_old || lost.unanswered) throw_lost(lost);
      // It was lost while idle, as after a restart of the server. Nothing was done, so a new connection can do it.
      shared_->handlers.renew();
    } catch (...) {
      abandon();
      throw;
    }
  }
}

void Session::expect_answers(const ports::InboxScope& scope) {
  loan_->connection.patience(answer_within(shared_->settings, scope.lock_timeout), true);
  watch_.emplace(shared_->settings, loan_->connection, scope.lock_timeout, shared_->cut);
}

void Session::have_answers() {
  watch_.reset();
  loan_->connection.patience(std::nullopt);
}

void Session::send_entries(std::span<const ports::InboxEntry> entries) {
  ArgumentBlock& to = loan_->pipeline.arguments();
  const auto at = [&](std::size_t i) -> const ports::InboxEntry& { return entries[order_[i]]; };
  if (order_.size() == 1) {
    add_uuid(to, at(0).id);
    to.add_int(at(0).offset);
    if (at(0).fingerprint) to.add_int(*at(0).fingerprint);
    else to.add_null(0);
    return;
  }
  add_uuid_array(to, order_.size(), [&](std::size_t i) -> const MessageId& { return at(i).id; });
  add_int8_array(to, order_.size(), [&](std::size_t i) { return std::optional(at(i).offset); });
  if (std::any_of(entries.begin(), entries.end(), [](const auto& entry) { return entry.fingerprint.has_value(); }))
    add_int8_array(to, order_.size(), [&](std::size_t i) { return at(i).fingerprint; });
  else to.add_null(0);
}

void Session::add_timeouts(const ports::InboxScope& scope) {
  ArgumentBlock& to = loan_->pipeline.arguments();
  to.add_int(scope.lock_timeout.count());
  to.add_int(scope.idle_timeout.count());
  to.add_int(scope.handler.value);
}

bool Session::has_own_timeouts(const ports::InboxScope& scope) const {
  const auto& own = loan_->timeouts;
  return own && std::chrono::steady_clock::now() < own->until && own->lock == scope.lock_timeout &&
         own->idle == scope.idle_timeout;
}

bool Session::has_timeouts(const ports::InboxScope& scope) {
  if (has_own_timeouts(scope)) return true;
  const auto now = std::chrono::steady_clock::now();
  const bool lasts = loan_->timeouts && now < loan_->timeouts->until;
  // Those of another handler stay as long as they last: the transactions of both would set them in turn.
  if (!lasts && !loan_->pooled) to_own_ = Link::Timeouts{scope.lock_timeout, scope.idle_timeout, now + kTimeoutsLast};
  return false;
}

void Session::add_own_timeouts() {
  if (!to_own_) return;
  ArgumentBlock& to = loan_->pipeline.arguments();
  to.add_int(to_own_->lock.count());
  to.add_int(to_own_->idle.count());
  to.add_int(PQbackendPID(loan_->connection.raw()));
  loan_->pipeline.add(shared_->statements.own_timeouts, kReset, Pipeline::Keep::text);
}

void Session::note_own_timeouts(const Answers& answers) {
  if (!to_own_ || PQresultStatus(answers.kept.back().get()) != PGRES_TUPLES_OK) return;
  loan_->pooled = PQntuples(answers.kept.back().get()) == 0;
  if (!loan_->pooled) loan_->timeouts = to_own_;
}

void Session::add_scope(const ports::InboxScope& scope) {
  add_timeouts(scope);
  ArgumentBlock& to = loan_->pipeline.arguments();
  to.add_int(scope.fence ? scope.fence->slot : 0);
  add_epoch(to, scope.fence);
}

void Session::start(const ports::InboxScope& scope) {
  handler_ = scope.handler;
  message_ = 0;
  first_failure_.reset();
  doom_.reset();
  marked_ = marked_before_ = role_checked_ = role_named_ = guarded_ = enclosed_ = savepoints_ = touched_ = prepared_ =
      false;
  to_own_.reset();
  loan_->connection.forget_seen();
  requests_.clear();
  loan_->pipeline.next_transaction();
}

void Session::add_begin(const ports::InboxScope& scope) {
  start(scope);
  loan_->pipeline.add(shared_->statements.begin, kCaller);
}

std::vector<ports::Admission> Session::admit(const ports::InboxScope& scope,
                                             std::span<const ports::InboxEntry> entries) {
  add_begin(scope);
  fenced_ = scope.fence.has_value();
  if (numbers_records(scope.mode) && !entries.empty()) return admit_numbered(scope, entries);
  if (order_.size() == 1) {
    send_one(scope, entries);
    return answer_one(scope, entries);
  }
  const Answers answers = take_in(scope, entries);
  const PGresult* rows = answers.kept.back().get();
  if (PQntuples(rows) == 0 && scope.fence) throw_fenced(*scope.fence);
  return admissions_of(rows, scope.handler, entries);
}

void Session::send_one(const ports::InboxScope& scope, std::span<const ports::InboxEntry> entries) {
  Pipeline& pipeline = loan_->pipeline;
  const Statements& sql = shared_->statements;
  if (scope.fence && has_timeouts(scope)) {
    ArgumentBlock& to = pipeline.arguments();
    to.add_int(scope.handler.value);
    to.add_int(scope.fence->slot);
    add_epoch(to, scope.fence);
    send_entries(entries);
    pipeline.add(sql.one_own_timeouts, kCaller, Pipeline::Keep::text);
  } else {
    add_scope(scope);
    send_entries(entries);
    pipeline.add(scope.fence ? sql.fenced.one : sql.free.one, kCaller, Pipeline::Keep::text);
  }
}

/// The number of inserted rows tells whether the id is new: a row that is returned costs PostgreSQL 1.7 µs of 30 (measured).
std::vector<ports::Admission> Session::answer_one(const ports::InboxScope& scope,
                                                  std::span<const ports::InboxEntry> entries) {
  const Answers answers = finish();
  const bool is_fresh = std::strcmp(PQcmdTuples(answers.kept.back().get()), "1") == 0;
  if (!is_fresh && scope.fence && !still_owns(*scope.fence)) throw_fenced(*scope.fence);
  std::vector<ports::Admission> admissions(entries.size(), ports::Admission::duplicate);
  if (is_fresh) admissions[order_.front()] = ports::Admission::fresh;
  compare_fingerprints(scope.handler, entries, admissions);
  return admissions;
}

/// The epochs only grow, so the answer is also right for the statement before.
bool Session::still_owns(const Fence& fence) {
  Pipeline& pipeline = loan_->pipeline;
  pipeline.arguments().add_int(fence.slot);
  add_epoch(pipeline.arguments(), fence);
  pipeline.add(shared_->statements.still_owner, kCaller, Pipeline::Keep::binary);
  return PQntuples(finish().kept.back().get()) > 0;
}

/// Another transaction may store one of the ids meanwhile. That is rare, unless a topic gets each message twice, so the
/// usual statement then fails, and the next batches use the one that waits.
Answers Session::take_in(const ports::InboxScope& scope, std::span<const ports::InboxEntry> entries) {
  Pipeline& pipeline = loan_->pipeline;
  const Statements& sql = shared_->statements;
  const Statements::Admit& admit = scope.fence ? sql.fenced : sql.free;
  const auto add = [&](const std::string& statement) {
    add_scope(scope);
    send_entries(entries);
    pipeline.add(statement, kCaller, Pipeline::Keep::binary);
  };
  if (contended_batches_ == 0) {
    pipeline.add(sql.look_up_by_index, kCaller);
    add(admit.many);
    Answers answers;
    pipeline.finish(answers);
    if (!answers.failure) return answers;
    if (answers.failure->error.sqlstate != kUniqueViolation) throw_failure(*answers.failure);
    contended_batches_ = kContendedBatches;
    pipeline.add("ROLLBACK", kCaller);
    finish();  // a new transaction may drop the statements that are prepared
    add_begin(scope);
  }
  --contended_batches_;
  add(admit.many_contended);
  return finish();
}

std::vector<ports::Admission> Session::admit_shared(const ports::InboxScope& scope,
                                                    std::span<const ports::InboxEntry> entries,
                                                    std::span<const ports::InboxShare> shares) {
  std::vector<Fence> fences;
  std::vector<std::int32_t> slots;
  for (const auto& share : shares) {
    fences.push_back(share.fence);
    slots.insert(slots.end(), share.entries.size(), share.fence.slot);
  }
  // As a claim locks them, so that neither waits for the other in a circle.
  std::sort(fences.begin(), fences.end(), [](const Fence& a, const Fence& b) { return a.slot < b.slot; });
  add_begin(scope);
  fenced_ = true;
  add_timeouts(scope);
  ArgumentBlock& to = loan_->pipeline.arguments();
  const auto of_fences = [&](auto number_of) {
    add_int8_array(to, fences.size(), [&](std::size_t i) { return std::optional<std::int64_t>(number_of(fences[i])); });
  };
  of_fences([](const Fence& fence) { return fence.slot; });
  of_fences([](const Fence& fence) { return fence.epoch.value; });
  add_timestamptz(to, fences.front().history);
  const auto at = [&](std::size_t i) -> const ports::InboxEntry& { return entries[order_[i]]; };
  add_uuid_array(to, order_.size(), [&](std::size_t i) -> const MessageId& { return at(i).id; });
  add_int8_array(to, order_.size(), [&](std::size_t i) { return std::optional(at(i).offset); });
  add_int8_array(to, order_.size(), [&](std::size_t i) { return at(i).fingerprint; });
  add_int8_array(to, order_.size(), [&](std::size_t i) { return std::optional<std::int64_t>(slots[order_[i]]); });
  loan_->pipeline.add(shared_->statements.shared, kCaller, Pipeline::Keep::binary);
  const Answers answers = finish();
  if (PQntuples(answers.kept.back().get()) == 0) throw_fenced(fences.front());
  return admissions_of(answers.kept.back().get(), scope.handler, entries);
}

std::vector<ports::Admission> Session::admissions_of(const PGresult* rows, HandlerId handler,
                                                     std::span<const ports::InboxEntry> entries) {
  std::vector<ports::Admission> admissions(entries.size(), ports::Admission::duplicate);
  PlaceOfId place_of(order_, [&](std::uint32_t entry) -> const MessageId& { return entries[entry].id; });
  for (int row = 0; row < PQntuples(rows); ++row) {
    if (!PQgetisnull(rows, row, 0)) admissions[place_of(id_in(rows, row))] = ports::Admission::fresh;
  }
  compare_fingerprints(handler, entries, admissions);
  return admissions;
}

void Session::compare_fingerprints(HandlerId handler, std::span<const ports::InboxEntry> entries,
                                   std::vector<ports::Admission>& admissions) {
  std::vector<std::uint32_t> asked;
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    if (admissions[i] == ports::Admission::duplicate && entries[i].fingerprint) asked.push_back(i);
  }
  if (asked.empty()) return;
  Pipeline& pipeline = loan_->pipeline;
  pipeline.arguments().add_int(handler.value);
  add_uuid_array(pipeline.arguments(), asked.size(),
                 [&](std::size_t i) -> const MessageId& { return entries[asked[i]].id; });
  pipeline.add(shared_->statements.fingerprints, kCaller, Pipeline::Keep::binary);
  const Answers answers = finish();

  const PGresult* rows = answers.kept.back().get();
  std::vector<std::pair<MessageId, std::int64_t>> stored;
  for (int row = 0; row < PQntuples(rows); ++row) stored.emplace_back(id_in(rows, row), int64_in(rows, row, 1));
  std::sort(stored.begin(), stored.end());
  for (const std::uint32_t i : asked) {
    const auto found = std::lower_bound(stored.begin(), stored.end(), entries[i].id,
                                        [](const auto& kept, const MessageId& id) { return kept.first < id; });
    const bool known = found != stored.end() && found->first == entries[i].id;
    if (known && found->second != *entries[i].fingerprint) admissions[i] = ports::Admission::mismatch;
  }
}

}  // namespace turnstile::postgres
