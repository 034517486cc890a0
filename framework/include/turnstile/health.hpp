#pragma once
// How a consumer is: for health probes, metrics, and programs that look after themselves. Plain values, copied when they are asked for.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/types.hpp"

namespace turnstile {

/// A partition that does not go on.
struct PartitionProblem {
  TopicPartition at;             ///< the partition
  std::string reason;            ///< one sentence: what holds the partition, and what to do where a person has to
  std::optional<Offset> offset;  ///< the oldest message that waits; nothing: no message was read yet
  std::chrono::system_clock::time_point since{};  ///< since when it makes no progress
};

/// How a consumer is, at the time of the call.
struct Health {
  /// What the consumer does.
  enum class State : std::uint8_t {
    idle,      ///< run() was not called yet
    starting,  ///< run() checks settings, schema and topics
    waiting,   ///< it runs, and has no partitions
    running,   ///< it runs, and has partitions
    stopping,  ///< running handlers end, offsets are committed, the group is left
    stopped,   ///< run() has returned
    halted,    ///< it cannot continue, and no waiting mends it: `reason` says what to do, then restart the process
  };
  State state = State::idle;  ///< what the consumer does
  /// halted: why. Running, waiting: what keeps all of it from going on at the moment (PostgreSQL is unavailable, the token log cannot
  /// be reached). Empty: nothing.
  std::string reason{};
  std::chrono::system_clock::time_point since{};  ///< when `state` began
  std::string name{};                             ///< of this process, as in logs and in `turnstile permits`
  std::size_t partitions = 0;                     ///< that this process has now
  std::vector<PartitionProblem>
      problems{};  ///< partitions that do not go on; each after consumer.stall_after at the latest

  /// For a liveness probe: false when only a restart helps.
  [[nodiscard]] bool is_live() const noexcept { return state != State::halted; }
  /// For a readiness probe: it is a member that does its work, or would if it had partitions.
  [[nodiscard]] bool is_ready() const noexcept {
    return (state == State::running || state == State::waiting) && reason.empty();
  }
};

/// "idle", "starting", …
std::string_view to_text(Health::State state);

}  // namespace turnstile
