#include "turnstile/status.hpp"

#include <algorithm>

namespace turnstile {

std::optional<std::int64_t> PartitionStatus::lag() const noexcept {
  if (!position || !end) return std::nullopt;
  return std::max<std::int64_t>(*end - *position, 0);
}

std::string_view to_text(PartitionStatus::State state) {
  switch (state) {
    case PartitionStatus::State::claiming: return "claiming";
    case PartitionStatus::State::running: return "running";
    case PartitionStatus::State::draining: return "draining";
    case PartitionStatus::State::fenced: return "fenced";
  }
  return "unknown";
}

}  // namespace turnstile
