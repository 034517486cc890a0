#include "turnstile/testing/broker.hpp"

#include <algorithm>
#include <atomic>

#include "broker_cluster.hpp"
#include "turnstile/error.hpp"
#include "turnstile/ports/record_not_stored.hpp"

namespace turnstile::testing {
namespace {

class MemoryProducer final : public ports::BrokerProducer {
 public:
  explicit MemoryProducer(std::shared_ptr<MemoryCluster> cluster) : cluster_(std::move(cluster)) {}
  Sent send(const OwnedMessage& message) override {
    std::lock_guard lock(cluster_->mutex);
    try {
      return cluster_->append(message);
    } catch (const BrokerError& refused) {
      throw ports::RecordNotStored(refused.code(), refused.what());
    }
  }

 private:
  std::shared_ptr<MemoryCluster> cluster_;
};

class MemorySender final : public ports::BrokerSender {
 public:
  explicit MemorySender(std::shared_ptr<MemoryCluster> cluster) : cluster_(std::move(cluster)) {}
  std::vector<Fate> send(std::span<const OwnedMessage> records) override {
    std::vector<Fate> fates;
    std::lock_guard lock(cluster_->mutex);
    for (const OwnedMessage& record : records) {
      fates.push_back({});
      if (cancelled_) continue;
      try {
        cluster_->append(record);
        fates.back().kind = Fate::Kind::sent;
      } catch (const BrokerError& refused) {
        fates.back() = {Fate::Kind::refused, refused.what()};
      }
    }
    return fates;
  }
  void cancel() noexcept override { cancelled_ = true; }

 private:
  std::shared_ptr<MemoryCluster> cluster_;
  std::atomic<bool> cancelled_{false};
};

MemoryPartition& partition_of(MemoryCluster& cluster, const TopicPartition& at) {
  auto* partition = cluster.find(at);
  if (!partition) throw BrokerError(Code::topic_missing, to_string(at) + ": does not exist.");
  return *partition;
}

std::optional<Offset> committed_in(const MemoryCluster& cluster, const TopicPartition& of, const std::string& group) {
  const auto found = cluster.groups.find(group);
  if (found == cluster.groups.end()) return std::nullopt;
  const auto offset = found->second.committed.find(of);
  return offset == found->second.committed.end() ? std::nullopt : std::optional(offset->second.offset);
}

}  // namespace

MemoryBroker::MemoryBroker(std::string group) : group_(std::move(group)), cluster_(std::make_shared<MemoryCluster>()) {}

MemoryBroker::~MemoryBroker() = default;

void MemoryBroker::create_topic(const std::string& name, std::int32_t partitions,
                                std::optional<std::chrono::milliseconds> retention) {
  if (partitions < 1) throw BrokerError(Code::api_misused, "topic " + name + ": must have at least one partition.");
  std::lock_guard lock(cluster_->mutex);
  const auto [topic, is_new] = cluster_->topics.try_emplace(name);
  if (!is_new) throw BrokerError(Code::api_misused, "topic " + name + ": exists already.");
  topic->second.partitions.resize(static_cast<std::size_t>(partitions));
  topic->second.retention = retention;
}

ports::BrokerProducer::Sent MemoryBroker::produce(const OwnedMessage& message) {
  std::lock_guard lock(cluster_->mutex);
  return cluster_->append(message);
}

void MemoryBroker::skip_offsets(const TopicPartition& at, Offset count) {
  std::lock_guard lock(cluster_->mutex);
  partition_of(*cluster_, at).end += count;
}

void MemoryBroker::delete_before(const TopicPartitionOffset& first_kept) {
  std::lock_guard lock(cluster_->mutex);
  auto& partition = partition_of(*cluster_, first_kept.at);
  std::erase_if(partition.records, [&](const Record& record) { return record->offset < first_kept.offset; });
  partition.first = std::max(partition.first, first_kept.offset);
  partition.end = std::max(partition.end, first_kept.offset);
}

void MemoryBroker::delete_topic(const std::string& name) {
  std::lock_guard lock(cluster_->mutex);
  cluster_->erase(name);
}

void MemoryBroker::replace_topic(const std::string& name,
                                 const std::function<void(const std::function<void(const OwnedMessage&)>&)>& fill) {
  std::lock_guard lock(cluster_->mutex);
  const auto partitions = cluster_->topic(name).partitions.size();
  cluster_->erase(name);
  cluster_->topics[name].partitions.resize(partitions);
  fill([this](const OwnedMessage& message) { cluster_->append(message); });
}

void MemoryBroker::truncate(const TopicPartitionOffset& end) {
  std::lock_guard lock(cluster_->mutex);
  auto& partition = partition_of(*cluster_, end.at);
  std::erase_if(partition.records, [&](const Record& record) { return record->offset >= end.offset; });
  partition.end = std::min(partition.end, end.offset);
  partition.cut_at = partition.end;
  ++partition.cuts;
}

std::vector<OwnedMessage> MemoryBroker::records(const std::string& topic) const {
  std::lock_guard lock(cluster_->mutex);
  std::vector<OwnedMessage> all;
  for (const auto& partition : cluster_->topic(topic).partitions)
    for (const auto& record : partition.records) all.push_back(*record);
  return all;
}

void MemoryBroker::refuse(const std::string& topic, std::string why) {
  std::lock_guard lock(cluster_->mutex);
  cluster_->topic(topic).refusal = std::move(why);
}

void MemoryBroker::allow(const std::string& topic) {
  std::lock_guard lock(cluster_->mutex);
  cluster_->topic(topic).refusal.reset();
}

void MemoryBroker::refuse_commits(int count) {
  std::lock_guard lock(cluster_->mutex);
  cluster_->refused_commits = count;
}

void MemoryBroker::refuse_lookups(bool refuse) {
  const std::lock_guard lock(cluster_->mutex);
  cluster_->refuses_lookups = refuse;
}

void MemoryBroker::refuse_next_lookups(int count) {
  const std::lock_guard lock(cluster_->mutex);
  cluster_->refused_lookups = count;
}

std::int64_t MemoryBroker::lookups() const {
  const std::lock_guard lock(cluster_->mutex);
  return cluster_->lookups;
}

void MemoryBroker::delete_offsets() {
  const std::lock_guard lock(cluster_->mutex);
  cluster_->groups[group_].committed.clear();
}

std::unique_ptr<ports::BrokerConsumer> MemoryBroker::open_consumer() { return open_consumer(group_); }

std::unique_ptr<ports::BrokerConsumer> MemoryBroker::open_consumer(const std::string& group) {
  return open_memory_consumer(cluster_, group);
}

std::unique_ptr<ports::BrokerSender> MemoryBroker::open_sender() { return std::make_unique<MemorySender>(cluster_); }

std::shared_ptr<ports::BrokerProducer> MemoryBroker::open_producer() {
  return std::make_shared<MemoryProducer>(cluster_);
}

std::optional<ports::TopicInfo> MemoryBroker::describe(const std::string& topic, std::chrono::milliseconds) {
  std::lock_guard lock(cluster_->mutex);
  const auto found = cluster_->topics.find(topic);
  if (found == cluster_->topics.end()) return std::nullopt;
  return ports::TopicInfo{static_cast<std::int32_t>(found->second.partitions.size()), found->second.retention};
}

void MemoryBroker::crash(std::size_t member) {
  std::lock_guard lock(cluster_->mutex);
  auto& gone = *cluster_->members.at(member);
  gone.crashed = true;
  gone.rung = true;
  gone.owned.clear();
  cluster_->rebalance(gone.group);
}

void MemoryBroker::evict(std::size_t member) {
  std::lock_guard lock(cluster_->mutex);
  auto& gone = *cluster_->members.at(member);
  gone.evicted = true;
  cluster_->rebalance(gone.group);
}

std::optional<Offset> MemoryBroker::committed(const TopicPartition& of) const { return committed(of, group_); }

std::optional<Offset> MemoryBroker::committed(const TopicPartition& of, const std::string& group) const {
  std::lock_guard lock(cluster_->mutex);
  return committed_in(*cluster_, of, group);
}

bool MemoryBroker::wait_committed(const TopicPartitionOffset& at_least, std::chrono::milliseconds timeout) const {
  std::unique_lock lock(cluster_->mutex);
  return cluster_->changed.wait_for(
      lock, timeout, [&] { return committed_in(*cluster_, at_least.at, group_).value_or(-1) >= at_least.offset; });
}

std::int64_t MemoryBroker::taken(const TopicPartition& of) const {
  std::lock_guard lock(cluster_->mutex);
  return partition_of(*cluster_, of).taken;
}

bool MemoryBroker::wait_taken(const TopicPartition& of, std::int64_t at_least,
                              std::chrono::milliseconds timeout) const {
  std::unique_lock lock(cluster_->mutex);
  return cluster_->changed.wait_for(lock, timeout, [&] { return partition_of(*cluster_, of).taken >= at_least; });
}

bool MemoryBroker::wait_records(const std::string& topic, std::size_t at_least,
                                std::chrono::milliseconds timeout) const {
  std::unique_lock lock(cluster_->mutex);
  return cluster_->changed.wait_for(lock, timeout, [&] {
    std::size_t count = 0;
    for (const auto& partition : cluster_->topic(topic).partitions) count += partition.records.size();
    return count >= at_least;
  });
}

}  // namespace turnstile::testing
