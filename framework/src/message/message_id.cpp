#include "message/message_id.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "message/digest.hpp"

namespace turnstile::detail {
namespace {

using Json = nlohmann::json;
using Found = std::variant<std::string, MissingId>;

constexpr std::string_view kHeaderPrefix = "header:";
constexpr std::string_view kJsonPrefix = "json:";
constexpr std::string_view choices = "use header:NAME, key, json:/pointer, cloudevents or offset";

std::string in_quotes(std::string_view text) { return "'" + std::string(text) + "'"; }

/// The steps of an RFC 6901 pointer. Absent if it is malformed.
std::optional<std::vector<std::string>> split_pointer(std::string_view pointer) {
  if (pointer.empty() || pointer.front() != '/') return std::nullopt;
  std::vector<std::string> path;
  for (std::size_t i = 0; i < pointer.size(); ++i) {
    if (pointer[i] == '/') {
      path.emplace_back();
    } else if (pointer[i] != '~') {
      path.back() += pointer[i];
    } else {
      ++i;
      if (i == pointer.size() || (pointer[i] != '0' && pointer[i] != '1')) return std::nullopt;
      path.back() += pointer[i] == '0' ? '~' : '/';
    }
  }
  return path;
}

const Json* step_into(const Json& node, const std::string& step) {
  if (node.is_object()) {
    const auto found = node.find(step);
    return found == node.end() ? nullptr : &*found;
  }
  const bool is_index = node.is_array() && !step.empty() && step.size() <= 9 &&
                        std::all_of(step.begin(), step.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
                        (step.size() == 1 || step.front() != '0');
  if (!is_index) return nullptr;
  const auto index = static_cast<std::size_t>(std::stoul(step));
  return index < node.size() ? &node[index] : nullptr;
}

/// The text of a JSON value, if it can be an id. Otherwise `what` is the subject of the error.
Found id_text(const Json* value, const std::string& what) {
  if (value == nullptr) return MissingId{what + " is absent"};
  if (value->is_string()) {
    const auto& text = value->get_ref<const std::string&>();
    if (text.empty()) return MissingId{what + " is empty"};
    return text;
  }
  if (value->is_number_integer()) return value->dump();
  const std::string kind = value->is_number_float() ? "floating-point number" : value->type_name();
  return MissingId{what + " is of type " + kind + "; an id must be a string or an integer"};
}

std::variant<Json, MissingId> parse_payload(const Message& message) {
  if (!message.payload()) return MissingId{"the payload is null"};
  const std::string_view text = message.text();
  Json document = Json::parse(text.begin(), text.end(), nullptr, false);
  if (document.is_discarded()) return MissingId{"the payload is not valid JSON"};
  return document;
}

void put_number(std::string& bytes, std::int64_t number) {
  const auto bits = static_cast<std::uint64_t>(number);
  for (unsigned shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(bits >> shift & 0xFF);
}

void put_text(std::string& bytes, std::string_view text) {
  put_number(bytes, static_cast<std::int64_t>(text.size()));
  bytes += text;
}

MessageId hashed(std::string_view bytes) {
  const Sha256 digest = sha256(bytes);
  MessageId id;
  std::copy_n(digest.begin(), id.bytes.size(), id.bytes.begin());
  return id;
}

using IdOrMissing = std::variant<MessageId, MissingId>;

std::variant<std::string_view, MissingId> header_text(const Message& message, const std::string& name) {
  const auto found = message.find(name);
  if (found.count == 1 && found.value && !found.value->empty()) return *found.value;
  const std::string what = "header " + in_quotes(name);
  if (found.count == 0) return MissingId{what + " is absent"};
  if (found.count > 1) return MissingId{what + " appears " + std::to_string(found.count) + " times"};
  return MissingId{what + (found.value ? " is empty" : " has no value")};
}

IdOrMissing from_header(const Message& message, const std::string& name) {
  auto text = header_text(message, name);
  if (auto* missing = std::get_if<MissingId>(&text)) return std::move(*missing);
  return MessageId::from(std::get<std::string_view>(text));
}

IdOrMissing from_key(const Message& message) {
  if (!message.key()) return MissingId{"the record has no key"};
  if (message.key()->empty()) return MissingId{"the key is empty"};
  return MessageId::from(*message.key());
}

IdOrMissing from_json(const Message& message, const std::string& pointer, const std::vector<std::string>& path) {
  auto document = parse_payload(message);
  if (auto* missing = std::get_if<MissingId>(&document)) return std::move(*missing);
  const Json* node = &std::get<Json>(document);
  for (const auto& step : path) {
    node = step_into(*node, step);
    if (node == nullptr) break;
  }
  auto text = id_text(node, in_quotes(pointer) + " in the payload");
  if (auto* missing = std::get_if<MissingId>(&text)) return std::move(*missing);
  return MessageId::from(std::get<std::string>(text));
}

MessageId of_event(std::string_view source, std::string_view id) {
  std::string bytes;
  put_text(bytes, source);
  bytes += id;
  return hashed(bytes);
}

/// The binary form: attributes in headers.
IdOrMissing from_event_headers(const Message& message) {
  auto id = header_text(message, "ce_id");
  if (auto* missing = std::get_if<MissingId>(&id)) return std::move(*missing);
  auto source = header_text(message, "ce_source");
  if (auto* missing = std::get_if<MissingId>(&source)) return std::move(*missing);
  return of_event(std::get<std::string_view>(source), std::get<std::string_view>(id));
}

/// The structured form: the payload is the event, in JSON.
IdOrMissing from_event_json(const Message& message) {
  auto document = parse_payload(message);
  if (auto* missing = std::get_if<MissingId>(&document)) {
    return MissingId{"header 'ce_id' is absent, and " + missing->why};
  }
  const Json& event = std::get<Json>(document);
  if (!event.is_object()) return MissingId{"header 'ce_id' is absent, and the payload is not a JSON object"};
  auto id = id_text(step_into(event, "id"), "attribute 'id' of the CloudEvent");
  if (auto* missing = std::get_if<MissingId>(&id)) return std::move(*missing);
  auto source = id_text(step_into(event, "source"), "attribute 'source' of the CloudEvent");
  if (auto* missing = std::get_if<MissingId>(&source)) return std::move(*missing);
  return of_event(std::get<std::string>(source), std::get<std::string>(id));
}

IdOrMissing from_event(const Message& message) {
  const bool binary = message.find("ce_id").count > 0 || message.find("ce_source").count > 0;
  return binary ? from_event_headers(message) : from_event_json(message);
}

MessageId from_place(std::string_view topic, std::int32_t incarnation, std::int32_t partition, Offset offset) {
  std::string bytes;
  put_text(bytes, topic);
  put_number(bytes, incarnation);
  put_number(bytes, partition);
  put_number(bytes, offset);
  return hashed(bytes);
}

}  // namespace

}  // namespace turnstile::detail

namespace turnstile {

MessageId id_of_place(const TopicPartitionOffset& at, std::int32_t incarnation) {
  return detail::from_place(at.at.topic, incarnation, at.at.partition, at.offset);
}

}  // namespace turnstile

namespace turnstile::detail {

std::variant<IdSource, std::string> IdSource::parse(std::string_view text) {
  if (text == "key") return IdSource(Kind::key, {}, {});
  if (text == "cloudevents") return IdSource(Kind::cloudevents, {}, {});
  if (text == "offset") return IdSource(Kind::offset, {}, {});
  if (text.starts_with(kHeaderPrefix)) {
    const std::string name(text.substr(kHeaderPrefix.size()));
    if (name.empty()) return "'header:' lacks the name of a header; write it as in header:message-id";
    return IdSource(Kind::header, name, {});
  }
  if (text.starts_with(kJsonPrefix)) {
    const std::string pointer(text.substr(kJsonPrefix.size()));
    if (auto path = split_pointer(pointer)) return IdSource(Kind::json, pointer, std::move(*path));
    return in_quotes(text) +
           " has no valid JSON pointer; begin it with a slash, as in json:/event/id, and write ~0 for ~ and ~1 for /";
  }
  return in_quotes(text) + " is not a source of ids; " + std::string(choices);
}

std::variant<MessageId, MissingId> IdSource::of(const Message& message, std::int32_t incarnation) const {
  switch (kind_) {
    case Kind::header: return from_header(message, name_);
    case Kind::key: return from_key(message);
    case Kind::json: return from_json(message, name_, path_);
    case Kind::cloudevents: return from_event(message);
    case Kind::offset: break;
  }
  return from_place(message.topic(), incarnation, message.partition(), message.offset());
}

std::string IdSource::text() const {
  switch (kind_) {
    case Kind::header: return std::string(kHeaderPrefix) + name_;
    case Kind::key: return "key";
    case Kind::json: return std::string(kJsonPrefix) + name_;
    case Kind::cloudevents: return "cloudevents";
    case Kind::offset: break;
  }
  return "offset";
}

std::int64_t fingerprint(const Message& message) { return message.payload() ? fingerprint(*message.payload()) : 0; }

std::int64_t fingerprint(std::string_view body) {
  const Sha256 digest = sha256(body);
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < 8; ++i) bits = bits << 8 | digest[i];
  return static_cast<std::int64_t>(bits);
}

MessageId effect_key(std::string_view handler, const MessageId& id) {
  return MessageId::from("effect " + id.text() + " " + std::string(handler));
}

}  // namespace turnstile::detail
