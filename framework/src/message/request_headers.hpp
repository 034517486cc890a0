#pragma once
// The headers of a numbered request. Pure.
//
//   producer-id      the id of its session, as text
//   request-number   decimal, from 1
//   request-ack      decimal; absent: 0
//   request-proof    32 hexadecimal digits: the first 16 bytes of HMAC-SHA256, under the session's secret, of
//                    "PRODUCER-ID NUMBER ACK TOPIC". It prevents that a client numbers messages in another
//                    producer's name.

#include <string>
#include <string_view>
#include <variant>

#include "message/message_id.hpp"
#include "turnstile/ports/producers.hpp"

namespace turnstile::detail {

struct StampedRequest {
  ports::Request request;
  std::string_view proof;  ///< a view into the record

  /// Whether the proof was made with this secret.
  [[nodiscard]] bool is_proved(std::string_view topic, std::string_view secret) const;
};

/// The request in the message's headers.
std::variant<StampedRequest, MissingId> request_of(const Message& message);

/// Stamps a message. An earlier stamp is replaced.
void stamp(OwnedMessage& message, const ports::Request& request, std::string_view secret);

/// The id of a request as a message.
MessageId message_id(const ports::Request& request);

}  // namespace turnstile::detail
