#pragma once
// Remembers the last records of a partition, to compare them with records that are read at the same offsets later. Pure;
// not thread-safe.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "turnstile/message.hpp"
#include "turnstile/types.hpp"

namespace turnstile::detail {

/// The last records of a partition that were read, by offset.
class LogMemory {
 public:
  enum class Finding : std::uint8_t {
    ahead,  ///< after all records that were read
    same,   ///< it was read before
    other,  ///< another record was read at its offset, or none where there was none
    older,  ///< older than the remembered records
  };
  [[nodiscard]] Finding compare(const Message& message) const noexcept;
  /// Whether a record at this offset is remembered. compare() also returns `other` if none is.
  [[nodiscard]] bool has_read(Offset offset) const noexcept;
  /// Only for a record for which compare() returns `ahead`.
  void note(const Message& message);
  void forget() noexcept { count_ = 0; }
  /// The oldest remembered record.
  [[nodiscard]] std::optional<Offset> first() const noexcept;

 private:
  struct Entry {
    Offset offset = 0;
    std::uint64_t mark = 0;  ///< from its time and sizes: different records are unlikely to share it
  };
  static constexpr std::size_t kMost = 1'024;
  static std::uint64_t mark_of(const Message& message) noexcept;
  /// The first entry at or above this offset. The offset must not be above all entries.
  [[nodiscard]] const Entry& first_from(Offset offset) const noexcept;
  /// The `i`-th oldest entry.
  [[nodiscard]] const Entry& at(std::size_t i) const noexcept { return ring_[(next_ + kMost - count_ + i) % kMost]; }

  std::vector<Entry> ring_;
  std::size_t next_ = 0;
  std::size_t count_ = 0;
};

}  // namespace turnstile::detail
