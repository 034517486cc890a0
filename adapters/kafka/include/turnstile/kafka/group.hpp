#pragma once
// A consumer group that an operator looks at and moves while it has no members.

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "turnstile/kafka/broker.hpp"
#include "turnstile/message.hpp"
#include "turnstile/ports/broker.hpp"
#include "turnstile/types.hpp"

namespace turnstile::kafka {

class Client;

/// Looks at a group, without being a member of it. One thread at a time may use it. Each call waits some seconds for an
/// answer, and may throw BrokerError.
class GroupAdmin {
 public:
  /// The group is `group.id` of the settings. Does not connect yet. Throws ConfigError.
  explicit GroupAdmin(const Settings& settings);
  ~GroupAdmin();
  /// Not copied.
  GroupAdmin(const GroupAdmin&) = delete;
  /// Not copied.
  GroupAdmin& operator=(const GroupAdmin&) = delete;

  /// Its members: "CLIENT at HOST". Empty if it has none, or if there is no such group.
  [[nodiscard]] std::vector<std::string> members() const;
  /// Its committed offsets, in the order of `of`; absent if there is none.
  [[nodiscard]] std::vector<std::optional<ports::GroupOffset>> committed(std::span<const TopicPartition> of) const;
  /// For each partition the first offset whose record has this timestamp or a later one; absent if there is none.
  [[nodiscard]] std::vector<std::optional<Offset>> at_time(std::span<const TopicPartition> of, Timestamp time) const;
  /// Commits offsets for the group. Kafka refuses it while the group has members: then it returns false. The offsets may
  /// be committed nevertheless: a member can have joined between a request that was not answered and its repetition.
  bool set(std::span<const ports::OffsetCommit> offsets) const;

 private:
  std::shared_ptr<Client> client_;
};

}  // namespace turnstile::kafka
