#pragma once

#include "message/published_id.hpp"
#include "turnstile/ids.hpp"

namespace turnstile {

/// The id that the handler has set, or a new one.
inline MessageId published_id(const OwnedMessage& message) {
  const auto given = given_id(message);
  return given ? *given : new_message_id();
}

}  // namespace turnstile
