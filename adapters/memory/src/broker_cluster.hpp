#pragma once
// What a MemoryBroker, its consumers and its producers share: topics, groups, members; under one mutex.

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "turnstile/ports/broker.hpp"

namespace turnstile::testing {

using Record = std::shared_ptr<const OwnedMessage>;

struct MemoryPartition {
  std::vector<Record> records;  ///< by offset; offsets may have gaps
  Offset first = 0;
  Offset end = 0;
  int cuts = 0;            ///< how often records were cut off its end
  Offset cut_at = 0;       ///< where, the last time
  std::int64_t taken = 0;  ///< how many consumers have taken, over all groups
};

struct MemoryTopic {
  std::vector<MemoryPartition> partitions;
  std::optional<std::chrono::milliseconds> retention;
  std::optional<std::string> refusal;
  std::int32_t next_without_key = 0;
};

/// A consumer as the cluster sees it.
struct MemoryMember {
  std::string group;
  std::set<std::string> topics;
  std::set<TopicPartition> owned;  ///< told to the consumer, not revoked yet
  std::int64_t generation = 0;     ///< that it has joined
  bool assigned = false;           ///< it has been told its partitions of that generation
  bool subscribed = false;
  bool crashed = false;
  bool evicted = false;
  bool rung = false;  ///< poll() has a reason to return
};

struct MemoryGroup {
  std::int64_t generation = 0;
  std::map<TopicPartition, Offset> committed;
};

struct MemoryCluster {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  std::map<std::string, MemoryTopic> topics;
  std::map<std::string, MemoryGroup> groups;
  int refused_commits = 0;                             ///< so many commits are still refused
  std::vector<std::shared_ptr<MemoryMember>> members;  ///< as they were opened; the place is the number

  // All of these want the mutex held.
  MemoryTopic& topic(const std::string& name);  ///< throws BrokerError
  MemoryPartition* find(const TopicPartition& at);
  BrokerProducer::Sent append(const OwnedMessage& message);  ///< throws BrokerError
  void erase(const std::string& topic);                      ///< with what groups have committed of it
  void ring_owners(const TopicPartition& at);
  /// Members of the group have changed: all of them have to join again.
  void rebalance(const std::string& group);
  /// Every live member has joined the newest generation.
  [[nodiscard]] bool all_joined(const std::string& group) const;
  /// The range assignor's share of a member.
  [[nodiscard]] std::set<TopicPartition> share_of(const MemoryMember& member) const;

 private:
  [[nodiscard]] static bool is_live(const MemoryMember& member);
};

std::unique_ptr<BrokerConsumer> open_memory_consumer(std::shared_ptr<MemoryCluster> cluster, const std::string& group);

}  // namespace turnstile::testing
