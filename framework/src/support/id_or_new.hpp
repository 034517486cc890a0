#pragma once

#include "message/published_id.hpp"
#include "turnstile/ids.hpp"

namespace turnstile::detail {

/// The id of a message that a handler publishes: the id that the handler has set, or a new one.
inline MessageId id_or_new(const OwnedMessage& message) {
  const auto given = given_id(message);
  return given ? *given : new_message_id();
}

}  // namespace turnstile::detail
