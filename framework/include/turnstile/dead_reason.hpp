#pragma once
// Why a message is a dead letter. The header turnstile-reason, the column `reason` of the table `dead`, and `turnstile
// dlq` show it. docs/reference/dead-letter-reasons.md tells what to do about each reason.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace turnstile {

/// Why Turnstile will not run a message.
enum class DeadReason : std::uint8_t {
  failed,          ///< its handler failed as often as `retry` allows
  rejected,        ///< its handler returned Outcome::dead_letter()
  missing_id,      ///< it has no id where `message_id` expects it
  duplicate,       ///< its id has taken effect, and the topic's policy is DuplicatePolicy::raise
  mismatch,        ///< its id has taken effect with another payload
  too_old,         ///< it is older than the stored ids: it may have taken effect
  unknown,         ///< its lease ended without a result: it may have taken effect
  outside_window,  ///< its number is outside its producer's window: it may have taken effect
  no_session,      ///< its producer's session is unknown or had expired: it may have taken effect
  forged,          ///< its producer's signature does not match
  killed_process,  ///< processes died while they ran only this message
  dropped,         ///< it waited for a retry, and an operator dropped it (`turnstile retries drop`)
  unreadable,      ///< its headers cannot be parsed, so its id, or whether it is a replay, is unknown
};

/// All reasons, in the order of the enumeration.
std::span<const DeadReason> dead_reasons();
/// "failed", "missing_id", …
std::string_view to_text(DeadReason reason);
/// Reads the text of a reason. Absent: this version has no such reason.
std::optional<DeadReason> parse_dead_reason(std::string_view text);

}  // namespace turnstile
