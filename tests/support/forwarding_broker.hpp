#pragma once
// A broker that forwards every call. A test overrides the calls of its consumer that it wants to observe or change.

#include <memory>
#include <utility>

#include "turnstile/ports/broker.hpp"

namespace turnstile::test {

class ForwardingConsumer : public ports::BrokerConsumer {
 public:
  explicit ForwardingConsumer(std::unique_ptr<ports::BrokerConsumer> inner) : inner_(std::move(inner)) {}

  void subscribe(const std::vector<std::string>& topics, ports::AssignmentListener& listener) override {
    inner_->subscribe(topics, listener);
  }
  void poll(std::chrono::milliseconds timeout) override { inner_->poll(timeout); }
  void wait(std::chrono::milliseconds timeout) override { inner_->wait(timeout); }
  bool must_poll() override { return inner_->must_poll(); }
  std::shared_ptr<ports::Arrivals> arrivals() override { return inner_->arrivals(); }
  std::unique_ptr<ports::Block> take(const TopicPartition& from, std::size_t most) override {
    return inner_->take(from, most);
  }
  void wake() noexcept override { inner_->wake(); }
  std::vector<std::optional<ports::GroupOffset>> committed(std::span<const TopicPartition> of,
                                                           std::chrono::milliseconds timeout) override {
    return inner_->committed(of, timeout);
  }
  void commit(std::span<const ports::OffsetCommit> offsets, bool wait) override { inner_->commit(offsets, wait); }
  void seek(const TopicPartitionOffset& to) override { inner_->seek(to); }
  std::vector<std::optional<std::pair<Offset, Offset>>> bounds(std::span<const TopicPartition> of,
                                                               std::chrono::milliseconds timeout) override {
    return inner_->bounds(of, timeout);
  }
  std::vector<std::optional<Offset>> log_ends(std::span<const TopicPartition> of,
                                              std::chrono::milliseconds timeout) override {
    return inner_->log_ends(of, timeout);
  }
  std::vector<std::optional<ports::PartitionEnd>> ends(std::span<const TopicPartition> of,
                                                       std::chrono::milliseconds timeout) override {
    return inner_->ends(of, timeout);
  }
  std::vector<std::string> why_no_end(std::span<const TopicPartition> of, std::chrono::milliseconds timeout) override {
    return inner_->why_no_end(of, timeout);
  }
  std::optional<Offset> read_up_to(const TopicPartition& of) override { return inner_->read_up_to(of); }
  void close() override { inner_->close(); }
  void hurry_when(std::function<bool()> hurry) override { inner_->hurry_when(std::move(hurry)); }

 private:
  std::unique_ptr<ports::BrokerConsumer> inner_;
};

/// `Member` is a ForwardingConsumer. It is made from the inner consumer and a reference to this broker's `state`.
template <class Member, class State>
class ForwardingBroker final : public ports::Broker {
 public:
  explicit ForwardingBroker(std::shared_ptr<ports::Broker> inner) : inner_(std::move(inner)) {}

  std::unique_ptr<ports::BrokerConsumer> open_consumer() override {
    return std::make_unique<Member>(inner_->open_consumer(), state);
  }
  std::shared_ptr<ports::BrokerProducer> open_producer() override { return inner_->open_producer(); }
  std::unique_ptr<ports::BrokerSender> open_sender() override { return inner_->open_sender(); }
  std::optional<ports::TopicInfo> describe(const std::string& topic, std::chrono::milliseconds timeout) override {
    return inner_->describe(topic, timeout);
  }

  State state{};

 private:
  std::shared_ptr<ports::Broker> inner_;
};

}  // namespace turnstile::test
