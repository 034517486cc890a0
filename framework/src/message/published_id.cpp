#include "message/published_id.hpp"

#include <algorithm>

#include "turnstile/error.hpp"
#include "turnstile/ports/outbox.hpp"

namespace turnstile::detail {

std::optional<std::string> check_published_id(const OwnedMessage& message) {
  const auto found = Message(message).find(ports::kMessageIdHeader);
  if (found.count == 0) return std::nullopt;
  const std::string header = "its header '" + std::string(ports::kMessageIdHeader) + "' ";
  const std::string remedy = "; set the header to one id, or remove it: Turnstile then gives the message an id";
  if (found.count > 1) return header + "appears " + std::to_string(found.count) + " times" + remedy;
  if (!found.value) return header + "has no value" + remedy;
  if (found.value->empty()) return header + "is empty" + remedy;
  return std::nullopt;
}

std::optional<MessageId> given_id(const OwnedMessage& message) {
  const auto found = Message(message).find(ports::kMessageIdHeader);
  if (found.count != 1 || !found.value || found.value->empty()) return std::nullopt;
  return MessageId::from(*found.value);
}

}  // namespace turnstile::detail

namespace turnstile::ports {

bool is_scheduled(const OwnedMessage& message, Timestamp now) {
  if (!message.not_before) return false;
  if (*message.not_before > kLatestDue) {
    throw Error(Code::api_misused,
                "publish(): not_before is after the year 9999, so the message was not published; it "
                "counts milliseconds since 1970");
  }
  return *message.not_before > now;
}

void put_id(OwnedMessage& message, const MessageId& id) {
  if (detail::given_id(message)) return;
  std::erase_if(message.headers, [](const Header& header) { return header.name == kMessageIdHeader; });
  message.headers.push_back({std::string(kMessageIdHeader), id.text()});
}

}  // namespace turnstile::ports
