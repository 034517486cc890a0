// Which source gives a dead letter its id. A dead letter does not know its topic's message_id, so each possible source is
// tried.

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "message/message_id.hpp"
#include "message/request_headers.hpp"
#include "turnstile/replay.hpp"

namespace turnstile {

namespace {

using Json = nlohmann::json;

std::string escaped(const std::string& step) {
  std::string text;
  for (const char c : step) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return text;
}

/// A part of a document.
struct Part {
  std::size_t parent;  ///< the place of the part that it is in; its own: it is the document
  std::string step;    ///< of the JSON pointer, from its parent
  const Json* node;
};

std::string pointer_to(const std::vector<Part>& parts, std::size_t at) {
  std::vector<const std::string*> steps;
  for (; parts[at].parent != at; at = parts[at].parent) steps.push_back(&parts[at].step);
  std::string pointer;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) pointer.append("/").append(**step);
  return pointer;
}

/// The JSON pointers to everything in the payload that gives this id.
std::vector<std::string> pointers_to(const MessageId& id, const std::optional<std::string>& payload) {
  std::vector<std::string> found;
  const Json document = Json::parse(payload.value_or(""), nullptr, false);
  // Not a recursive function: a payload can be nested deeper than the stack allows.
  std::vector<Part> parts{{0, "", &document}};
  for (std::size_t at = 0; at < parts.size(); ++at) {
    const Json* const node = parts[at].node;
    const bool is_text = node->is_string();
    if ((is_text || node->is_number_integer()) &&
        MessageId::from(is_text ? node->get_ref<const std::string&>() : node->dump()) == id)
      found.push_back(pointer_to(parts, at));
    if (!node->is_structured()) continue;
    for (const auto& item : node->items()) parts.push_back({at, escaped(item.key()), &item.value()});
  }
  return found;
}

std::vector<std::string> sources_of(const MessageId& id, const OwnedMessage& message) {
  std::vector<std::string> sources{"key", "cloudevents"};
  for (const auto& header : message.headers) sources.push_back("header:" + header.name);
  for (const auto& pointer : pointers_to(id, message.payload)) sources.push_back("json:" + pointer);
  return sources;
}

bool gives(const std::string& source, const OwnedMessage& message, const MessageId& id) {
  const auto parsed = detail::IdSource::parse(source);
  const auto* from = std::get_if<detail::IdSource>(&parsed);
  if (from == nullptr) return false;
  const auto found = from->of(Message(message), 0);
  return std::holds_alternative<MessageId>(found) && std::get<MessageId>(found) == id;
}

/// The number of a request, and its proof.
std::optional<std::string> request_in(const OwnedMessage& message) {
  const auto found = detail::request_of(Message(message));
  const auto* stamped = std::get_if<detail::StampedRequest>(&found);
  if (stamped == nullptr) return std::nullopt;
  return detail::message_id(stamped->request).text() + " " + std::to_string(stamped->request.acked) + " " +
         std::string(stamped->proof);
}

}  // namespace

std::optional<std::string> changed_id_source(const OwnedMessage& before, const OwnedMessage& after,
                                             const MessageId& id) {
  if (const auto request = request_in(before); request && request_in(after) != request) return "request";
  for (const auto& source : sources_of(id, before)) {
    if (gives(source, before, id) && !gives(source, after, id)) return source;
  }
  return std::nullopt;
}

}  // namespace turnstile
