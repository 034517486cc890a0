#include "message/reply.hpp"

#include <algorithm>
#include <array>

namespace turnstile::detail {

namespace {

constexpr std::array<std::string_view, 2> kReplyTopic{"reply-topic", "kafka_replyTopic"};
constexpr std::array<std::string_view, 2> kCorrelation{"correlation-id", "kafka_correlationId"};

}  // namespace

std::vector<std::string> split_names(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const auto end = std::min(text.find(','), text.size());
    std::string_view name = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    if (!name.empty()) names.emplace_back(name);
  }
  return names;
}

std::variant<OwnedMessage, NoReply> reply_to(const Message& request, std::span<const std::string> allowed) {
  OwnedMessage reply;
  reply.topic = allowed.front();
  reply.partition = -1;
  for (const std::string_view name : kReplyTopic) {
    const auto wanted = request.header(name);
    if (!wanted) continue;
    // The text is not quoted, because it may contain anything.
    if (std::find(allowed.begin(), allowed.end(), *wanted) == allowed.end())
      return NoReply{"its header " + std::string(name) + " names a topic that reply_topics does not allow"};
    reply.topic = *wanted;
    break;
  }
  if (request.key()) reply.key = std::string(*request.key());
  for (const std::string_view name : kCorrelation) {
    if (const auto id = request.header(name)) reply.headers.push_back({std::string(name), std::string(*id)});
  }
  return reply;
}

MessageId reply_id(std::string_view handler, const MessageId& request) {
  return MessageId::from("reply " + request.text() + " " + std::string(handler));
}

}  // namespace turnstile::detail
