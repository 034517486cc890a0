#pragma once
// The destination and the form of a reply. Pure.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "turnstile/message.hpp"

namespace turnstile::detail {

/// "a, b" as {"a", "b"}.
std::vector<std::string> split_names(std::string_view text);

/// Why a request gets no reply.
struct NoReply {
  std::string why;
};

/// The reply to `request`, without its body. It goes to the topic in the header reply-topic (or Spring's
/// kafka_replyTopic). Without this header it goes to the first of `allowed`, which must not be empty.
/// A topic outside of `allowed` is refused: otherwise, a client that may write requests could write to any topic. The
/// reply has the request's key, and its headers correlation-id and kafka_correlationId.
std::variant<OwnedMessage, NoReply> reply_to(const Message& request, std::span<const std::string> allowed);

/// The id of a reply. It is the same for each reply of a handler to a request, so that a receiver can detect a
/// duplicate.
MessageId reply_id(std::string_view handler, const MessageId& request);

}  // namespace turnstile::detail
