#include "turnstile/dead_reason.hpp"

#include <algorithm>
#include <array>

namespace turnstile {

std::span<const DeadReason> dead_reasons() {
  using enum DeadReason;
  static constexpr std::array kAll{failed,         rejected,   missing_id, duplicate,      mismatch, too_old,   unknown,
                                   outside_window, no_session, forged,     killed_process, dropped,  unreadable};
  return kAll;
}

std::string_view to_text(DeadReason reason) {
  switch (reason) {
    case DeadReason::failed: return "failed";
    case DeadReason::rejected: return "rejected";
    case DeadReason::missing_id: return "missing_id";
    case DeadReason::duplicate: return "duplicate";
    case DeadReason::mismatch: return "mismatch";
    case DeadReason::too_old: return "too_old";
    case DeadReason::unknown: return "unknown";
    case DeadReason::outside_window: return "outside_window";
    case DeadReason::no_session: return "no_session";
    case DeadReason::forged: return "forged";
    case DeadReason::killed_process: return "killed_process";
    case DeadReason::dropped: return "dropped";
    case DeadReason::unreadable: return "unreadable";
  }
  return "";
}

std::optional<DeadReason> parse_dead_reason(std::string_view text) {
  const auto all = dead_reasons();
  const auto found = std::find_if(all.begin(), all.end(), [&](DeadReason reason) { return to_text(reason) == text; });
  return found == all.end() ? std::nullopt : std::optional(*found);
}

}  // namespace turnstile
