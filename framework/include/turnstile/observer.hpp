#pragma once
// The port for metrics, traces and tests: what happened, as plain values. Called from workers and from the polling
// thread, several at once; implementations must be thread-safe, quick, and must not throw.

#include <chrono>
#include <cstdint>
#include <string_view>

#include "turnstile/types.hpp"

namespace turnstile {

/// One batch (of one partition) that a worker has been through.
struct BatchReport {
  std::string_view topic;
  std::int32_t partition = 0;
  std::string_view handler;
  std::int64_t done = 0;        ///< took effect now
  std::int64_t skipped = 0;     ///< the handler said skip
  std::int64_t duplicates = 0;  ///< refused: their ids were there already
  std::int64_t retried = 0;     ///< failed, will come again
  std::int64_t dead = 0;        ///< went to the dead letter topic, or were parked
  std::int64_t rerun =
      0;  ///< runs of handlers that were rolled back because of another message of the batch, and came again
  std::int64_t unclaimed = 0;  ///< of those done or skipped: ran without the database (store_down = "run")
  std::chrono::nanoseconds took{};
};

/// One message of which something is to be told: a retry, a dead letter, a mismatch, a stall.
struct MessageReport {
  std::string_view topic;
  std::int32_t partition = 0;
  Offset offset = 0;
  std::string_view handler;
  int attempt = 0;
  std::string_view why;
  std::chrono::milliseconds delay{};  ///< until it comes again; for a stall, how long it has lasted
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_batch(const BatchReport&) noexcept {}
  virtual void on_handler_start(std::string_view /*topic*/, std::string_view /*limiter*/) noexcept {}
  virtual void on_handler_stop(std::string_view /*topic*/, std::string_view /*limiter*/) noexcept {}
  virtual void on_retry(const MessageReport&) noexcept {}
  virtual void on_dead_letter(const MessageReport&) noexcept {}
  /// The watchdog: a partition makes no progress; `offset` is the oldest message that waits (-1: none was read yet), `why` what it waits
  /// for: its handler, a permit, the database.
  virtual void on_stall(const MessageReport&) noexcept {}
  virtual void on_assigned(const TopicPartition&, Epoch) noexcept {}
  virtual void on_revoked(const TopicPartition&) noexcept {}
  /// The store of ids went away (false) or came back (true).
  virtual void on_store(bool /*available*/) noexcept {}
};

}  // namespace turnstile
