#include "wire/text.hpp"

#include <cstddef>

namespace turnstile::postgres {

namespace {

/// The length of the well-formed UTF-8 character at the start of `text`, or 0.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first == 0 ? 0 : 1;
  const std::size_t length = first >= 0xC2 && first <= 0xDF   ? 2
                             : (first & 0xF0) == 0xE0         ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, beyond U+10FFFF.
  const unsigned char second = byte(1);
  const bool malformed = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                         (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return malformed ? 0 : length;
}

int nibble(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  return digit - 'a' + 10;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    if (length == 0) out += '?';
    else out += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

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
