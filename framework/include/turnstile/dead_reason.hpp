#pragma once
// Why a message is a dead letter: the header turnstile-reason, the column `reason` of the table `dead`, and `turnstile dlq`.
// docs/reference/dead-letter-reasons.md says what to do about each.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace turnstile {

/// Why a message will not be run.
enum class DeadReason : std::uint8_t {
  failed,          ///< its handler failed as often as `retry` allows
  rejected,        ///< its handler answered Outcome::dead_letter()
  missing_id,      ///< it has no id where `message_id` says
  duplicate,       ///< its id was seen before, and the topic's policy is DuplicatePolicy::raise
  mismatch,        ///< its id was seen before with another payload
  too_old,         ///< it is older than the ids that are remembered: whether it took effect is not known
  unknown,         ///< its lease ended without a result: whether it took effect is not known
  outside_window,  ///< its number is outside of its producer's window: whether it took effect is not known
  no_session,      ///< its producer's session is unknown or had expired: whether it took effect is not known
  forged,          ///< its producer's signature does not match
  killed_process,  ///< processes died while they ran only this message
};

/// All of them, in the order of the enumeration.
std::span<const DeadReason> dead_reasons();
/// "failed", "missing_id", …
std::string_view to_text(DeadReason reason);
/// Nothing: there is no such reason in this version.
std::optional<DeadReason> parse_dead_reason(std::string_view text);

}  // namespace turnstile
