#pragma once
// Headers of a record that `turnstile dlq replay` has published: the dead letter again, for the one handler that refused it.

#include <string_view>

namespace turnstile {

/// Where the record had been: TOPIC[PARTITION]@OFFSET.
inline constexpr std::string_view kReplayedFrom = "turnstile-replayed-from";
/// The handler that is to have it. Those of other groups have had it already, and pass over it.
inline constexpr std::string_view kReplayedFor = "turnstile-replayed-for";
/// When it was sent at first, in milliseconds since 1970: a session that has expired since then may still vouch for it.
inline constexpr std::string_view kSentAt = "turnstile-sent-at";

}  // namespace turnstile
