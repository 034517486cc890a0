#pragma once
// Whether a record is a dead letter that was published again. Pure.

#include <optional>
#include <string>
#include <string_view>

#include "turnstile/message.hpp"
#include "turnstile/ports/retries.hpp"
#include "turnstile/replay.hpp"

namespace turnstile::detail {

/// The handler that must run the record again. Absent for any other record. It is also absent if the record has these
/// headers because a handler has published its input to another topic.
inline std::optional<std::string_view> replayed_for(const Message& message) {
  const auto handler = message.header(kReplayedFor);
  if (!handler) return std::nullopt;
  const auto from = message.header(kReplayedFrom);
  const std::string_view topic = message.topic();
  const bool ours = from && from->size() > topic.size() && from->starts_with(topic) && (*from)[topic.size()] == '[';
  return ours ? handler : std::nullopt;
}

/// Who must run the record again, for people, if it is not this handler of this group. Absent for any other record. An
/// empty group is not compared.
std::optional<std::string> replayed_for_another(const Message& message, std::string_view handler,
                                                std::string_view group);
/// The stored retry for which the record came back. Absent for any other record.
std::optional<ports::RetryRef> retry_of(const Message& message);
/// Whether it has headers that forget_replay() removes.
bool is_of_replay(const OwnedMessage& record);
/// Removes the headers that one sending of a stored message adds.
void forget_replay(OwnedMessage& record);

/// Where the record was before it became a dead letter for the first time, as in kFirstOrigin. Absent if it never was
/// one.
std::optional<std::string> first_origin(const Message& message);

}  // namespace turnstile::detail
