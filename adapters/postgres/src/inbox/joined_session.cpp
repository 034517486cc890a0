#include "inbox/joined_session.hpp"

#include <algorithm>
#include <numeric>

#include "inbox/outbox.hpp"
#include "turnstile/error.hpp"
#include "wire/errors.hpp"
#include "wire/text.hpp"

namespace turnstile::postgres {

namespace {

Param bytes(std::string_view text) { return {std::as_bytes(std::span(text))}; }

class JoinedSession final : public ports::InboxSession {
 public:
  JoinedSession(std::shared_ptr<Shared> shared, Transaction& transaction)
      : shared_(std::move(shared)), transaction_(transaction) {}

  std::vector<ports::Admission> begin(const ports::InboxScope& scope,
                                      std::span<const ports::InboxEntry> entries) override;
  std::vector<ports::Admission> begin_shared(const ports::InboxScope&, std::span<const ports::InboxShare>) override {
    refuse_fences();
  }
  Transaction& transaction() override { return transaction_; }
  void at_message(std::size_t) override {}
  bool undo_message() noexcept override { return false; }
  void respond(const MessageId& id, std::string_view body) override;
  void publish(const OwnedMessage& message, const MessageId& id) override;
  std::vector<ports::RetryTurn> retry_turns(std::span<const ports::RetryQuestion>) override { refuse_retries(); }
  void write_retries(const ports::RetryChanges&) override { refuse_retries(); }
  void commit() override {}
  void rollback() noexcept override {}
  ports::Standing standing() noexcept override {
    return ports::Standing::sound;
  }  // the owner of the transaction knows its state
  std::vector<bool> settled(HandlerId handler, const std::optional<Fence>& fence,
                            std::span<const MessageId> ids) override;
  std::vector<std::optional<std::string>> responses(HandlerId handler, std::span<const MessageId> ids) override;

 private:
  Rows look_up(HandlerId handler, const MessageId& id) {
    return exec(shared_->statements.find, handler.value, id.text());
  }
  /// Runs Turnstile's statements in the caller's transaction. If the server refuses one because of its data or a
  /// damaged table, the caller's data cannot be the reason.
  template <class... P>
  Rows exec(const std::string& sql, const P&... params) {
    try {
      return transaction_.exec(sql, params...);
    } catch (const DeferredSqlError&) {
      throw;  // a statement of the caller, which was sent first
    } catch (const SqlError& error) {
      for (const char* ours : {"22", "23", "P0", "XX"}) {
        if (error.sqlstate.starts_with(ours))
          throw_store_error({error.sqlstate, error.what()}, shared_->settings.schema, "");
      }
      throw;
    }
  }
  bool other_body(HandlerId handler, const ports::InboxEntry& entry);
  [[noreturn]] static void refuse_fences() {
    throw Error(Code::api_misused, "join() records ids in the caller's own transaction, which cannot be fenced");
  }
  [[noreturn]] static void refuse_retries() {
    throw Error(Code::api_misused, "join(): the caller's own transaction has no stored retries");
  }

  std::shared_ptr<Shared> shared_;
  Transaction& transaction_;
  HandlerId handler_{};
};

std::vector<ports::Admission> JoinedSession::begin(const ports::InboxScope& scope,
                                                   std::span<const ports::InboxEntry> entries) {
  if (scope.fence || numbers_records(scope.mode)) refuse_fences();
  handler_ = scope.handler;
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // In the order of ids, so that two transactions with the same ids do not deadlock (hazard: insert-order).
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return entries[a].id < entries[b].id; });
  std::vector<ports::Admission> admissions(entries.size());
  for (const std::size_t i : order) {
    const ports::InboxEntry& entry = entries[i];
    const Rows rows = exec(shared_->statements.join, handler_.value, entry.id.text(), entry.offset, entry.fingerprint);
    if (rows.affected() == 1) admissions[i] = ports::Admission::fresh;
    else admissions[i] = other_body(handler_, entry) ? ports::Admission::mismatch : ports::Admission::duplicate;
  }
  return admissions;
}

bool JoinedSession::other_body(HandlerId handler, const ports::InboxEntry& entry) {
  if (!entry.fingerprint) return false;
  const Rows rows = look_up(handler, entry.id);
  return !rows.empty() && rows.at(0, 0) && entry.differs_from(rows.get<std::int64_t>(0, 0));
}

void JoinedSession::respond(const MessageId& id, std::string_view body) {
  exec(shared_->statements.respond, handler_.value, id.text(), bytes(body));
}

void JoinedSession::publish(const OwnedMessage& message, const MessageId& id) {
  std::vector<std::string> names, values;
  for (const Header& header : message.headers) {
    names.push_back(hex(header.name));
    values.push_back(header.value ? hex(*header.value) : "-");
  }
  const auto optional_bytes = [](const std::optional<std::string>& text) {
    return text ? bytes(*text) : Param(std::nullopt);
  };
  if (is_scheduled_now(message)) {
    exec(shared_->statements.schedule_text, outbox_shard(message, id), id.text(), message.topic,
         optional_bytes(message.key), optional_bytes(message.payload), names, values,
         message.not_before->time_since_epoch().count());
  } else {
    exec(shared_->statements.publish_text, outbox_shard(message, id), id.text(), message.topic,
         optional_bytes(message.key), optional_bytes(message.payload), names, values);
  }
}

std::vector<bool> JoinedSession::settled(HandlerId handler, const std::optional<Fence>&,
                                         std::span<const MessageId> ids) {
  std::vector<bool> found;
  for (const MessageId& id : ids) found.push_back(!look_up(handler, id).empty());
  return found;
}

std::vector<std::optional<std::string>> JoinedSession::responses(HandlerId handler, std::span<const MessageId> ids) {
  std::vector<std::optional<std::string>> found;
  for (const MessageId& id : ids) {
    const Rows rows = look_up(handler, id);
    found.push_back(rows.empty() ? std::nullopt : bytes_at(rows, 0, 1));
  }
  return found;
}

}  // namespace

std::unique_ptr<ports::InboxSession> join(std::shared_ptr<Shared> shared, Transaction& transaction) {
  return std::make_unique<JoinedSession>(std::move(shared), transaction);
}

}  // namespace turnstile::postgres
