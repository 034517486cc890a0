#pragma once
// Where a reply goes, and how it looks. Pure.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "turnstile/message.hpp"

namespace turnstile {

/// "a, b" as {"a", "b"}.
std::vector<std::string> split_names(std::string_view text);

/// Why a request is not answered.
struct NoReply {
  std::string why;
};

/// The reply to `request`, without its body: to the topic that its header reply-topic (or Spring's kafka_replyTopic) names, if that is
/// one of `allowed`, else to the first of them. Who may write a request must not thereby write into any topic. It has the
/// request's key, and its headers correlation-id and kafka_correlationId. `allowed` is not empty.
std::variant<OwnedMessage, NoReply> reply_to(const Message& request, std::span<const std::string> allowed);

/// The id of a reply: always the same for one request of one handler, so that who gets it twice can tell.
MessageId reply_id(std::string_view handler, const MessageId& request);

}  // namespace turnstile
