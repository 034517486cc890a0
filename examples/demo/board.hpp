#pragma once
// The notice board: a file that is mapped into the demo and its consumer processes. Each process writes its state
// there. The board outlives a killed process, so it shows what that process was doing.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>

namespace demo {

inline constexpr int kPartitions = 6;
inline constexpr int kFirstConsumers = 3;
/// Including the consumer that joins after the kill.
inline constexpr int kMostConsumers = 4;

/// The state of a consumer process. The demo's own handler and broker count, except for members marked (from the
/// Observer).
struct Slot {
  std::atomic<std::int64_t> starts{0};      ///< handler runs begun
  std::atomic<std::int64_t> stops{0};       ///< handler runs ended, with or without an exception
  std::atomic<std::int64_t> delivered{0};   ///< records that this process received from Kafka
  std::atomic<std::uint32_t> assigned{0};   ///< a bit for each partition that it owns (from the Observer)
  std::atomic<std::int64_t> done{0};        ///< took effect, as the framework counts (from the Observer)
  std::atomic<std::int64_t> duplicates{0};  ///< rejected, as the framework counts (from the Observer)
  std::atomic<std::int64_t> failed{0};      ///< retries and dead letters (from the Observer)
  /// Records that it had received and not settled when their partition was revoked, or when it ended. They are counted
  /// for each partition at that moment.
  std::atomic<std::int64_t> handed_on{0};

  [[nodiscard]] std::int64_t running() const { return starts.load() - stops.load(); }
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "processes share these");

/// Thread-safe, and safe between processes. Move it only before threads share it.
class Board {
 public:
  /// A new, empty board with room for offsets below `capacity` in each partition. Throws std::system_error.
  static Board create(const std::string& file, std::int64_t capacity);
  /// The board that another process created.
  static Board open(const std::string& file);
  Board(Board&& other) noexcept;
  Board& operator=(Board&&) = delete;
  ~Board();

  /// `consumer` counts from 1.
  [[nodiscard]] Slot& slot(int consumer) const;
  [[nodiscard]] std::span<Slot> slots() const;

  /// A handler starts, or ends, in the consumer's process.
  void handler_starts(int consumer) const;
  void handler_stops(int consumer) const;
  /// Running handlers in all live processes.
  [[nodiscard]] int running() const;
  /// The most handlers that ran at once since the last take_most_running().
  [[nodiscard]] int most_running() const;
  /// The same; restarts the maximum with the running handlers.
  [[nodiscard]] int take_most_running() const;

  /// When a handler last started while kLoweredLimit others ran. And the most that ran at the start of a handler since
  /// then.
  struct AtLowered {
    std::chrono::steady_clock::time_point last_above;
    int most_since = 0;
  };
  [[nodiscard]] AtLowered at_lowered() const;

  /// The consumer received the record from Kafka.
  void delivered(int consumer, std::int32_t partition, std::int64_t offset) const;
  /// The consumer's handlers no longer run. From now on, a record that it had received counts as redelivered when
  /// another consumer receives it.
  void killed(int consumer) const;
  [[nodiscard]] std::int64_t redelivered() const;

 private:
  struct Head;
  Board(int file, bool fresh, std::int64_t capacity);

  void* memory_ = nullptr;
  std::size_t size_ = 0;
  Head* head_ = nullptr;
  /// For each partition and offset, a bit for each consumer that has received the record.
  std::atomic<std::uint8_t>* seen_ = nullptr;
};

}  // namespace demo
