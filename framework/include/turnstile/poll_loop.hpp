#pragma once
// The same decorators on a poll loop of one's own: you poll, handle() settles one message, you commit its offset.

#include <memory>
#include <string>

#include "turnstile/consumer.hpp"
#include "turnstile/error.hpp"

namespace turnstile {

/// What became of the message. After any of them its offset may be committed, if may_commit() allows it.
enum class Settled : std::uint8_t { done, skipped, duplicate, dead_letter };

/// Thrown by PollLoop::handle() after PollLoop::stop(): nothing was decided. Do not commit the message; it comes again.
struct Stopped : Error {
  using Error::Error;
};

/// **Give a topic that you delete and create again another name**. Its offsets begin again, and the loop can take its records for those of
/// the old one. The loop finds a recreated topic when a message comes that lies below what was settled, and all of this is so:
/// - The topic is in the Kafka of [kafka], and that Kafka answers.
/// - The new log ends below what was settled of the old one, or this process has handled another record at the message's offset. It
///   remembers the last 1,024 of each partition.
/// - Where offsets count (mode sequence, numbered requests, offsets as ids): the group of [kafka] has no committed offset in the new topic.
/// Then the loop logs a warning and begins the topic anew. Otherwise:
/// - where offsets count, records below what was settled count as duplicates, and do not run;
/// - where an earlier record at the same offset became a dead letter, a new one is not sent, nor kept for `turnstile dlq`;
/// - a record at the offset of one that killed its process does not run;
/// - after a failover to a replica that lagged, ReadAgain does not name what was lost below the old topic's watermark.
/// Mode none keeps no record of dead letters in the database, but records that killed their process are known by their offset there, too.
/// A Consumer reads the topic itself, and so finds more of them.
///
/// A loop that starts after the database has lost what was committed (a failover to a replica that lagged, a restored backup) has to start
/// early enough: at the partition's watermark, which `turnstile inbox` shows.
///
/// **The consumer that it polls needs `auto.offset.reset=earliest`**, or `error`. ReadAgain can name an offset that Kafka has deleted by the
/// time of the seek (retention). With `latest`, librdkafka's default, the consumer then goes to the end of the log, and the messages in
/// between are never handled. If the loop's topic is in the Kafka of [kafka], ReadAgain names no offset below the start of the log, as far as that Kafka answers;
/// records between the watermark and that start are named in the log (warning). A topic of that name there is taken for the loop's own.
/// Without that Kafka, compare the offset with rd_kafka_query_watermark_offsets() before the seek.
///
/// A partition must be with one loop of a group at a time, as Kafka's assignment gives it. Each loop claims a partition with its first
/// message: two loops that handle one partition fence each other, and both throw Fenced again and again. Two groups have nothing to do
/// with each other. The first message that a group handles of a partition is where the group begins there: those before it are not missed.
///
/// Thread-safe: handle() may be called from several threads, for different partitions at once.
class PollLoop {
 public:
  /// `config` need not hold [kafka] beyond what sending needs: dead letters, and what handlers publish and reply. Without a broker that
  /// waits in the outbox until a process that has one sends it. The loop's own topic need not be in that Kafka; where it is not,
  /// set keep_ids_for, or ids are kept forever.
  explicit PollLoop(Config config);
  /// Over other parts than those of connect(), as in tests.
  PollLoop(Config config, Backends backends);
  ~PollLoop();
  PollLoop(const PollLoop&) = delete;
  PollLoop& operator=(const PollLoop&) = delete;

  /// One handler for one topic, each topic once, before the first handle().
  PollLoop& topic(const std::string& name, Pipeline pipeline);
  /// Log through this; otherwise to stderr, as [log] says.
  PollLoop& logger(std::shared_ptr<spdlog::logger> logger);

  /// Runs the message to its end on this thread: waits for a permit, retries with backoff, dead-letters.
  /// The first message of a partition claims it: the epoch is bumped, and an older owner's transactions are refused.
  /// Of one partition messages come one after another, in the order of their offsets.
  /// Attempts are counted until the message is settled or its partition is taken away, also over several calls with the same message
  /// (after StoreUnavailable, and after ReadAgain). A process that starts again counts from 1.
  /// Throws:
  /// - Fenced: another member has the partition now; see below.
  /// - ReadAgain: the database may have lost what was settled, also before this process began. Seek the partition, and call revoked().
  ///   Each message of the partition throws it until then.
  /// - Duplicate: its id was seen before, and the policy is raise.
  /// - StoreUnavailable: nothing was decided; handle the message again.
  /// - BrokerError: the dead letter topic refused it.
  /// - Halted: its token log is gone or damaged, or stop_after_dead messages in a row were dead. Stop, and do not commit.
  /// - TransactionEnded: the handler ended the transaction that it was called in, and nothing was settled. Stop, do not commit, and mend
  ///   the handler.
  /// - ConfigError, SchemaError: at the first call.
  /// - Stopped: stop() was called; do not commit.
  ///
  /// After Fenced drop the message and those behind it that you have in hand, and do not commit. If Kafka has not taken the partition away,
  /// nobody else may read it: seek it to the first message that threw Fenced, and call revoked(). Without that seek, those that you dropped
  /// are read again only when a later message of the partition comes: that one throws ReadAgain.
  Settled handle(const Message& message);
  /// Ends each handle(), also those that other threads are in, and all later ones; there is no way back. It may be called from any
  /// thread and from a signal handler, while this object lives: it sets a flag, and a thread of the loop looks for that every 50 ms.
  /// Then waits for permits and between attempts end, and the `stop_token` of running handlers is set. A handle() that has not
  /// settled its message throws Stopped; one that has settled it returns as always. A handler that ignores its `stop_token`, and
  /// calls to PostgreSQL and Kafka that are under way, are waited for.
  void stop() noexcept;
  /// Whether `position` may be committed to Kafka; its offset is 1 past the last settled message. **In mode leased, ask before each
  /// commit, and switch automatic commits off.** It is false only while messages are read again after ReadAgain, and below the offset
  /// where that began. Kafka's offset then tells the next owner that the messages below it were settled before. After a
  /// lower commit, the next owner runs those of them again that the database has lost. Does not ask the database, and does not throw.
  [[nodiscard]] bool may_commit(const TopicPartitionOffset& position) const;
  /// Call it from your rebalance callback when partitions are taken away, and after the seek that ReadAgain asks for: the next message
  /// claims them anew. Before that, drop the partition's messages that you have in hand: handle() takes the next one for what the seek
  /// has brought. A rebalance between that seek and the next message is a second call: if the partition comes back above the
  /// database's watermark, ReadAgain is thrown again. Repeat a seek that failed before you call this. If a rebalance took the
  /// partition away before the seek, call this a second time instead of the seek.
  void revoked(const TopicPartition& partition);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace turnstile
