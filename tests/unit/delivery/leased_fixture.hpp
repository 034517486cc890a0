#pragma once
// A topic in mode leased on the memory twin, and a store that loses answers.

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <thread>

#include "delivery/topic_runner.hpp"
#include "message/message_id.hpp"
#include "tests/support/captured_log.hpp"
#include "tests/support/eventually.hpp"
#include "turnstile/decorators.hpp"
#include "turnstile/error.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/testing/inbox.hpp"

namespace turnstile::test {

using namespace std::chrono_literals;
using turnstile::testing::MemoryBroker;
using turnstile::testing::MemoryInbox;
using Kind = detail::Verdict::Kind;

/// Loses answers, and stays away, as told. What is lost has been done.
class LossyClaims final : public ports::Claims {
 public:
  explicit LossyClaims(std::shared_ptr<ports::Claims> inner) : inner_(std::move(inner)) {}
  std::vector<ports::Claim> claim(const ports::ClaimScope& scope, std::span<const ports::InboxEntry> entries) override {
    auto claims = inner_->claim(scope, entries);
    if (lose_claims > 0 && lose_claims-- > 0) throw StoreUnavailable("the answer was lost");
    return claims;
  }
  std::vector<bool> begin(HandlerId handler, const MessageId& owner, std::span<const ports::HeldClaim> held) override {
    begun += static_cast<int>(held.size());
    if (begins_fail) throw StoreUnavailable("away");
    return inner_->begin(handler, owner, held);
  }
  std::vector<bool> end(HandlerId handler, const MessageId& owner, std::span<const ports::ClaimEnd> ends) override {
    ++end_calls;
    if (away) throw StoreUnavailable("away");
    if (cancelled > 0 && cancelled-- > 0) throw SqlError("canceling statement due to statement timeout", "57014");
    for (const ports::ClaimEnd& end : ends) {
      if (end.claim.id == refused) throw SqlError("invalid byte sequence for encoding \"UTF8\": 0x00", "22021");
    }
    auto held = inner_->end(handler, owner, ends);
    if (lose_ends > 0 && lose_ends-- > 0) throw StoreUnavailable("the answer was lost");
    return held;
  }
  std::vector<bool> renew(HandlerId handler, const MessageId& owner, std::chrono::milliseconds lease,
                          std::span<const ports::HeldClaim> held) override {
    ++renewals;
    while (renewals_hang) std::this_thread::yield();
    if (renewals_fail) throw StoreUnavailable("away");
    return inner_->renew(handler, owner, lease, held);
  }
  ports::ClaimCounts count(std::optional<HandlerId> handler) override { return inner_->count(handler); }

  std::atomic<int> lose_claims = 0, lose_ends = 0, end_calls = 0, renewals = 0, cancelled = 0;
  std::atomic<int> begun = 0;  ///< messages of which begin() was told
  std::atomic<bool> begins_fail = false;
  std::atomic<bool> away = false, renewals_fail = false, renewals_hang = false;
  MessageId refused;  ///< whose end is not taken

 private:
  std::shared_ptr<ports::Claims> inner_;
};

class Leased : public ::testing::Test {
 protected:
  Leased() {
    for (const char* topic : {"t", "t.dlq", "replies"}) broker_.create_topic(topic, 1);
    const TopicPartition at{"t", 0};
    const auto claim = inbox_->claim_partitions("g", {&at, 1}, 1s).front();
    place_ = {at, claim.fence, claim.incarnation};
    settings_.mode = Mode::leased;
    settings_.dead_letter = "";
    settings_.retry = RetryPolicy{3, 1ms, 4ms};
  }

  void handler(Pipeline pipeline) {
    auto logger = std::make_shared<spdlog::logger>("t", log_.sink());
    detail::TopicRunner::Services services;
    services.store = inbox_;
    services.dead_letters = std::make_shared<detail::DeadLetters>(broker_.open_producer(), inbox_);
    services.run_log = std::make_shared<detail::RunLog>(logger, "test");
    services.claims = std::make_shared<detail::LeaseRenewer>(claims_, services.run_log);
    services.caller_raises = caller_waits_;
    handler_ = inbox_->register_handler("t");
    runner_ = std::make_unique<detail::TopicRunner>(detail::plan_topic("t", settings_), std::move(pipeline), handler_,
                                                    std::move(services));
  }
  /// Notes who was run, and makes an effect elsewhere.
  auto noting() {
    return [this](const Message& message, Context& context) {
      runs_.emplace_back(message.text());
      fences_.push_back(context.claim_fence());
      keys_.push_back(*context.idempotency_key());
      if (act_) act_(message, context);
    };
  }
  /// A unit of messages with these ids; the payload is the id.
  detail::UnitResult run(const std::vector<std::string>& ids, int attempt = 1) {
    const auto works = messages_of(ids, attempt);
    const auto session = inbox_->open_session();
    watch_.reset();
    return runner_->run(works, place_, session.get(), watch_);
  }
  std::vector<detail::Work> messages_of(const std::vector<std::string>& ids, int attempt = 1) {
    messages_.clear();
    owned_.clear();
    for (const std::string& id : ids) {
      OwnedMessage message;
      message.topic = "t";
      message.offset = next_offset_++;
      message.key = "k" + id;
      message.payload = id;
      message.headers = {{"message-id", id}};
      owned_.push_back(std::move(message));
    }
    for (const auto& message : owned_) messages_.emplace_back(message);
    std::vector<detail::Work> works;
    for (std::size_t i = 0; i < ids.size(); ++i) works.push_back({&messages_[i], i, attempt});
    return works;
  }
  static std::vector<Kind> kinds(const detail::UnitResult& result) {
    std::vector<Kind> all;
    for (const detail::Verdict& verdict : result.verdicts) all.push_back(verdict.kind);
    return all;
  }
  bool done(const std::string& id) { return inbox_->contains(handler_, MessageId::from(id)); }
  /// Somebody else claims it, and vanishes if the lease is short.
  void claimed_elsewhere(const std::string& id, std::chrono::milliseconds lease = 60s,
                         std::optional<Fence> fence = {}) {
    const ports::InboxEntry entry{.id = MessageId::from(id), .offset = next_offset_};
    const ports::ClaimScope scope{
        .handler = handler_, .fence = fence, .owner = MessageId::from("other"), .lease = lease, .rerun_unknown = true};
    ASSERT_EQ(inbox_->claims()->claim(scope, {&entry, 1}).front().state, ports::Claim::State::claimed);
  }

  std::shared_ptr<MemoryInbox> inbox_ = std::make_shared<MemoryInbox>();
  std::shared_ptr<LossyClaims> claims_ = std::make_shared<LossyClaims>(inbox_->claims());
  MemoryBroker broker_;
  detail::OwnedPartition place_;
  TopicSettings settings_;
  test::CapturedLog log_;
  HandlerId handler_;
  std::unique_ptr<detail::TopicRunner> runner_;
  detail::RunState watch_;
  bool caller_waits_ = false;  ///< as on a PollLoop
  std::function<void(const Message&, Context&)> act_;
  std::vector<std::string> runs_;
  std::vector<std::int64_t> fences_;
  std::vector<MessageId> keys_;
  Offset next_offset_ = 0;
  std::vector<OwnedMessage> owned_;
  std::vector<Message> messages_;
};

}  // namespace turnstile::test
