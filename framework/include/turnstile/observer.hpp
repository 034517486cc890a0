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
  std::string_view topic;       ///< the topic
  std::int32_t partition = 0;   ///< the partition
  std::string_view handler;     ///< the handler's name
  std::int64_t done = 0;        ///< took effect now
  std::int64_t skipped = 0;     ///< the handler said skip
  std::int64_t duplicates = 0;  ///< refused: their ids were there already
  std::int64_t retried = 0;     ///< failed, will come again
  std::int64_t dead = 0;        ///< went to the dead letter topic, or were parked
  std::int64_t rerun =
      0;  ///< runs of handlers that were rolled back because of another message of the batch, and came again
  std::int64_t unclaimed = 0;       ///< of those done or skipped: ran without the database (store_down = "run")
  std::chrono::nanoseconds took{};  ///< from the first to the last step of the batch
};

/// One message of which something is to be told: a retry, a dead letter, a mismatch, a stall.
struct MessageReport {
  std::string_view topic;             ///< the topic
  std::int32_t partition = 0;         ///< the partition
  Offset offset = 0;                  ///< of the message
  std::string_view handler;           ///< the handler's name
  int attempt = 0;                    ///< which run it was
  std::string_view why;               ///< the reason, for people
  std::chrono::milliseconds delay{};  ///< until it comes again; for a stall, how long it has lasted
};

/// What is told of a topic's messages. Each call may be left out.
class Observer {
 public:
  virtual ~Observer() = default;
  /// A worker has been through a batch.
  virtual void on_batch(const BatchReport&) noexcept {}
  /// A handler begins; the limiter's name is empty where the topic has no limit.
  virtual void on_handler_start(std::string_view /*topic*/, std::string_view /*limiter*/) noexcept {}
  /// A handler has ended.
  virtual void on_handler_stop(std::string_view /*topic*/, std::string_view /*limiter*/) noexcept {}
  /// A message failed, and comes again after `delay`.
  virtual void on_retry(const MessageReport&) noexcept {}
  /// A message will not be run again.
  virtual void on_dead_letter(const MessageReport&) noexcept {}
  /// The watchdog: a partition makes no progress; `offset` is the oldest message that waits (-1: none was read yet), `why` what it waits
  /// for: its handler, a permit, the database.
  virtual void on_stall(const MessageReport&) noexcept {}
  /// The process owns a partition of the topic.
  virtual void on_assigned(const TopicPartition&, Epoch) noexcept {}
  /// The process owns it no more.
  virtual void on_revoked(const TopicPartition&) noexcept {}
  /// The store of ids went away (false) or came back (true).
  virtual void on_store(bool /*available*/) noexcept {}
};

}  // namespace turnstile
