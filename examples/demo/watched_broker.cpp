#include "watched_broker.hpp"

#include <utility>

namespace demo {
namespace {

using namespace turnstile;

class WatchedConsumer final : public ports::BrokerConsumer {
 public:
  WatchedConsumer(std::unique_ptr<ports::BrokerConsumer> inner, const Board& board, Tally& tally, int consumer)
      : inner_(std::move(inner)), board_(board), tally_(tally), consumer_(consumer) {}

  std::unique_ptr<ports::Block> take(const TopicPartition& from, std::size_t most) override {
    auto block = inner_->take(from, most);
    if (block) {
      for (const Message& message : block->messages()) {
        board_.delivered(consumer_, message.partition(), message.offset());
        tally_.delivered(message.partition());
      }
    }
    return block;
  }

  void subscribe(const std::vector<std::string>& topics, ports::AssignmentListener& listener) override {
    inner_->subscribe(topics, listener);
  }
  void poll(std::chrono::milliseconds timeout) override { inner_->poll(timeout); }
  void wait(std::chrono::milliseconds timeout) override { inner_->wait(timeout); }
  bool must_poll() override { return inner_->must_poll(); }
  std::shared_ptr<ports::Arrivals> arrivals() override { return inner_->arrivals(); }
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
  const Board& board_;
  Tally& tally_;
  int consumer_;
};

class WatchedBroker final : public ports::Broker {
 public:
  WatchedBroker(std::shared_ptr<ports::Broker> inner, const Board& board, Tally& tally, int consumer)
      : inner_(std::move(inner)), board_(board), tally_(tally), consumer_(consumer) {}

  std::unique_ptr<ports::BrokerConsumer> open_consumer() override {
    return std::make_unique<WatchedConsumer>(inner_->open_consumer(), board_, tally_, consumer_);
  }
  std::shared_ptr<ports::BrokerProducer> open_producer() override { return inner_->open_producer(); }
  std::unique_ptr<ports::BrokerSender> open_sender() override { return inner_->open_sender(); }
  std::optional<ports::TopicInfo> describe(const std::string& topic, std::chrono::milliseconds timeout) override {
    return inner_->describe(topic, timeout);
  }

 private:
  std::shared_ptr<ports::Broker> inner_;
  const Board& board_;
  Tally& tally_;
  int consumer_;
};

}  // namespace

std::shared_ptr<ports::Broker> watched(std::shared_ptr<ports::Broker> broker, const Board& board, Tally& tally,
                                       int consumer) {
  return std::make_shared<WatchedBroker>(std::move(broker), board, tally, consumer);
}

}  // namespace demo
