#pragma once
// The id of a message that a handler publishes: the one that the handler gave it in the header message-id, or a new one. Pure.

#include <optional>
#include <string>

#include "turnstile/message.hpp"

namespace turnstile {

/// Why the header message-id cannot be an id: it is empty, has no value, or appears more than once. Nothing where it can, and
/// where it is absent.
std::optional<std::string> check_published_id(const OwnedMessage& message);

/// The id in the header message-id, as a consumer reads it. Nothing where there is none.
std::optional<MessageId> given_id(const OwnedMessage& message);

}  // namespace turnstile
