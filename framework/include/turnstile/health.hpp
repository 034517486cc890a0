#pragma once
// The health of a consumer: for health probes, metrics, and programs that monitor themselves. Plain values, copied for
// each call.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/types.hpp"

namespace turnstile {

/// A partition that makes no progress.
struct PartitionProblem {
  TopicPartition at;             ///< the partition
  std::string reason;            ///< why it makes no progress, in one sentence, and what to do if a person must act
  std::optional<Offset> offset;  ///< the oldest message that waits; absent: no message was read yet
  std::chrono::system_clock::time_point since{};  ///< start of the time without progress
};

/// The health of a consumer at the time of the call.
struct Health {
  /// The state of the consumer.
  enum class State : std::uint8_t {
    idle,      ///< run() was not called yet
    starting,  ///< run() checks settings, schema and topics
    waiting,   ///< it runs, and has no partitions
    running,   ///< it runs, and has partitions
    stopping,  ///< running handlers end, offsets are committed, and the consumer leaves the group
    stopped,   ///< run() has returned
    halted,    ///< it cannot continue, and waiting does not help: do what `reason` tells, then restart the process
  };
  State state = State::idle;  ///< the state of the consumer
  /// In state halted: why. In states running and waiting: why no partition makes progress now (PostgreSQL or the token
  /// log is unavailable). Empty: no problem.
  std::string reason{};
  std::chrono::system_clock::time_point since{};  ///< when `state` began
  std::string name{};                             ///< of this process, as in logs and in `turnstile permits`
  std::size_t partitions = 0;                     ///< how many this process owns
  /// Partitions without progress; each appears after consumer.stall_after at the latest.
  std::vector<PartitionProblem> problems{};

  /// For a liveness probe. False if only a restart helps.
  [[nodiscard]] bool is_live() const noexcept { return state != State::halted; }
  /// For a readiness probe. True if the consumer is a member of the group and does its work, or would do it if it had
  /// partitions.
  [[nodiscard]] bool is_ready() const noexcept {
    return (state == State::running || state == State::waiting) && reason.empty();
  }
};

/// "idle", "starting", …
std::string_view to_text(Health::State state);

}  // namespace turnstile
