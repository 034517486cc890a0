#pragma once
// The common state of a MemoryBroker, its consumers and its producers: topics, groups and members, under one mutex.

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
  Offset cut_at = 0;       ///< the offset of the last cut
  std::int64_t taken = 0;  ///< how many records consumers have taken, over all groups
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
  std::set<TopicPartition> owned;  ///< assigned to the consumer, and not revoked yet
  std::int64_t generation = 0;     ///< the generation that it has joined
  bool assigned = false;           ///< it has learned its partitions of that generation
  bool subscribed = false;
  bool crashed = false;
  bool evicted = false;
  bool rung = false;         ///< poll() has a reason to return
  bool arrived = false;      ///< records came since the last wait for them ended
  bool listens = true;       ///< Arrivals ends a wait for them
  std::size_t awaiting = 0;  ///< threads that wait for them in Arrivals
  std::size_t nudges = 0;    ///< calls of Arrivals::wake() that have ended no wait yet
};

struct MemoryGroup {
  std::int64_t generation = 0;
  std::map<TopicPartition, ports::GroupOffset> committed;
};

struct MemoryCluster {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  std::map<std::string, MemoryTopic> topics;
  std::map<std::string, MemoryGroup> groups;
  bool refuses_lookups = false;                        ///< of committed offsets
  int refused_lookups = 0;                             ///< how many of the next ones fail
  std::int64_t lookups = 0;                            ///< how many there were
  int refused_commits = 0;                             ///< how many further commits are refused
  std::vector<std::shared_ptr<MemoryMember>> members;  ///< in the order of opening; the index is the number

  // Call all of these with the mutex held.
  MemoryTopic& topic(const std::string& name);  ///< throws BrokerError
  MemoryPartition* find(const TopicPartition& at);
  ports::BrokerProducer::Sent append(const OwnedMessage& message);  ///< throws BrokerError
  void erase(const std::string& topic);                             ///< with the groups' committed offsets
  void ring_owners(const TopicPartition& at);
  /// The members of the group have changed: all of them must join again.
  void rebalance(const std::string& group);
  /// Whether every live member has joined the newest generation.
  [[nodiscard]] bool all_joined(const std::string& group) const;
  /// The range assignor's share of a member.
  [[nodiscard]] std::set<TopicPartition> share_of(const MemoryMember& member) const;

 private:
  [[nodiscard]] static bool is_live(const MemoryMember& member);
};

std::unique_ptr<ports::BrokerConsumer> open_memory_consumer(std::shared_ptr<MemoryCluster> cluster,
                                                            const std::string& group);

}  // namespace turnstile::testing
