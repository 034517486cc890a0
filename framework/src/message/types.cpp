#include "turnstile/types.hpp"

#include <algorithm>

#include "message/digest.hpp"

namespace turnstile {
namespace {

constexpr std::size_t kUuidLength = 36;

constexpr bool is_dash_place(std::size_t i) { return i == 8 || i == 13 || i == 18 || i == 23; }

/// The value of a hexadecimal digit, by its byte; otherwise 0xFF. A table, because an id is read for every message.
constexpr std::array<std::uint8_t, 256> kHexValues = [] {
  std::array<std::uint8_t, 256> values{};
  values.fill(0xFF);
  for (std::uint8_t i = 0; i < 10; ++i) values['0' + i] = i;
  for (std::uint8_t i = 0; i < 6; ++i) values['a' + i] = values['A' + i] = static_cast<std::uint8_t>(10 + i);
  return values;
}();

std::uint8_t hex_value(char c) { return kHexValues[static_cast<unsigned char>(c)]; }

std::optional<MessageId> parse_uuid(std::string_view text) {
  if (text.size() != kUuidLength) return std::nullopt;
  if (text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-') return std::nullopt;
  // The positions of the two digits of each byte, between the dashes.
  constexpr std::array<std::uint8_t, 16> places{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34};
  MessageId id;
  unsigned any = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const unsigned high = hex_value(text[places[i]]);
    const unsigned low = hex_value(text[places[i] + std::size_t{1}]);
    any |= high | low;
    id.bytes[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  if (any > 0xF) return std::nullopt;
  return id;
}

}  // namespace

std::string to_string(const TopicPartition& at) { return at.topic + "[" + std::to_string(at.partition) + "]"; }

std::string to_string(const TopicPartitionOffset& at) { return to_string(at.at) + "@" + std::to_string(at.offset); }

std::string MessageId::text() const {
  constexpr char digits[] = "0123456789abcdef";
  std::string out(kUuidLength, '-');
  std::size_t nibble = 0;
  for (std::size_t i = 0; i < kUuidLength; ++i) {
    if (is_dash_place(i)) continue;
    const unsigned byte = bytes[nibble / 2];
    out[i] = digits[nibble % 2 == 0 ? byte >> 4 : byte & 0xF];
    ++nibble;
  }
  return out;
}

// Sixteen raw bytes are hashed like any other text, so that a text of sixteen letters is not mistaken for a binary
// UUID.
MessageId MessageId::from(std::string_view raw) {
  if (const auto uuid = parse_uuid(raw)) return *uuid;
  const detail::Sha256 digest = detail::sha256(raw);
  MessageId id;
  std::copy_n(digest.begin(), id.bytes.size(), id.bytes.begin());
  return id;
}

}  // namespace turnstile
