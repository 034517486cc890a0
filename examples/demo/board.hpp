#pragma once
// The notice board: a file mapped into the demo and into its consumer processes, on which each writes what happens to
// it. It outlives a process that is killed, so that one can see what it was doing at that moment.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>

namespace demo {

inline constexpr int kPartitions = 6;
inline constexpr int kFirstConsumers = 3;
/// With the one that joins after the kill.
inline constexpr int kMostConsumers = 4;

/// What one consumer process writes of itself. Counted by the demo's own handler and broker, except where said.
struct Slot {
  std::atomic<std::int64_t> starts{0};      ///< handler runs begun
  std::atomic<std::int64_t> stops{0};       ///< handler runs ended, with or without an exception
  std::atomic<std::int64_t> delivered{0};   ///< records that Kafka handed to this process
  std::atomic<std::uint32_t> assigned{0};   ///< one bit for each partition that it owns (from the Observer)
  std::atomic<std::int64_t> done{0};        ///< took effect, by the framework's account (from the Observer)
  std::atomic<std::int64_t> duplicates{0};  ///< refused, by the framework's account (from the Observer)
  std::atomic<std::int64_t> failed{0};      ///< retries and dead letters (from the Observer)
  /// Records that were delivered to it and not settled when their partition was taken away or it ended: counted for each partition at
  /// that moment.
  std::atomic<std::int64_t> handed_on{0};

  [[nodiscard]] std::int64_t running() const { return starts.load() - stops.load(); }
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "processes share these");

/// Thread-safe, and safe between processes. Movable only before it is shared with threads.
class Board {
 public:
  /// A new, empty board with room for offsets below `capacity` in each partition. Throws std::system_error.
  static Board create(const std::string& file, std::int64_t capacity);
  /// The board that another process made.
  static Board open(const std::string& file);
  Board(Board&& other) noexcept;
  Board& operator=(Board&&) = delete;
  ~Board();

  /// `consumer` counts from 1.
  [[nodiscard]] Slot& slot(int consumer) const;
  [[nodiscard]] std::span<Slot> slots() const;

  /// A handler begins, or ends, in the consumer's process.
  void handler_starts(int consumer) const;
  void handler_stops(int consumer) const;
  /// Handlers that run now, in all living processes.
  [[nodiscard]] int running() const;
  /// The most that ran at once since take_most_running() was last called.
  [[nodiscard]] int most_running() const;
  /// The same; begins anew with those that run.
  [[nodiscard]] int take_most_running() const;

  /// When a handler last began while kLoweredLimit others ran, and the most that ran at a handler's begin since then.
  struct AtLowered {
    std::chrono::steady_clock::time_point last_above;
    int most_since = 0;
  };
  [[nodiscard]] AtLowered at_lowered() const;

  /// Kafka handed the record to the consumer.
  void delivered(int consumer, std::int32_t partition, std::int64_t offset) const;
  /// Its handlers run no more. From now on, a record that had been handed to this consumer and comes to another one counts as redelivered.
  void killed(int consumer) const;
  [[nodiscard]] std::int64_t redelivered() const;

 private:
  struct Head;
  Board(int file, bool fresh, std::int64_t capacity);

  void* memory_ = nullptr;
  std::size_t size_ = 0;
  Head* head_ = nullptr;
  /// For each partition and offset, one bit for each consumer that was handed the record.
  std::atomic<std::uint8_t>* seen_ = nullptr;
};

}  // namespace demo
