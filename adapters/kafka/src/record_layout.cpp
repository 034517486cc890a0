#include "record_layout.hpp"

#include <array>
#include <cstdint>
#include <limits>

namespace turnstile::kafka {
namespace {

constexpr int kFirstRead = 0x02'00'02'00;
constexpr int kLastRead = 0x02'08'ff'ff;
constexpr unsigned kBitsOfByte = 7;
constexpr unsigned kMoreBytes = 1U << kBitsOfByte;

/// Whether the payload's size is in front of it as format 2 writes it: zigzag, 7 bits a byte, the lowest first. Formats 0
/// and 1 have 4 bytes there, the highest first, which are the same for no size but 0. All formats have more bytes in
/// front of a payload than are read here.
bool is_of_format_2(const unsigned char* payload, std::size_t size) noexcept {
  std::uint64_t rest = std::uint64_t{size} << 1U;
  std::array<unsigned char, 5> written{};
  std::ptrdiff_t bytes = 0;
  for (; rest >= kMoreBytes; rest >>= kBitsOfByte)
    written[static_cast<std::size_t>(bytes++)] = static_cast<unsigned char>(rest | kMoreBytes);
  written[static_cast<std::size_t>(bytes++)] = static_cast<unsigned char>(rest);
  for (std::ptrdiff_t i = 0; i < bytes; ++i)
    if (payload[i - bytes] != written[static_cast<std::size_t>(i)]) return false;
  return true;
}

}  // namespace

bool leaves_records_in_place(int version) noexcept { return version >= kFirstRead && version <= kLastRead; }

bool certainly_without_headers(const void* payload, std::size_t size) noexcept {
  if (!payload || size == 0 || size > std::numeric_limits<std::int32_t>::max()) return false;
  const auto* bytes = static_cast<const unsigned char*>(payload);
  return is_of_format_2(bytes, size) && bytes[size] == 0;  // the number of headers is behind the payload
}

}  // namespace turnstile::kafka
