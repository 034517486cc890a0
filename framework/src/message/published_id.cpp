#include "message/published_id.hpp"

#include <algorithm>

#include "turnstile/ports/outbox.hpp"

namespace turnstile {

namespace {

bool is_id(const Header& header) { return header.name == kMessageIdHeader; }

}  // namespace

std::optional<std::string> check_published_id(const OwnedMessage& message) {
  const auto found = Message(message).find(kMessageIdHeader);
  if (found.count == 0) return std::nullopt;
  const std::string header = "its header '" + std::string(kMessageIdHeader) + "' ";
  const std::string remedy = "; set the header to one id, or remove it: Turnstile then gives the message an id";
  if (found.count > 1) return header + "appears " + std::to_string(found.count) + " times" + remedy;
  if (!found.value) return header + "has no value" + remedy;
  if (found.value->empty()) return header + "is empty" + remedy;
  return std::nullopt;
}

std::optional<MessageId> given_id(const OwnedMessage& message) {
  const auto found = Message(message).find(kMessageIdHeader);
  if (found.count != 1 || !found.value || found.value->empty()) return std::nullopt;
  return MessageId::from(*found.value);
}

void put_id(OwnedMessage& message, const MessageId& id) {
  if (given_id(message)) return;
  std::erase_if(message.headers, is_id);
  message.headers.push_back({std::string(kMessageIdHeader), id.text()});
}

}  // namespace turnstile
