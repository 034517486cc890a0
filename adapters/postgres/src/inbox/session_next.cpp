// A transaction of one message that the end of the one before it starts (COMMIT AND CHAIN). It saves a round trip, and
// BEGIN.

#include "inbox/session.hpp"
#include "turnstile/error.hpp"

namespace turnstile::postgres {

namespace {

/// now() is the time at which the COMMIT before it was sent. A COMMIT can wait for a disk or a replica for longer.
constexpr std::chrono::milliseconds kOldest{100};

}  // namespace

void Session::announce(const ports::InboxScope& scope, std::span<const ports::InboxEntry> entries) noexcept {
  next_.reset();
  const bool is_usual = scope.fence && scope.mode == Mode::transactional && entries.size() == 1;
  if (is_usual && !entries.front().request) next_ = Next{scope, entries.front()};
}

/// Not if the session must be reset, or may have become another one: a pooler lends it to others after COMMIT. If a
/// savepoint or libpqxx was used, an error of the handler is not certain to have aborted the transaction.
bool Session::may_chain() const {
  return next_ && !touched_ && !to_own_ && !bridge_ && !guarded_ && !savepoints_ && !loan_->pipeline.drops_prepared() &&
         has_own_timeouts(next_->scope);
}

/// Before the Sync of COMMIT. After an error no statement runs up to a Sync, so it never runs outside a transaction, where
/// the id would stay without its effect. The server sends its answers at the Sync: if another transaction stores the same
/// id, the answer to COMMIT waits for that one, too.
void Session::add_next() {
  order_.assign(1, 0);
  start(next_->scope);
  fenced_ = true;
  next_->sent = std::chrono::steady_clock::now();
  send_one(next_->scope, {&next_->entry, 1});
}

void Session::rollback() noexcept {
  try {
    if (loan_ && !is_sent() && may_chain() && !loan_->connection.lost() && !doom_) {
      Pipeline& pipeline = loan_->pipeline;
      pipeline.drop_unsent();
      pipeline.add("ROLLBACK AND CHAIN", kCaller);
      add_next();
      return pipeline.send_all();
    }
  } catch (...) {
    // The connection is lost, or there is no memory.
  }
  abandon();
}

std::optional<std::vector<ports::Admission>> Session::begin_next(const ports::InboxScope& scope,
                                                                 std::span<const ports::InboxEntry> entries) {
  if (!is_sent() || entries.size() != 1) return std::nullopt;
  const ports::InboxScope& sent = next_->scope;
  const ports::InboxEntry& entry = next_->entry;
  const bool is_same = sent.handler == scope.handler && sent.fence == scope.fence && sent.mode == scope.mode &&
                       sent.lock_timeout == scope.lock_timeout && sent.idle_timeout == scope.idle_timeout &&
                       entry.id == entries.front().id && entry.offset == entries.front().offset &&
                       entry.fingerprint == entries.front().fingerprint;
  if (!is_same) return std::nullopt;
  const auto since = *next_->sent;
  next_.reset();
  try {
    expect_answers(scope);
    auto admissions = answer_one(scope, entries);
    have_answers();
    const bool is_fresh = admissions.front() == ports::Admission::fresh;
    if (!is_fresh || std::chrono::steady_clock::now() - since <= kOldest) return admissions;
    abandon();
  } catch (const ConnectionLost& lost) {
    close();
    if (lost.unanswered) throw_lost(lost);
    shared_->handlers.renew();
  } catch (const Fenced&) {
    abandon();
    throw;
  } catch (const StoreBusy&) {
    abandon();
    throw;
  } catch (const Error&) {
    abandon();  // BEGIN does not take over what a trigger has made of the transaction before, such as read-only
  }
  return std::nullopt;  // nothing was done
}

}  // namespace turnstile::postgres
