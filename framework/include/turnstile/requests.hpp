#pragma once
// Duplicate detection for numbered requests, shared by every store implementation. Values; threads share nothing here.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "turnstile/ports/inbox.hpp"
#include "turnstile/ports/producers.hpp"

namespace turnstile {

/// Bounds that no producer reaches by counting its requests. A number beyond them is an error of its producer, and is
/// refused. If a window moved to such a number, it would refuse all numbers that follow.
inline constexpr std::int64_t kHighestNumber = std::int64_t{1} << 62,  ///< a higher number is refused
    kFurthestAhead = std::int64_t{1} << 56;  ///< a number further ahead of the highest number is refused

/// The window of a producer in one partition: which of its last requests have been seen. A value.
class RequestWindow {
 public:
  /// `size` is the number of requests that the window remembers. It must be a multiple of 8.
  explicit RequestWindow(std::int64_t size);
  /// The stored form of the window.
  struct Kept {
    std::int64_t high = 0;   ///< the highest number seen
    std::int64_t low = 0;    ///< numbers up to this one are no longer distinguished
    std::int64_t acked = 0;  ///< see Request
    std::string seen{};      ///< a ring of bits: number n has bit n modulo the number of bits
  };
  /// `kept` may have another size.
  RequestWindow(std::int64_t size, Kept kept);

  /// The position of a number relative to the window.
  enum class Place : std::uint8_t {
    fresh,  ///< not seen before; it is seen from now on
    seen,   ///< seen before
    /// Too old to know, and its producer has not acknowledged it. Or above kHighestNumber, or more than kFurthestAhead
    /// above the highest number seen: the window then does not change.
    outside,
  };
  /// Looks up a request, and records it if it is fresh.
  Place admit(const ports::Request& request);
  /// Whether the request was seen, as far as the window knows.
  [[nodiscard]] bool has_seen(const ports::Request& request) const noexcept;

  /// The form to store.
  [[nodiscard]] const Kept& kept() const noexcept { return kept_; }
  /// Responses up to this number are no longer needed.
  [[nodiscard]] std::int64_t forgotten() const noexcept;

 private:
  /// For a number that is too old for the window: whether its producer has acknowledged it, and no longer asks for its
  /// response.
  [[nodiscard]] static bool was_acked(const ports::Request& request, std::int64_t acked) noexcept {
    return request.number <= acked && !request.replayed;
  }
  /// Whether the number is too high to be reached by counting.
  [[nodiscard]] bool out_of_reach(std::int64_t number) const noexcept {
    return number > kHighestNumber || (kept_.high > 0 && number > kept_.high && number - kept_.high > kFurthestAhead);
  }
  [[nodiscard]] std::int64_t size() const noexcept { return static_cast<std::int64_t>(kept_.seen.size()) * 8; }
  [[nodiscard]] bool has(std::int64_t number) const noexcept;
  void set(std::int64_t number, bool on) noexcept;
  void advance(std::int64_t to) noexcept;

  Kept kept_;
};

/// The producers of a batch, as the store knows them in one partition, and the changes that their requests make.
class RequestWindows {
 public:
  /// The stored state of a producer, and whether the batch has changed it.
  struct Row {
    std::optional<Timestamp> expired;  ///< when its session ended; absent: it has not
    RequestWindow window;              ///< its last numbers in this partition
    bool changed = false;              ///< whether the store must write it
  };
  /// Adds a producer of the batch.
  void add(const MessageId& producer, Row row) { rows_.insert_or_assign(producer, std::move(row)); }
  /// Call it in the order of the partition. A producer that was not added is unknown.
  ports::Admission admit(const ports::Request& request);
  /// All producers that were added.
  [[nodiscard]] const std::map<MessageId, Row>& rows() const noexcept { return rows_; }

 private:
  std::map<MessageId, Row> rows_;
};

}  // namespace turnstile
