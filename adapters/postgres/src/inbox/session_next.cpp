// The start of the transaction that was announced, sent behind the COMMIT before it. The server runs it while the client
// settles the message that was committed, which saves a round trip for each message.

#include "inbox/session.hpp"

namespace turnstile::postgres {

void Session::announce(const ports::InboxScope& scope, std::span<const ports::InboxEntry> entries) noexcept {
  next_.reset();
  const bool is_usual = scope.fence && scope.mode == Mode::transactional && entries.size() == 1;
  if (is_usual && !entries.front().request) next_ = Next{scope, entries.front()};
}

/// Not if the session must be reset, or may have become another one: a pooler lends it to others after COMMIT. If a
/// savepoint or libpqxx was used, an error of the handler is not certain to have aborted the transaction.
bool Session::may_send_next() const {
  return next_ && !touched_ && !to_own_ && !bridge_ && !guarded_ && !savepoints_ && !loan_->pipeline.drops_prepared() &&
         has_own_timeouts(next_->scope);
}

/// It has a Sync of its own, so it runs whether COMMIT succeeds or not. After an error before COMMIT it is refused, as the
/// transaction before it is still open and aborted.
void Session::send_next() {
  order_.assign(1, 0);
  start(next_->scope);
  fenced_ = true;
  next_->sent = true;
  send_one(next_->scope, {&next_->entry, 1});
  loan_->pipeline.send_all();
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
  next_.reset();
  try {
    loan_->connection.patience(answer_within(shared_->settings, scope.lock_timeout));
    auto admissions = answer_one(scope, entries);
    loan_->connection.patience(std::nullopt);
    return admissions;
  } catch (const ConnectionLost& lost) {
    close();
    if (lost.unanswered) throw_lost(lost);
    shared_->handlers.renew();
    return std::nullopt;  // nothing was done
  } catch (...) {
    rollback();
    throw;
  }
}

}  // namespace turnstile::postgres
