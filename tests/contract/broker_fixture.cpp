#include "broker_fixture.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "tests/support/eventually.hpp"
#include "turnstile/kafka/admin.hpp"
#include "turnstile/kafka/mock.hpp"
#include "turnstile/testing/broker.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

class MemoryFixture final : public BrokerFixture {
 public:
  // One cluster, with a broker for each group.
  class InGroup final : public ports::Broker {
   public:
    InGroup(std::shared_ptr<testing::MemoryBroker> cluster, std::string group)
        : cluster_(std::move(cluster)), group_(std::move(group)) {}
    std::unique_ptr<ports::BrokerConsumer> open_consumer() override { return cluster_->open_consumer(group_); }
    std::shared_ptr<ports::BrokerProducer> open_producer() override { return cluster_->open_producer(); }
    std::unique_ptr<ports::BrokerSender> open_sender() override { return cluster_->open_sender(); }
    std::optional<ports::TopicInfo> describe(const std::string& topic, std::chrono::milliseconds timeout) override {
      return cluster_->describe(topic, timeout);
    }

   private:
    std::shared_ptr<testing::MemoryBroker> cluster_;
    std::string group_;
  };

  std::shared_ptr<ports::Broker> broker(const std::string& group) override {
    return std::make_shared<InGroup>(cluster_, group);
  }
  void create_topic(const std::string& name, std::int32_t partitions) override {
    cluster_->create_topic(name, partitions);
  }
  bool delete_topic(const std::string& name) override {
    cluster_->delete_topic(name);
    return true;
  }
  std::string refused_topic() override {
    const auto name = fresh_name("refused");
    cluster_->create_topic(name);
    cluster_->refuse(name, "not today");
    return name;
  }

 private:
  std::shared_ptr<testing::MemoryBroker> cluster_ = std::make_shared<testing::MemoryBroker>();
};

kafka::Settings in_group(kafka::Settings settings, const std::string& group) {
  settings["group.id"] = group;
  return settings;
}

class MockFixture final : public BrokerFixture {
 public:
  std::shared_ptr<ports::Broker> broker(const std::string& group) override {
    return kafka::open_broker(in_group(mock_.settings(), group), nullptr);
  }
  void create_topic(const std::string& name, std::int32_t partitions) override { mock_.create_topic(name, partitions); }
  bool delete_topic(const std::string&) override { return false; }
  std::string refused_topic() override {
    const auto name = fresh_name("refused");
    mock_.create_topic(name, 1);
    mock_.refuse_produce();
    return name;
  }

 private:
  kafka::MockBroker mock_;
};

class KafkaFixture final : public BrokerFixture {
 public:
  explicit KafkaFixture(const std::string& servers)
      : settings_{{"bootstrap.servers", servers}, {"session.timeout.ms", "6000"}} {}
  std::shared_ptr<ports::Broker> broker(const std::string& group) override {
    return kafka::open_broker(in_group(settings_, group), nullptr);
  }
  void create_topic(const std::string& name, std::int32_t partitions) override {
    kafka::create_topic(settings_, {name, partitions, 1, {}}, kServerPatience);
  }
  bool delete_topic(const std::string& name) override { return kafka::delete_topic(settings_, name); }
  // The scratch broker creates no topic automatically.
  std::string refused_topic() override { return fresh_name("missing"); }

 private:
  kafka::Settings settings_;
};

}  // namespace

std::unique_ptr<BrokerFixture> memory_world() { return std::make_unique<MemoryFixture>(); }
std::unique_ptr<BrokerFixture> mock_world() { return std::make_unique<MockFixture>(); }
std::unique_ptr<BrokerFixture> kafka_world() {
  const char* servers = std::getenv("TURNSTILE_TEST_KAFKA");
  return servers && *servers ? std::make_unique<KafkaFixture>(servers) : nullptr;
}

Reader::Reader(ports::Broker& broker, const std::vector<std::string>& topics) : consumer(broker.open_consumer()) {
  consumer->subscribe(topics, *this);
}

Reader::~Reader() {
  when_revoked = nullptr;  // it may refer to objects that no longer exist
  consumer->close();
}

std::vector<TopicPartitionOffset> Reader::on_assigned(std::span<const TopicPartition> partitions) {
  owned.insert(partitions.begin(), partitions.end());
  if (when_assigned) when_assigned(partitions);
  std::vector<TopicPartitionOffset> answer;
  for (const auto& at : partitions)
    if (starts.contains(at)) answer.push_back({at, starts.at(at)});
  return answer;
}

void Reader::on_revoked(std::span<const TopicPartition> partitions, bool lost) {
  ++revocations;
  if (when_revoked) when_revoked(partitions, lost);
  for (const auto& at : partitions) owned.erase(at);
}

void Reader::on_commit_end(std::span<const TopicPartitionOffset> offsets, bool committed) {
  for (const auto& offset : offsets) commits.emplace_back(offset, committed);
}

void Reader::on_topic_change(const std::string& topic, bool exists) { topic_changes.emplace_back(topic, exists); }

void Reader::step(std::size_t most, std::chrono::milliseconds timeout) {
  consumer->poll(timeout);
  for (const auto& at : owned) {
    if (left_alone.contains(at)) continue;
    const auto block = consumer->take(at, most);
    if (!block) continue;
    EXPECT_LE(block->messages().size(), most);
    for (const auto& message : block->messages()) {
      EXPECT_EQ(message.topic(), at.topic);
      EXPECT_EQ(message.partition(), at.partition);
      read.push_back(message.own());
      next[at] = message.offset() + 1;
    }
    consumer->wake();  // there may be more
  }
}

bool Reader::until(const std::function<bool()>& condition, std::size_t most) {
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    step(most);
  }
  return true;
}

bool Reader::until_owns(std::size_t partitions) {
  return until([&] { return owned.size() == partitions; });
}

bool Reader::until_read(std::size_t records) {
  return until([&] { return read.size() >= records; });
}

void Reader::commit_all() {
  std::vector<ports::OffsetCommit> offsets;
  for (const auto& [at, offset] : next)
    if (owned.contains(at)) offsets.push_back({at, offset});
  consumer->commit(offsets, true);
}

std::vector<Offset> offsets_of(const std::vector<OwnedMessage>& read, std::int32_t partition) {
  std::vector<Offset> offsets;
  for (const auto& message : read)
    if (message.partition == partition) offsets.push_back(message.offset);
  return offsets;
}

OwnedMessage text(const std::string& topic, std::int32_t partition, const std::string& payload) {
  OwnedMessage message;
  message.topic = topic;
  message.partition = partition;
  message.payload = payload;
  return message;
}

std::string fresh_name(const std::string& what) {
  static std::atomic<int> count{0};
  // With the time: process numbers are used again within one run of all tests, and topics stay.
  return what + "-" + std::to_string(::getpid()) + "-" + std::to_string(++count) + "-" +
         std::to_string(std::chrono::steady_clock::now().time_since_epoch().count() % 1'000'000'000);
}

}  // namespace turnstile::test
