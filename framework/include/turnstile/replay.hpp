#pragma once
// Headers of a record that `turnstile dlq replay` has published: the dead letter again, for the one handler that refused it.

#include <cstdint>
#include <string_view>

#include "turnstile/message.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

/// Where the record had been: `TOPIC[PARTITION]@OFFSET`.
inline constexpr std::string_view kReplayedFrom = "turnstile-replayed-from";
/// The handler that is to have it. Those of other groups have had it already, and pass over it.
inline constexpr std::string_view kReplayedFor = "turnstile-replayed-for";
/// Where the record was before it died for the first time, `TOPIC[PARTITION]@OFFSET`: of a record that has died more than once. Where it
/// died last, the headers turnstile-original-… say.
inline constexpr std::string_view kFirstOrigin = "turnstile-first-origin";
/// When it was sent at first, in milliseconds since 1970: a session that has expired since then may still vouch for it.
inline constexpr std::string_view kSentAt = "turnstile-sent-at";

/// How often the record has been a dead letter. A record that was one kMostDeaths times is parked.
inline constexpr std::string_view kDeaths = "turnstile-deaths";
/// A record dies so often at the most; then it is parked.
inline constexpr int kMostDeaths = 16;
/// What that header of the record says, at most kMostDeaths; 0 without it.
int deaths_of(const Message& message);

/// The id of a record where its place is its id (message_id = "offset"): published again, it is another message.
MessageId id_of_place(const TopicPartitionOffset& at, std::int32_t incarnation);

}  // namespace turnstile
