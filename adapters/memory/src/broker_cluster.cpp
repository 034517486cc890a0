#include "broker_cluster.hpp"

#include <algorithm>
#include <utility>

#include "turnstile/error.hpp"

namespace turnstile::testing {
namespace {

// FNV-1a: the same on every platform, so that a test can rely on the partition of a key.
std::uint32_t hash_of(std::string_view key) {
  std::uint32_t hash = 2166136261u;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

std::int32_t partition_for(const OwnedMessage& message, MemoryTopic& topic) {
  const auto count = static_cast<std::int32_t>(topic.partitions.size());
  if (message.partition >= 0) return message.partition;
  if (message.key) return static_cast<std::int32_t>(hash_of(*message.key) % static_cast<std::uint32_t>(count));
  return std::exchange(topic.next_without_key, (topic.next_without_key + 1) % count);
}

}  // namespace

MemoryTopic& MemoryCluster::topic(const std::string& name) {
  const auto found = topics.find(name);
  if (found == topics.end())
    throw BrokerError(Code::topic_missing,
                      "topic " + name + ": does not exist. Create the topic, or correct its name.");
  return found->second;
}

MemoryPartition* MemoryCluster::find(const TopicPartition& at) {
  const auto found = topics.find(at.topic);
  if (found == topics.end() || at.partition < 0) return nullptr;
  auto& partitions = found->second.partitions;
  const auto index = static_cast<std::size_t>(at.partition);
  return index < partitions.size() ? &partitions[index] : nullptr;
}

ports::BrokerProducer::Sent MemoryCluster::append(const OwnedMessage& message) {
  if (!ports::is_topic_name(message.topic))
    throw BrokerError(
        Code::kafka_refused,
        "topic " + message.topic +
            ": Kafka allows 1 to 249 letters, digits, '.', '_' and '-' in a topic's name. Correct the name.");
  auto& to = topic(message.topic);
  if (to.refusal) throw BrokerError(Code::kafka_refused, "topic " + message.topic + ": " + *to.refusal);
  auto record = std::make_shared<OwnedMessage>(message);
  record->partition = partition_for(message, to);
  auto* partition = find({message.topic, record->partition});
  if (!partition)
    throw BrokerError(Code::topic_missing,
                      "topic " + message.topic + ": has no partition " + std::to_string(record->partition) + ".");
  if (record->timestamp == Timestamp{})
    record->timestamp = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  record->offset = partition->end++;
  const ports::BrokerProducer::Sent sent{record->partition, record->offset};
  partition->records.push_back(std::move(record));
  ring_owners({message.topic, sent.partition});
  changed.notify_all();
  return sent;
}

void MemoryCluster::erase(const std::string& name) {
  topics.erase(name);
  for (auto& [group, state] : groups)
    std::erase_if(state.committed, [&](const auto& offset) { return offset.first.topic == name; });
  changed.notify_all();
}

void MemoryCluster::ring_owners(const TopicPartition& at) {
  for (const auto& member : members)
    if (member->owned.contains(at)) member->arrived = true;
}

bool MemoryCluster::is_live(const MemoryMember& member) {
  return member.subscribed && !member.crashed && !member.evicted;
}

void MemoryCluster::rebalance(const std::string& group) {
  ++groups[group].generation;
  changed.notify_all();
}

bool MemoryCluster::all_joined(const std::string& group) const {
  const auto generation = groups.at(group).generation;
  return std::all_of(members.begin(), members.end(), [&](const auto& member) {
    return member->group != group || !is_live(*member) || member->generation == generation;
  });
}

std::set<TopicPartition> MemoryCluster::share_of(const MemoryMember& member) const {
  std::set<TopicPartition> share;
  for (const auto& name : member.topics) {
    const auto topic = topics.find(name);
    if (topic == topics.end()) continue;
    std::size_t rank = 0;
    std::size_t sharers = 0;
    for (const auto& other : members) {
      if (other->group != member.group || !is_live(*other) || !other->topics.contains(name)) continue;
      if (other.get() == &member) rank = sharers;
      ++sharers;
    }
    const auto count = topic->second.partitions.size();
    const auto each = count / sharers;
    const auto larger = count % sharers;  // how many members get one partition more
    const auto first = rank * each + std::min(rank, larger);
    const auto last = first + each + (rank < larger ? 1 : 0);
    for (auto i = first; i < last; ++i) share.insert({name, static_cast<std::int32_t>(i)});
  }
  return share;
}

}  // namespace turnstile::testing
