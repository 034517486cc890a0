#pragma once
// Decimal numbers in PostgreSQL's binary form (numeric_recv() in src/backend/utils/adt/numeric.c): groups of four digits.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "wire/arguments.hpp"

namespace turnstile::postgres {

/// A number, read from text as PostgreSQL reads it, without spaces. A view of the text.
class NumericText {
 public:
  /// Throws SqlError: 22P02 if the text is no number, 22003 if it has more digits than PostgreSQL stores (131,072 before
  /// the point, 16,383 after it).
  explicit NumericText(std::string_view text);

  /// The bytes of its binary form.
  [[nodiscard]] std::size_t size() const noexcept { return 8 + 2 * static_cast<std::size_t>(groups_); }
  void write(BinaryWriter& to) const noexcept;

 private:
  std::string_view digits_{};  ///< from the first that is not 0 to the last that is not 0, perhaps with a point inside
  int before_point_ = 0;       ///< how many of them are before the point; negative: so many zeros follow the point
  int first_group_ = 0;        ///< the power of 10,000 of the first group
  int groups_ = 0;
  int scale_ = 0;  ///< digits after the point, as written
  std::uint16_t sign_ = 0;
};

}  // namespace turnstile::postgres
