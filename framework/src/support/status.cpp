#include "turnstile/status.hpp"

#include <algorithm>

namespace turnstile {

std::optional<std::int64_t> PartitionStatus::lag() const noexcept {
  if (!position || !end) return std::nullopt;
  if (*end <= *position) return 0;
  // Kafka's offsets begin at 0. A broker that answers with others must not make this overflow.
  return *end - std::max<Offset>(*position, 0);
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
