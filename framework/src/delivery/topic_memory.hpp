#pragma once
// What a topic remembers from unit to unit: dead letters that could not be stored, and effects that were not recorded.
// Also how often messages were busy, and how long handlers take.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "delivery/dead_letter_streaks.hpp"
#include "delivery/dead_letters.hpp"
#include "delivery/owned_partition.hpp"
#include "turnstile/message.hpp"

namespace turnstile::detail {

/// Thread-safe.
class TopicMemory {
 public:
  /// See DeadLetterStreaks.
  explicit TopicMemory(std::int64_t stop_after_dead) : streaks_(stop_after_dead) {}

  /// A dead letter that could not be stored yet. The handler must not run again for its message. Absent: there is none,
  /// or another process has owned the partition since.
  [[nodiscard]] std::optional<DeadLetter> pending_dead_letter(const OwnedPartition& place,
                                                              const Message& message) const;
  /// Why the last call could not store the dead letter. Absent: no dead letter waits.
  [[nodiscard]] std::optional<std::string> why_dead_letter_waits(const OwnedPartition& place,
                                                                 const Message& message) const;
  void keep_pending(const OwnedPartition& place, const Message& message, const DeadLetter& dead_letter,
                    const std::string& refused);
  void drop_pending(const OwnedPartition& place, const Message& message);
  /// Drops dead letters, counts and streaks of this partition: its offsets stand for other records now.
  void forget(const TopicPartition& at);

  /// Counts that the database was busy for the message's handler or for the commit. Returns how often in a row it was
  /// busy.
  int count_busy(const OwnedPartition& place, Offset offset);
  /// How often in a row it was busy.
  [[nodiscard]] int busy_tries(const OwnedPartition& place, Offset offset) const;
  void forget_busy(const OwnedPartition& place, Offset offset);

  /// Whether the store was busy when a unit began, as while another session locks its tables. True: report it. It was busy
  /// for the last unit, too, and has not been reported for a minute.
  [[nodiscard]] bool note_begin(bool busy) noexcept;

  /// Mode leased: messages that took effect, and whose results could not be recorded.
  void note_unrecorded(const MessageId& id);
  void drop_unrecorded(const MessageId& id);
  [[nodiscard]] bool is_unrecorded(const MessageId& id) const;

  /// Mode leased: the number of handlers whose begin the store records together.
  [[nodiscard]] std::size_t begun_together() const noexcept;
  void note_handler_time(std::chrono::nanoseconds took) noexcept;

  [[nodiscard]] DeadLetterStreaks& streaks() noexcept { return streaks_; }

 private:
  struct Pending {
    std::optional<Fence> fence;  ///< the fence when the message failed; absent in mode at_least_once
    Timestamp timestamp;         ///< of the record: a recreated topic has another record at its offset
    DeadLetter dead_letter;
    std::string refused;  ///< why the last call could not store it
  };
  [[nodiscard]] const Pending* pending(const OwnedPartition& place, const Message& message) const;  ///< under mutex_

  mutable std::mutex mutex_;
  std::map<std::pair<std::int32_t, Offset>, Pending> pending_;
  std::atomic<std::size_t> pending_count_{0};
  std::map<std::pair<std::int32_t, Offset>, int> busy_;
  std::atomic<std::size_t> busy_count_{0};
  std::atomic<int> busy_begins_{0};  ///< in a row
  std::atomic<std::chrono::steady_clock::time_point> report_busy_{};
  std::set<MessageId> unrecorded_;
  std::atomic<std::size_t> unrecorded_count_{0};
  std::atomic<std::int64_t> timed_{0};            ///< timed calls of handlers with one message each
  std::atomic<std::int64_t> mean_handler_ns_{0};  ///< moving average
  DeadLetterStreaks streaks_;
};

}  // namespace turnstile::detail
