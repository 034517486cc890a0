#include "wire/text.hpp"

#include <cstddef>

namespace turnstile::postgres {

namespace {

int nibble(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  return digit - 'a' + 10;
}

}  // namespace

std::string hex(std::string_view bytes) {
  std::string digits;
  digits.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    digits += "0123456789abcdef"[byte >> 4];
    digits += "0123456789abcdef"[byte & 15];
  }
  return digits;
}

std::optional<std::string> bytes_at(const Rows& rows, std::size_t row, std::size_t column) {
  const auto& cell = rows.at(row, column);
  if (!cell) return std::nullopt;
  std::string bytes;
  bytes.reserve(cell->size() / 2);
  for (std::size_t at = 2; at + 1 < cell->size(); at += 2) {
    bytes += static_cast<char>(nibble((*cell)[at]) * 16 + nibble((*cell)[at + 1]));
  }
  return bytes;
}

}  // namespace turnstile::postgres
