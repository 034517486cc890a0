#pragma once
// Checks whether the broker still has the log that was read. A topic can be deleted and created again while it is read,
// and an unclean leader election can cut records off. Offsets then start again, and stand for other records. Pure; not
// thread-safe: only the thread that has the turn uses it.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/incarnation_text.hpp"
#include "engine/log_memory.hpp"
#include "turnstile/lease_clock.hpp"
#include "turnstile/message.hpp"
#include "turnstile/types.hpp"

namespace turnstile::detail {

class LogIdentity {
 public:
  /// What Kafka and the store know about a partition.
  struct Known {
    std::optional<Offset> committed{};  ///< the group's offset
    std::optional<Offset> done{};       ///< all messages below it have taken effect
    Offset first = 0;                   ///< the broker's first record
    /// The offset after its last record. An open transaction may hide records from consumers: they count if `committed`
    /// or `done` is above the first of them.
    Offset end = 0;
    /// The group's offset in Kafka belongs to an earlier log. `committed` is then where the store is in this log.
    bool committed_earlier = false;
    std::optional<Offset> watermark{};  ///< the store's, in the log of its claim
  };
  struct Verdict {
    enum class Kind : std::uint8_t {
      same,       ///< no sign that the log is another one
      recreated,  ///< the topic was deleted and created again: none of its records was read
      truncated,  ///< records were cut off its end: from `from` on, records are different ones
      forgotten,  ///< it is the log that was read, but the store no longer knows its incarnation
    };
    Kind kind = Kind::same;
    /// Where to read from; `same`: absent, unless it must be lower than the group's offset.
    std::optional<Offset> from{};
    bool exact = true;  ///< truncated: whether all records below `from` are the same
    std::string why{};
  };

  enum class Look : std::uint8_t {
    follow,  ///< they follow the records that were read
    /// Some were read before. librdkafka does that occasionally. Or the same data was published again, to another
    /// topic.
    repeat,
    /// None of them may be used. The partition must be read again from the offset that judge() returns.
    broken,
  };
  /// Checks records that were just taken.
  [[nodiscard]] Look look(const TopicPartition& at, std::span<const Message> messages);
  /// Reading begins, or begins again, at any offset.
  void begin(const TopicPartition& at) { logs_[at].taken.reset(); }
  /// The partition was assigned, by a rebalance or anew: records that were read earlier may be out of date.
  void assigned(const TopicPartition& at);
  /// Kafka has an offset of the group. Kafka keeps it as long as the topic exists and the group has members.
  void has_offset(const TopicPartition& at, LeaseClock::time_point seen) { logs_[at].offset_seen = seen; }
  /// The group may have had no members since. Then Kafka may have deleted offsets of topics that still exist.
  void forget_offsets(LeaseClock::time_point seen_before);
  [[nodiscard]] bool had_offset(const TopicPartition& at) const;
  /// Kafka must have an offset of the group. If it has none, the topic was recreated.
  [[nodiscard]] bool expects_offset(const TopicPartition& at) const;
  /// Another member has committed an offset with this text, which metadata() returned there. If it belongs to a later
  /// incarnation than the one that is known, everything that is known is about the old log, and is forgotten.
  void begun_elsewhere(const TopicPartition& at, const std::string& metadata);
  /// This process has claimed the partition under this fence. Call it after claimed().
  void claimed_under(const TopicPartition& at, const Fence& fence) { logs_[at].fence = fence; }
  /// This process has released the partition, and runs nothing of it any more.
  void released(const TopicPartition& at) { logs_[at].released = true; }
  /// Returns the fence of the last claim, once for each released(). Absent: there was no claim, or the partition was
  /// assigned to this process since, or another member has begun a log of it.
  [[nodiscard]] std::optional<Fence> take_released(const TopicPartition& at);
  /// All partitions for which had_offset() is true.
  [[nodiscard]] std::vector<TopicPartition> with_offset() const;
  /// This partition shows that its topic was recreated, so all its partitions are other logs.
  void shows_recreation(const TopicPartition& at);
  /// The topic was found to be missing, so all its partitions are other logs from now on. is_gone() is for those that
  /// this process reads; the others are judged once it claims them.
  void topic_is_gone(const std::string& topic) { ++recreations_[topic]; }
  void is_gone(const TopicPartition& at);
  /// A topic of that name exists again. If its log was begun since is_gone(), it is not begun a second time: judge() then
  /// lets what was read of it be read again and compared.
  void exists_again(const TopicPartition& at);
  [[nodiscard]] bool was_gone(const TopicPartition& at) const;
  /// The store has the partition under this incarnation. If that is a later one than before, another member has found
  /// another log, and begun it: everything that is known of the partition is about the old log, and is forgotten.
  /// Returns whether it was. If it is an earlier one, the store went back to a time before this log: judge() then
  /// returns `forgotten`.
  bool claimed(const TopicPartition& at, std::int32_t incarnation);
  /// Kafka has an offset of the group with this text, which metadata() of any process returned. Call it after
  /// claimed(). Returns false if the offset belongs to an earlier incarnation than the newest that is known. If it belongs
  /// to a later one than the store's, the store went back to a time before that log: judge() then returns `forgotten`.
  bool read(const TopicPartition& at, const std::string& metadata);
  /// To be committed with an offset of the log that is read. Empty before a claim.
  [[nodiscard]] std::string metadata(const TopicPartition& at) const;
  /// Whether there is a sign about the partition that judge() must examine.
  [[nodiscard]] bool suspects(const TopicPartition& at) const;
  [[nodiscard]] Verdict judge(const TopicPartition& at, const Known& known) const;
  /// The caller has acted on the verdict. The partition has this incarnation now. `start`: where it is read from, if not
  /// where the log that was read continues.
  void settle(const TopicPartition& at, const Verdict& verdict, std::int32_t incarnation, std::optional<Offset> start);
  /// The highest incarnation of the partition that is known. The store may know a lower one: see claimed().
  [[nodiscard]] std::int32_t incarnation(const TopicPartition& at) const;

 private:
  struct Log {
    LogMemory memory;
    std::optional<Offset> taken;       ///< the highest offset since begin()
    std::optional<Offset> other_from;  ///< the offset at which a record differed from the one read before
    std::int64_t recreation = 0;       ///< the topic's, that was taken into account
    bool went_back = false;            ///< offsets started again, at records that are not remembered
    std::optional<LeaseClock::time_point> offset_seen;  ///< Kafka had an offset of the group
    bool gone = false;
    bool begun_since_gone = false;            ///< the log that exists now, before the topic was reported to exist again
    bool exists_again = false;                ///< and it was begun before
    bool begun_elsewhere = false;             ///< since the last claim
    std::optional<Fence> fence;               ///< of the last claim of this process
    bool released = false;                    ///< since then
    std::optional<std::int32_t> incarnation;  ///< under which all of this was learnt; absent before a claim
    std::optional<std::int32_t> in_store;     ///< the store's; lower: it has forgotten the later ones
    Incarnations began;

    /// Where the first incarnation begins that the store has forgotten. Absent: it has forgotten none.
    [[nodiscard]] std::optional<Offset> forgotten_from() const;
  };
  /// Whether the topic was recreated since this log was begun, as another partition showed.
  [[nodiscard]] bool is_of_recreated_topic(const TopicPartition& at, const Log& log) const;

  std::map<TopicPartition, Log> logs_;
  std::map<std::string, std::int64_t> recreations_;  ///< of topics, as far as this process has seen them
};

}  // namespace turnstile::detail
