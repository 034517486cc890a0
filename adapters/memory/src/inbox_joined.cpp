// Ids in a transaction that is open already, and the data of a single id.

#include "inbox_state.hpp"
#include "turnstile/error.hpp"

namespace turnstile::testing {

namespace {

class JoinedSession final : public ports::InboxSession {
 public:
  explicit JoinedSession(MemorySession& of) : of_(of) {}
  std::vector<ports::Admission> begin(const ports::InboxScope& scope,
                                      std::span<const ports::InboxEntry> entries) override {
    if (scope.fence || numbers_records(scope.mode)) refuse_fences();
    handler_ = scope.handler;
    return of_.admit(scope, entries);
  }
  std::vector<ports::Admission> begin_shared(const ports::InboxScope&, std::span<const ports::InboxShare>) override {
    refuse_fences();
  }
  Transaction& transaction() override { return of_; }
  void at_message(std::size_t) override {}
  bool undo_message() noexcept override { return false; }
  void respond(const MessageId& id, std::string_view body) override { of_.respond(handler_, id, body); }
  void publish(const OwnedMessage& message, const MessageId& id) override { of_.publish(message, id); }
  std::vector<ports::RetryTurn> retry_turns(std::span<const ports::RetryQuestion>) override { refuse_retries(); }
  void write_retries(const ports::RetryChanges&) override { refuse_retries(); }
  void commit() override {}
  void rollback() noexcept override {}
  ports::Standing standing() noexcept override { return of_.standing(); }
  std::vector<bool> settled(HandlerId handler, const std::optional<Fence>& fence,
                            std::span<const MessageId> ids) override {
    return of_.settled(handler, fence, ids);
  }
  std::vector<std::optional<std::string>> responses(HandlerId handler, std::span<const MessageId> ids) override {
    return of_.responses(handler, ids);
  }

 private:
  [[noreturn]] static void refuse_fences() {
    throw Error(Code::api_misused, "join() records ids in the caller's own transaction, which cannot be fenced");
  }
  [[noreturn]] static void refuse_retries() {
    throw Error(Code::api_misused, "join(): the caller's own transaction has no stored retries");
  }
  MemorySession& of_;
  HandlerId handler_{};
};

}  // namespace

std::unique_ptr<ports::InboxSession> MemoryInbox::join(Transaction& transaction) {
  auto* session = dynamic_cast<MemorySession*>(&transaction);
  if (session == nullptr) throw Error(Code::api_misused, "join(): the memory inbox did not open this transaction");
  return std::make_unique<JoinedSession>(*session);
}

std::optional<Recorded> MemoryInbox::find(HandlerId handler, const MessageId& id) {
  const std::lock_guard lock(state_->mutex);
  state_->require_available();
  const InboxKey key{handler, id};
  const auto kept = state_->ids.find(key);
  if (kept == state_->ids.end()) return std::nullopt;
  const auto response = state_->responses.find(key);
  return Recorded{kept->second, response == state_->responses.end() ? std::nullopt : std::optional(response->second)};
}

}  // namespace turnstile::testing
