#pragma once
// The id of a message that a handler publishes: the one in the header message-id, if the handler has set it, or a new
// one. Pure.

#include <optional>
#include <string>

#include "turnstile/message.hpp"

namespace turnstile::detail {

/// Why the header message-id cannot be an id: it is empty, has no value, or appears more than once. Absent if it can be
/// an id, and if there is no such header.
std::optional<std::string> check_published_id(const OwnedMessage& message);

/// The id in the header message-id, as a consumer reads it. Absent if there is none.
std::optional<MessageId> given_id(const OwnedMessage& message);

}  // namespace turnstile::detail
