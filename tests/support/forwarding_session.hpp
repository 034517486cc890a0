#pragma once
// A session that forwards every call. A test overrides the calls that it wants to observe or change.

#include <memory>
#include <utility>

#include "turnstile/ports/inbox.hpp"

namespace turnstile::test {

class ForwardingSession : public ports::InboxSession {
 public:
  explicit ForwardingSession(std::unique_ptr<ports::InboxSession> inner) : inner_(std::move(inner)) {}

  std::vector<ports::Admission> begin(const ports::InboxScope& scope,
                                      std::span<const ports::InboxEntry> entries) override {
    return inner_->begin(scope, entries);
  }
  std::vector<ports::Admission> begin_shared(const ports::InboxScope& scope,
                                             std::span<const ports::InboxShare> shares) override {
    return inner_->begin_shared(scope, shares);
  }
  Transaction& transaction() override { return inner_->transaction(); }
  void at_message(std::size_t index) override { inner_->at_message(index); }
  bool undo_message() noexcept override { return inner_->undo_message(); }
  void respond(const MessageId& id, std::string_view body) override { inner_->respond(id, body); }
  void publish(const OwnedMessage& message, const MessageId& id) override { inner_->publish(message, id); }
  std::vector<ports::RetryTurn> retry_turns(std::span<const ports::RetryQuestion> questions) override {
    return inner_->retry_turns(questions);
  }
  void write_retries(const ports::RetryChanges& changes) override { inner_->write_retries(changes); }
  void announce(const ports::InboxScope& scope, std::span<const ports::InboxEntry> entries) noexcept override {
    inner_->announce(scope, entries);
  }
  void commit() override { inner_->commit(); }
  void rollback() noexcept override { inner_->rollback(); }
  ports::Standing standing() noexcept override { return inner_->standing(); }
  std::vector<bool> settled(HandlerId handler, const std::optional<Fence>& fence,
                            std::span<const MessageId> ids) override {
    return inner_->settled(handler, fence, ids);
  }
  std::vector<std::optional<std::string>> responses(HandlerId handler, std::span<const MessageId> ids) override {
    return inner_->responses(handler, ids);
  }

 protected:
  [[nodiscard]] ports::InboxSession& inner() noexcept { return *inner_; }

 private:
  const std::unique_ptr<ports::InboxSession> inner_;
};

}  // namespace turnstile::test
