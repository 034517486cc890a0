#pragma once
// The shape of a topic of the token log, from the answers of brokers that learn of a new topic one after the other.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "topics.hpp"

namespace turnstile::kafka {

/// `look` asks a broker for the topic's shape, and `create` creates the topic. If a broker does not know the topic, it
/// is created. The result is the first shape that has partitions: the next broker asked may not know the new topic yet,
/// also if another process has created it. Throws BrokerError if that takes longer than `most`, and what the functions
/// throw.
TopicShape existing_or_created(const std::string& topic, const std::function<TopicShape()>& look,
                               const std::function<void()>& create, std::chrono::milliseconds most);

/// How many replicas the topics of a token log need.
class ReplicaRule {
 public:
  /// `required` is the setting `[limits] replication`; 0: it is not set.
  explicit ReplicaRule(std::int32_t required) : required_(required) {}

  /// Of a topic that is created now. Without the setting: 3, or the number of `brokers` if that is smaller. Brokers
  /// that are down do not count, because no topic can have replicas on them.
  [[nodiscard]] std::int32_t of_new_topic(std::int32_t brokers) const;
  /// A warning about a topic with too few replicas; absent if it has enough. Without the setting, a topic that
  /// this process has `created` should have 3, and an older one as many as it could have now. Throws BrokerError if it
  /// has fewer than the setting requires. Both texts name a command that loses nothing. `servers` is for that command.
  [[nodiscard]] std::optional<std::string> check(const std::string& topic, const TopicShape& found, bool created,
                                                 const std::string& servers) const;

 private:
  const std::int32_t required_;
};

}  // namespace turnstile::kafka
