#pragma once
// Whether what the broker has under a partition's name is still the log that was read: a topic can be deleted and created again while
// it is read, and an unclean election of a leader can cut records off. Offsets then begin again, and stand for other records.
// Pure; not thread-safe: the polling thread owns it.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "turnstile/message.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

/// The last records of a partition that were read, by offset.
class LogMemory {
 public:
  enum class Finding : std::uint8_t {
    ahead,  ///< behind all that was read
    same,   ///< it was read before
    other,  ///< at its offset another record was read, or none where there was none
    older,  ///< older than what is remembered
  };
  [[nodiscard]] Finding compare(const Message& message) const noexcept;
  /// Whether a record at this offset is remembered; compare() answers `other` also where none is.
  [[nodiscard]] bool has_read(Offset offset) const noexcept;
  /// Only for one that is ahead.
  void note(const Message& message);
  void forget() noexcept { count_ = 0; }
  /// The oldest that is remembered.
  [[nodiscard]] std::optional<Offset> first() const noexcept;

 private:
  struct Entry {
    Offset offset = 0;
    std::uint64_t mark = 0;  ///< of time and sizes: two different records hardly share it
  };
  static constexpr std::size_t kMost = 1'024;
  static std::uint64_t mark_of(const Message& message) noexcept;
  /// The first at or above that offset; not for one above all.
  [[nodiscard]] const Entry& first_from(Offset offset) const noexcept;
  /// The `i`-th oldest.
  [[nodiscard]] const Entry& at(std::size_t i) const noexcept { return ring_[(next_ + kMost - count_ + i) % kMost]; }

  std::vector<Entry> ring_;
  std::size_t next_ = 0;
  std::size_t count_ = 0;
};

class LogWatch {
 public:
  /// What Kafka and the store say of a partition.
  struct Known {
    std::optional<Offset> committed{};  ///< the group's offset
    std::optional<Offset> done{};       ///< all below it has taken effect
    Offset first = 0;                   ///< the broker's first record
    Offset end = 0;                     ///< behind its last one
  };
  struct Verdict {
    enum class Kind : std::uint8_t {
      same,       ///< nothing speaks against its being the log that was read
      recreated,  ///< the topic was deleted, and created again: none of its records was read
      truncated,  ///< records were cut off its end: from `from` on they are others
    };
    Kind kind = Kind::same;
    std::optional<Offset>
        from{};         ///< where to read it from; `same`: nothing, unless it must be lower than the group's offset
    bool exact = true;  ///< truncated: no record below `from` is another one
    std::string why{};
  };

  enum class Look : std::uint8_t {
    follow,  ///< they follow those that were read
    repeat,  ///< some were read before: librdkafka does that now and then. Or the same data was published again, to another topic
    broken,  ///< nothing of them may be used, and the partition must be read again from where judge() says
  };
  /// Looks at records as they were taken.
  [[nodiscard]] Look look(const TopicPartition& at, std::span<const Message> messages);
  /// Reading begins, or begins anew, wherever that is.
  void begin(const TopicPartition& at) { logs_[at].taken.reset(); }
  /// The partition was given to us, by another member or anew: what was read of it earlier may be out of date.
  void assigned(const TopicPartition& at);
  /// Kafka has an offset of the group. It keeps one for as long as the topic exists and the group has members.
  void has_offset(const TopicPartition& at) { logs_[at].has_offset = true; }
  [[nodiscard]] bool had_offset(const TopicPartition& at) const;
  /// The topic was seen to be missing.
  void is_gone(const TopicPartition& at) { logs_[at].gone = true; }
  /// Something is known of the partition that judge() should hear of.
  [[nodiscard]] bool suspects(const TopicPartition& at) const;
  [[nodiscard]] Verdict judge(const TopicPartition& at, const Known& known) const;
  /// judge()'s answer was acted on.
  void settle(const TopicPartition& at, const Verdict& verdict);

 private:
  struct Log {
    LogMemory memory;
    std::optional<Offset> taken;       ///< the highest offset since begin()
    std::optional<Offset> other_from;  ///< there another record was found than was read
    bool went_back = false;            ///< offsets began again, at records that are not remembered
    bool has_offset = false;
    bool gone = false;
  };
  std::map<TopicPartition, Log> logs_;
};

}  // namespace turnstile
