#pragma once
// The port for metrics, traces and tests. It reports events as plain values, and once a second the state of the
// consumer. Several threads call it, at the same time. An implementation must be thread-safe and quick, and must not
// throw.

#include <chrono>
#include <cstdint>
#include <string_view>

#include "turnstile/types.hpp"

namespace turnstile {

struct Status;  // turnstile/status.hpp

/// A batch of one partition that a worker has finished. In mode transactional, batches of several partitions can share a
/// transaction. Each then has its own report, and the first has the times of the common statements.
struct BatchReport {
  std::string_view topic{};     ///< the topic
  std::int32_t partition = 0;   ///< the partition
  std::string_view handler{};   ///< the handler's name
  std::int64_t done = 0;        ///< took effect now
  std::int64_t skipped = 0;     ///< the handler returned skip
  std::int64_t duplicates = 0;  ///< not run: their ids had taken effect
  std::int64_t retried = 0;     ///< failed, and will run again
  std::int64_t deferred = 0;    ///< stored in the database for a later attempt, or behind such a message of their key
  std::int64_t dead = 0;        ///< dead-lettered or parked
  std::int64_t parked = 0;      ///< of these: only stored in the database, and not sent to a dead letter topic
  /// Runs that were rolled back because another message of the batch failed, and were repeated.
  std::int64_t rerun = 0;
  std::int64_t unclaimed = 0;       ///< of those done or skipped: ran unclaimed during an outage (store_down = "run")
  std::chrono::nanoseconds took{};  ///< from the first to the last step of the batch, or of the shared transaction
  std::int64_t messages = 0;        ///< the size of the batch: the messages that the worker took together
  std::int64_t handler_calls = 0;   ///< how often the handler was called, also in runs that were repeated
  /// Of `took`: in the handler; in mode at_least_once also in what follows a failure. handler_calls gives the mean.
  std::chrono::nanoseconds handler_time{};
  /// Of `took`: in the statement that takes the messages: the insert of their ids, or their claims. 0 without a store.
  std::chrono::nanoseconds claim_time{};
  /// Of `took`: until the results were permanent: COMMIT with the deferred statements, or the record of the results in
  /// mode leased. 0 without a store.
  std::chrono::nanoseconds commit_time{};
};

/// A permit that had to be waited for. A permit that was there at once is not reported.
struct PermitReport {
  std::string_view topic{};           ///< the topic whose messages waited
  std::string_view limiter{};         ///< the name of the limit
  std::chrono::nanoseconds waited{};  ///< from the request to the permit
};

/// A message with a reportable event: a retry, a dead letter, a mismatch, or a stall.
struct MessageReport {
  std::string_view topic{};           ///< the topic
  std::int32_t partition = 0;         ///< the partition
  Offset offset = 0;                  ///< the message's offset
  std::string_view handler{};         ///< the handler's name
  int attempt = 0;                    ///< the number of the attempt
  std::string_view why{};             ///< the reason, for people
  std::chrono::milliseconds delay{};  ///< until the next attempt; for a stall, how long it has lasted
  /// For a dead letter: to_text(DeadReason), such as "handler_failed". Otherwise empty.
  std::string_view reason{};
};

/// The assignment of partitions has changed.
struct RebalanceReport {
  std::int64_t partitions = 0;  ///< how many this process owns now, of all topics
  /// From the revocation to the new assignment, both with their waits for handlers and for PostgreSQL. In between, the
  /// revoked partitions stood still. For the first assignment: since the consumer subscribed.
  std::chrono::milliseconds took{};
};

/// Old ids were deleted.
struct PurgeReport {
  std::int64_t deleted = 0;          ///< number of ids
  std::chrono::milliseconds took{};  ///< the time of the statement
};

/// The events of a topic's messages. Override the functions that you need.
class Observer {
 public:
  virtual ~Observer() = default;
  /// A worker has finished a batch.
  virtual void on_batch(const BatchReport&) noexcept {}
  /// A handler starts. The limiter's name is empty if the topic has no limit.
  virtual void on_handler_start(std::string_view /*topic*/, std::string_view /*limiter*/) noexcept {}
  /// A handler has ended.
  virtual void on_handler_stop(std::string_view /*topic*/, std::string_view /*limiter*/) noexcept {}
  /// A batch begins under a permit that was waited for.
  virtual void on_permit(const PermitReport&) noexcept {}
  /// A message failed. It runs again after `delay`.
  virtual void on_retry(const MessageReport&) noexcept {}
  /// A message will not run again.
  virtual void on_dead_letter(const MessageReport&) noexcept {}
  /// The watchdog found a partition without progress. `offset` is the oldest message that waits (-1: none was read
  /// yet). `why` tells what it waits for: its handler, a permit, or the database.
  virtual void on_stall(const MessageReport&) noexcept {}
  /// The process now owns a partition of the topic.
  virtual void on_assigned(const TopicPartition&, Epoch) noexcept {}
  /// The process no longer owns the partition.
  virtual void on_revoked(const TopicPartition&) noexcept {}
  /// The store of ids became unavailable (false) or available again (true).
  virtual void on_store(bool /*available*/) noexcept {}
  /// Partitions were assigned.
  virtual void on_rebalance(const RebalanceReport&) noexcept {}
  /// This process has deleted old ids.
  virtual void on_purge(const PurgeReport&) noexcept {}
  /// The state of the consumer, once a second while it runs or is halted, and once when it has ended. A thread of its own calls it,
  /// so that it may take longer than the other functions. It must not call Consumer::health() or Consumer::status().
  virtual void on_status(const Status&) noexcept {}
};

}  // namespace turnstile
