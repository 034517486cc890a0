#include "turnstile/types.hpp"

#include <algorithm>

#include "core/digest.hpp"

namespace turnstile {
namespace {

constexpr std::size_t uuid_length = 36;

constexpr bool is_dash_place(std::size_t i) { return i == 8 || i == 13 || i == 18 || i == 23; }

constexpr int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<MessageId> parse_uuid(std::string_view text) {
  if (text.size() != uuid_length) return std::nullopt;
  MessageId id;
  std::size_t nibble = 0;
  for (std::size_t i = 0; i < uuid_length; ++i) {
    if (is_dash_place(i)) {
      if (text[i] != '-') return std::nullopt;
      continue;
    }
    const int value = hex_value(text[i]);
    if (value < 0) return std::nullopt;
    auto& byte = id.bytes[nibble / 2];
    byte = static_cast<std::uint8_t>(byte << 4 | value);
    ++nibble;
  }
  return id;
}

}  // namespace

std::string to_string(const TopicPartition& at) { return at.topic + "[" + std::to_string(at.partition) + "]"; }

std::string to_string(const TopicPartitionOffset& at) { return to_string(at.at) + "@" + std::to_string(at.offset); }

std::string MessageId::text() const {
  constexpr char digits[] = "0123456789abcdef";
  std::string out(uuid_length, '-');
  std::size_t nibble = 0;
  for (std::size_t i = 0; i < uuid_length; ++i) {
    if (is_dash_place(i)) continue;
    const unsigned byte = bytes[nibble / 2];
    out[i] = digits[nibble % 2 == 0 ? byte >> 4 : byte & 0xF];
    ++nibble;
  }
  return out;
}

// Sixteen raw bytes are hashed like any other text: a text of sixteen letters is not to be mistaken for a binary UUID.
MessageId MessageId::from(std::string_view raw) {
  if (const auto uuid = parse_uuid(raw)) return *uuid;
  const Sha256 digest = sha256(raw);
  MessageId id;
  std::copy_n(digest.begin(), id.bytes.size(), id.bytes.begin());
  return id;
}

}  // namespace turnstile
