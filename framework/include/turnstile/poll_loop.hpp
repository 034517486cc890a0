#pragma once
// The same decorators in your own poll loop: you poll, handle() settles a message, and you commit its offset.

#include <memory>
#include <string>

#include "turnstile/backends.hpp"
#include "turnstile/config.hpp"
#include "turnstile/error.hpp"
#include "turnstile/handler.hpp"

namespace turnstile::detail {
struct PollLoopState;
}

namespace turnstile {

/// How handle() settled the message. In each case you may commit its offset if may_commit() allows it.
enum class Settled : std::uint8_t {
  done,         ///< its handler has succeeded
  skipped,      ///< its handler has rejected it with Outcome::skip(), or it is a replay for another handler or group
  duplicate,    ///< its id was seen before
  dead_letter,  ///< it failed permanently, and is a dead letter or parked
  /// It has not taken effect. retry(...).durable() has stored it: its handler failed, or an earlier message of its key
  /// waits. PostgreSQL has the record, and the relay publishes it to its topic again when it is due.
  deferred,
};

/// PollLoop::handle() throws it after PollLoop::stop(). Nothing was decided. Do not commit the message: Kafka delivers
/// it again.
struct Stopped : Error {
  /// The code is loop_stopped.
  explicit Stopped(const std::string& message) : Error(Code::loop_stopped, message) {}
};

/// **If you delete a topic and create it again, give it another name**. The offsets of a recreated topic start again,
/// and the loop can mistake its records for records of the old topic.
///
/// The loop detects a recreated topic when a message lies below the settled offset and all of these are true:
/// - The topic is in the Kafka of [kafka], and that Kafka answers.
/// - The new log ends below the settled offset of the old topic, or this process has handled another record at the
///   message's offset. It remembers the last 1,024 records of each partition. It forgets them when it claims the
///   partition and another member has started a recreated topic anew in the meantime.
/// - Where offsets count (modes by_offset and numbered, offsets as ids): the group of [kafka] has no committed
///   offset in the new topic.
/// Then the loop logs a warning and starts the topic anew. If it does not detect the new topic:
/// - where offsets count, records below the settled offset are treated as duplicates and do not run;
/// - where an earlier record at the same offset became a dead letter, a new dead letter is neither sent nor stored for
///   `turnstile dlq`;
/// - a record at the offset of a record that killed its process does not run;
/// - after a failover to a lagging replica, ReadAgain does not name the messages that were lost below the old topic's
///   watermark.
/// In mode at_least_once the database stores no dead letters, but it still identifies records that killed their process
/// by their offset. A Consumer reads the topic itself, and therefore detects more recreated topics.
///
/// After a failover to a lagging replica, or a restore of a backup, the database may have lost commits. A loop that
/// starts then must read from the partition's watermark or earlier. `turnstile inbox` shows the watermark.
///
/// **The consumer that you poll needs `auto.offset.reset=earliest`** or `error`. ReadAgain can name an offset that
/// Kafka's retention deletes before the seek. With `latest`, librdkafka's default, the consumer then goes to the end of
/// the log, and the messages in between are never handled.
/// If the loop's topic is in the Kafka of [kafka] and that Kafka answers, ReadAgain names no offset below the start of
/// the log. A warning in the log then names the records between the watermark and that start. The loop assumes that a
/// topic of that name in that Kafka is its own. Without that Kafka, compare the offset with
/// rd_kafka_query_watermark_offsets() before the seek.
///
/// Only one loop of a group may handle a partition at a time, as Kafka's assignment ensures. Each loop claims a
/// partition with the first message that it handles of it. Two loops that handle the same partition fence each other,
/// and both throw Fenced repeatedly. Different groups do not affect each other. A group's handling of a partition
/// begins at the first message that it handles: earlier messages do not count as missed.
///
/// Thread-safe: several threads may call handle(), for different partitions at the same time.
class PollLoop {
 public:
  /// `config` needs only the settings of [kafka] that sending needs: for dead letters, and for what handlers publish
  /// and reply. If no broker is configured, these messages wait in the outbox until a process with a broker sends them.
  /// The loop's own topic may be in another Kafka. In that case set keep_ids_for, because otherwise ids are kept
  /// forever.
  explicit PollLoop(Config config);
  /// Uses these parts instead of those of connect(), for example in tests.
  PollLoop(Config config, Backends backends);
  ~PollLoop();
  PollLoop(const PollLoop&) = delete;
  PollLoop& operator=(const PollLoop&) = delete;

  /// Sets the handler of a topic. Call it once for each topic, before the first handle().
  PollLoop& topic(const std::string& name, Pipeline pipeline);
  /// Sets the logger. Default: a logger to stderr, as [log] configures it.
  PollLoop& logger(std::shared_ptr<spdlog::logger> logger);

  /// Runs the message to its end on this thread: waits for a permit, retries with backoff, and dead-letters.
  /// The first message of a partition claims the partition. The claim increments the epoch, and PostgreSQL rejects an
  /// older owner's transactions. Messages of one partition must come one after another, in the order of their offsets.
  /// In modes by_offset and numbered, a message that comes after one with a higher offset counts as a duplicate, and
  /// never runs.
  /// Attempts are counted until the message is settled or its partition is revoked. They add up over several calls with
  /// the same message, for example after StoreUnavailable or ReadAgain. A restarted process counts from 1.
  /// Throws:
  /// - Fenced: another member owns the partition now; see below.
  /// - ReadAgain: the database may have lost settled messages, including those of earlier processes. Or the handler was
  ///   in mode by_offset or numbered before, and has done this message: `from` then lies above it. Seek the partition,
  ///   and call revoked(). Until then each message of the partition throws ReadAgain.
  /// - Duplicate: the id has taken effect already, and the policy is raise.
  /// - StoreUnavailable: nothing was decided. Handle the message again. With the code store_busy, a table or a
  /// partition was locked for longer than postgres.lock_timeout.
  /// - BrokerError: Kafka refused the dead letter. At the first call: Kafka has no such topic, or does not answer.
  /// - Halted: the token log is missing or damaged, or stop_after_dead messages in a row were dead-lettered. Stop, and
  ///   do not commit.
  /// - TransactionEnded: the handler ended the transaction that it was called in, and nothing was settled. Stop, do not
  ///   commit, and correct the handler.
  /// - ConfigError, SchemaError: at the first call. ConfigError also at the first message of a partition, while the
  ///   handler has claims of mode leased and this loop another mode. Nothing was decided.
  /// - Stopped: stop() was called. Do not commit.
  ///
  /// After Fenced, drop the message and all later messages of the partition that you hold, and do not commit. If Kafka
  /// has not revoked the partition, no other member reads it. In that case seek it to the first message that threw
  /// Fenced, and call revoked(). Without that seek, the dropped messages are read again only after a later message of
  /// the partition has thrown ReadAgain.
  Settled handle(const Message& message);
  /// Ends all calls of handle(), in all threads, and all later calls. It cannot be undone.
  /// Any thread and any signal handler may call it while this object lives. It sets a flag, which a thread of the loop
  /// checks every 50 ms. Waits for permits and waits between attempts then end, and the `stop_token` of running
  /// handlers is set.
  /// A handle() that has not settled its message throws Stopped. A handle() that has settled it returns normally. The
  /// loop waits for a handler that ignores its `stop_token`, and for calls to PostgreSQL and Kafka in progress.
  void stop() noexcept;
  /// Whether you may commit `position` to Kafka. Its offset is 1 past the last settled message.
  /// **In mode leased, call it before each commit, and disable automatic commits**. It returns false only while
  /// messages are read again after ReadAgain, for offsets below the one where ReadAgain was thrown. Kafka's offset then
  /// tells the next owner that the messages below it were settled. After a lower commit, the next owner runs again
  /// those of them that the database has lost.
  /// It does not ask the database, and does not throw.
  [[nodiscard]] bool may_commit(const TopicPartitionOffset& position) const;
  /// Call it from your rebalance callback when partitions are revoked, and after the seek that ReadAgain requests. The
  /// next message then claims the partition anew.
  /// Drop the partition's messages that you hold before you call it: handle() treats the next message as a result of
  /// the seek.
  /// **In mode leased, read a partition that comes back after a rebalance from the group's committed offset.** That
  /// offset tells the loop which messages the group had settled.
  /// A rebalance between that seek and the next message calls it a second time. If the partition comes back above the
  /// database's watermark, handle() throws ReadAgain again.
  /// Repeat a failed seek before you call it. If a rebalance revoked the partition before the seek, call it a second
  /// time instead of the seek.
  void revoked(const TopicPartition& partition);

 private:
  std::unique_ptr<detail::PollLoopState> state_;
};

}  // namespace turnstile
