#include "engine/header_sizes.hpp"

#include <cstdint>

namespace turnstile::detail {

namespace {

constexpr std::size_t kLargeHeaders = 1'024;
constexpr std::size_t kAfterLarge = 1'024;
constexpr unsigned kSampleBits = 4;
constexpr std::uint64_t kMix = 0x9E37'79B9'7F4A'7C15U;
/// What librdkafka allocates for a header besides its bytes.
constexpr std::size_t kHeaderOverhead = 64;

/// One record of 2^kSampleBits, by a hash of the offset, so that large headers are also found if they come at regular
/// distances.
bool is_sampled(Offset offset) {
  std::uint64_t mixed = static_cast<std::uint64_t>(offset) * kMix;
  mixed = (mixed ^ mixed >> 32U) * kMix;
  return mixed >> (64U - kSampleBits) == 0;
}

/// The bytes count twice: librdkafka parses a copy of them when they are first read, and keeps both.
std::size_t size_of_headers(const Message& message) {
  std::size_t bytes = 0;
  for (const HeaderView& header : message.headers())
    bytes += kHeaderOverhead + 2 * (header.name.size() + (header.value ? header.value->size() : 0));
  return bytes;
}

}  // namespace

std::size_t HeaderSizes::of(std::span<const Message> messages) {
  std::size_t bytes = 0;
  for (const Message& message : messages) {
    const bool each = each_for_ > 0;
    if (each) --each_for_;
    else if (!is_sampled(message.offset())) continue;
    const std::size_t size = size_of_headers(message);
    const bool is_large = size > kLargeHeaders;
    if (is_large) each_for_ = kAfterLarge;
    bytes += each || is_large ? size : size << kSampleBits;
  }
  return bytes;
}

}  // namespace turnstile::detail
