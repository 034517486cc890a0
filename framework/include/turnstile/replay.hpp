#pragma once
// Headers of a record that `turnstile dlq replay` has published: the dead letter again, for the one handler that
// refused it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "turnstile/message.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

/// The record's original place: `TOPIC[PARTITION]@OFFSET`.
inline constexpr std::string_view kReplayedFrom = "turnstile-replayed-from";
/// The handler that must run the record. Other handlers have handled it already and skip it.
inline constexpr std::string_view kReplayedFor = "turnstile-replayed-for";
/// The consumer group of that handler, if its name is of one group only, such as a topic's name. Consumers of other groups
/// skip the record, although a handler of theirs may have the same name.
inline constexpr std::string_view kReplayedGroup = "turnstile-replayed-group";
/// Names one replay of one dead letter, which was marked before the record was published. Records that are identified by
/// their place have it, because the inbox would not detect a second copy of them, and dropped retries, because their mark
/// lets them run. After a process died in a replay, the header shows whether that replay published the record.
inline constexpr std::string_view kReplayToken = "turnstile-replay-token";
/// Where the record was before it became a dead letter for the first time: `TOPIC[PARTITION]@OFFSET`. Only on a record
/// that was dead-lettered more than once. The headers turnstile-original-… name its place before the last time.
inline constexpr std::string_view kFirstOrigin = "turnstile-first-origin";
/// When it was first sent, in milliseconds since 1970. A session that has expired since then is still valid for it.
inline constexpr std::string_view kSentAt = "turnstile-sent-at";

/// A stored retry that the relay has sent again: `NUMBER.ATTEMPTS` of its row. With kReplayedFrom and kReplayedFor.
inline constexpr std::string_view kRetry = "turnstile-retry";

/// How often the record was a dead letter. After kMostDeaths times it is parked.
inline constexpr std::string_view kDeaths = "turnstile-deaths";
/// How often a record can become a dead letter before it is parked.
inline constexpr int kMostDeaths = 16;
/// The value of the record's header kDeaths, at most kMostDeaths. 0 without the header.
int deaths_of(const Message& message);

/// The id of a record whose place is its id (message_id = "offset"). If it is published again, it is another message.
MessageId id_of_place(const TopicPartitionOffset& at, std::int32_t incarnation);

/// For an edit of a dead letter, which must keep its id. The source of ids that gives `id` for the record before the edit
/// and another one, or none, for the record after it, as `message_id` would name it: "header:order-id". Absent: the record
/// keeps its id.
std::optional<std::string> changed_id_source(const OwnedMessage& before, const OwnedMessage& after,
                                             const MessageId& id);

}  // namespace turnstile
