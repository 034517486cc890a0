#include "engine/log_memory.hpp"

#include <algorithm>

namespace turnstile::detail {

std::uint64_t LogMemory::mark_of(const Message& message) noexcept {
  // A hash of the payload would be a better mark, but would cost more than all other work of a lane.
  const std::uint64_t sizes = (message.payload() ? message.payload()->size() + 1 : 0) * 1'000'003 +
                              (message.key() ? message.key()->size() + 1 : 0);
  return static_cast<std::uint64_t>(message.timestamp().time_since_epoch().count()) * 0x9E3779B97F4A7C15U ^ sizes;
}

LogMemory::Finding LogMemory::compare(const Message& message) const noexcept {
  if (count_ == 0 || message.offset() > at(count_ - 1).offset) return Finding::ahead;
  if (message.offset() < at(0).offset) return Finding::older;
  const Entry& found = first_from(message.offset());
  return found.offset == message.offset() && found.mark == mark_of(message) ? Finding::same : Finding::other;
}

bool LogMemory::has_read(Offset offset) const noexcept {
  return count_ > 0 && offset <= at(count_ - 1).offset && first_from(offset).offset == offset;
}

const LogMemory::Entry& LogMemory::first_from(Offset offset) const noexcept {
  std::size_t low = 0, high = count_ - 1;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (at(middle).offset < offset) low = middle + 1;
    else high = middle;
  }
  return at(low);
}

void LogMemory::note(const Message& message) {
  if (ring_.empty()) ring_.resize(kMost);
  ring_[next_] = {message.offset(), mark_of(message)};
  next_ = (next_ + 1) % kMost;
  count_ = std::min(count_ + 1, kMost);
}

std::optional<Offset> LogMemory::first() const noexcept {
  if (count_ == 0) return std::nullopt;
  return at(0).offset;
}

}  // namespace turnstile::detail
