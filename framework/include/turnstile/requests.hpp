#pragma once
// What each store decides alike of numbered requests: which are fresh. Values; nothing here is shared between threads.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "turnstile/ports/inbox.hpp"
#include "turnstile/ports/producers.hpp"

namespace turnstile {

/// A number that no producer reaches by counting its requests, and a step that none takes: such a number is an error of its producer. It
/// is refused, since a window that had moved to it would refuse all numbers that follow.
inline constexpr std::int64_t kHighestNumber = std::int64_t{1} << 62,  ///< a higher number is refused
    kFurthestAhead = std::int64_t{1} << 56;  ///< a number further ahead of the highest one is refused

/// Which of a producer's last requests have been seen in one partition. A value.
class RequestWindow {
 public:
  /// `size`: how many numbers back it remembers; a multiple of 8.
  explicit RequestWindow(std::int64_t size);
  /// What is kept of it.
  struct Kept {
    std::int64_t high = 0;   ///< the highest number seen
    std::int64_t low = 0;    ///< this one and those before it are not told apart any more
    std::int64_t acked = 0;  ///< see Request
    std::string seen{};      ///< a ring of bits: number n has bit n modulo their count
  };
  /// `kept` may be of another size.
  RequestWindow(std::int64_t size, Kept kept);

  /// Where a number lies, seen from the window.
  enum class Place : std::uint8_t {
    fresh,  ///< not seen before; it is now
    seen,   ///< it was
    /// Too far back to know, and its producer has not said that it is done with it. Or above kHighestNumber, or more than
    /// kFurthestAhead above the highest number seen: then the window stays as it is.
    outside,
  };
  /// Looks a request up, and takes it in if it is fresh.
  Place admit(const Request& request);
  /// Whether this one was seen, as far as that is known.
  [[nodiscard]] bool has_seen(const Request& request) const noexcept;

  /// What is to be stored of the window.
  [[nodiscard]] const Kept& kept() const noexcept { return kept_; }
  /// Responses of this number and of those before it are needed no more.
  [[nodiscard]] std::int64_t forgotten() const noexcept;

 private:
  /// Of one that is too far back to be known by itself: its producer does not ask for its response any more.
  [[nodiscard]] static bool was_acked(const Request& request, std::int64_t acked) noexcept {
    return request.number <= acked && !request.replayed;
  }
  /// Not by counting.
  [[nodiscard]] bool out_of_reach(std::int64_t number) const noexcept {
    return number > kHighestNumber || (kept_.high > 0 && number > kept_.high && number - kept_.high > kFurthestAhead);
  }
  [[nodiscard]] std::int64_t size() const noexcept { return static_cast<std::int64_t>(kept_.seen.size()) * 8; }
  [[nodiscard]] bool has(std::int64_t number) const noexcept;
  void set(std::int64_t number, bool on) noexcept;
  void advance(std::int64_t to) noexcept;

  Kept kept_;
};

/// The producers of a batch, as the store knows them in one partition, and what its requests change.
class RequestWindows {
 public:
  /// What the store has of one producer, and whether the batch has changed it.
  struct Row {
    std::optional<Timestamp> expired;  ///< when its session ended
    RequestWindow window;              ///< its last numbers in this partition
    bool changed = false;              ///< whether it must be stored
  };
  /// Makes a producer of the batch known.
  void add(const MessageId& producer, Row row) { rows_.insert_or_assign(producer, std::move(row)); }
  /// In the order of the partition. A producer that was not added is unknown.
  Admission admit(const Request& request);
  /// All producers that were added.
  [[nodiscard]] const std::map<MessageId, Row>& rows() const noexcept { return rows_; }

 private:
  std::map<MessageId, Row> rows_;
};

}  // namespace turnstile
