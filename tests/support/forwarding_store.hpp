#pragma once
// A store that forwards every call. A test overrides the calls that it wants to observe or change.

#include <memory>

#include "turnstile/ports/store.hpp"

namespace turnstile::test {

class ForwardingStore : public ports::Store,
                        public ports::Partitions,
                        public ports::DeadLetterStore,
                        public ports::Retention {
 public:
  explicit ForwardingStore(std::shared_ptr<ports::Store> inner) : inner_(std::move(inner)) {}

  std::unique_ptr<ports::InboxSession> open_session() override { return inner_->open_session(); }
  std::unique_ptr<ports::InboxSession> join(Transaction& transaction) override { return inner_->join(transaction); }
  void cut(bool now) noexcept override { inner_->cut(now); }
  std::optional<Recorded> find(HandlerId handler, const MessageId& id) override { return inner_->find(handler, id); }
  std::shared_ptr<ports::Claims> claims() override { return inner_->claims(); }
  std::shared_ptr<ports::Producers> producers() override { return inner_->producers(); }
  std::shared_ptr<ports::Outbox> outbox() override { return inner_->outbox(); }
  std::shared_ptr<ports::Trials> trials() override { return inner_->trials(); }
  std::shared_ptr<ports::Pauses> pauses() override { return inner_->pauses(); }
  ports::Partitions& partitions() noexcept override { return *this; }
  ports::DeadLetterStore& dead_letters() noexcept override { return *this; }
  ports::Retention& retention() noexcept override { return *this; }
  void check_schema() override { inner_->check_schema(); }
  HandlerId register_handler(const std::string& name) override { return inner_->register_handler(name); }
  std::string first_group(HandlerId handler, const std::string& group) override {
    return inner_->first_group(handler, group);
  }
  std::int64_t history() override { return inner_->history(); }
  std::vector<ports::PartitionClaim> claim_partitions(const std::string& group,
                                                      std::span<const TopicPartition> partitions,
                                                      const ports::ClaimWait& wait) override {
    return inner_->partitions().claim_partitions(group, partitions, wait);
  }
  std::vector<ports::WatermarkState> advance_watermarks(std::span<const ports::WatermarkUpdate> updates) override {
    return inner_->partitions().advance_watermarks(updates);
  }
  std::int32_t begin_incarnation(const Fence& fence, Offset first, std::int32_t at_least) override {
    return inner_->partitions().begin_incarnation(fence, first, at_least);
  }
  bool record_dead(const ports::DeadMessage& message) override { return inner_->dead_letters().record_dead(message); }
  std::set<Offset> dead_between(HandlerId handler, const Fence& fence, Offset first, Offset last,
                                std::optional<DeadReason> reason) override {
    return inner_->dead_letters().dead_between(handler, fence, first, last, reason);
  }
  KeptIds keep_ids(HandlerId handler, std::optional<std::chrono::seconds> keep_for) override {
    return inner_->retention().keep_ids(handler, keep_for);
  }
  ports::PurgeStep purge_step(std::int64_t most) override { return inner_->retention().purge_step(most); }

 private:
  const std::shared_ptr<ports::Store> inner_;
};

}  // namespace turnstile::test
