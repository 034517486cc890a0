#pragma once
// How a numbered request looks on the wire. Pure.
//
//   producer-id      the id of its session, as text
//   request-number   decimal, from 1
//   request-ack      decimal; left out: 0
//   request-proof    32 hexadecimal digits: the first 16 bytes of HMAC-SHA256, under the session's secret, of
//                    "PRODUCER-ID NUMBER ACK TOPIC"; without it anybody could number messages in another one's name

#include <string>
#include <string_view>
#include <variant>

#include "message/message_id.hpp"
#include "turnstile/ports/producers.hpp"

namespace turnstile {

struct StampedRequest {
  Request request;
  std::string_view proof;  ///< a view into the record

  /// Whether it was made with this secret.
  [[nodiscard]] bool is_proved(std::string_view topic, std::string_view secret) const;
};

/// What the message says of itself.
std::variant<StampedRequest, MissingId> request_of(const Message& message);

/// Stamps a message, in place of what it was stamped with before.
void stamp(OwnedMessage& message, const Request& request, std::string_view secret);

/// The id of a request among messages: a hash of "request PRODUCER-ID NUMBER".
MessageId message_id(const Request& request);

}  // namespace turnstile
