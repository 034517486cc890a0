#include "turnstile/message.hpp"

namespace turnstile {
namespace {

std::optional<std::string_view> view(const std::optional<std::string>& text) {
  return text ? std::optional<std::string_view>(*text) : std::nullopt;
}

std::optional<std::string> copy(const std::optional<std::string_view>& text) {
  return text ? std::optional<std::string>(*text) : std::nullopt;
}

/// Reads an OwnedMessage; `record` points to it.
class OwnedHeaders final : public HeaderReader {
 public:
  std::vector<HeaderView> all(const void* record) const override {
    std::vector<HeaderView> views;
    const auto& headers = of(record);
    views.reserve(headers.size());
    for (const auto& header : headers) views.push_back({header.name, view(header.value)});
    return views;
  }

  Found find(const void* record, std::string_view name) const override {
    Found found;
    for (const auto& header : of(record)) {
      if (header.name != name) continue;
      ++found.count;
      found.value = view(header.value);
    }
    return found;
  }

 private:
  static const std::vector<Header>& of(const void* record) { return static_cast<const OwnedMessage*>(record)->headers; }
};

const OwnedHeaders owned_headers;

}  // namespace

Message::Message(const OwnedMessage& owned)
    : Message(Fields{owned.topic, owned.partition, owned.offset, owned.timestamp, view(owned.key), view(owned.payload)},
              owned_headers, &owned) {}

HeaderReader::Found Message::find(std::string_view name) const {
  return reader_ == nullptr ? HeaderReader::Found{} : reader_->find(record_, name);
}

std::vector<HeaderView> Message::headers() const {
  return reader_ == nullptr ? std::vector<HeaderView>{} : reader_->all(record_);
}

OwnedMessage Message::own() const {
  OwnedMessage owned{std::string(topic()), partition(), offset(), timestamp(), copy(key()), copy(payload()), {}};
  for (const auto& header : headers()) owned.headers.push_back({std::string(header.name), copy(header.value)});
  return owned;
}

std::string where(const Message& message) {
  return to_string(TopicPartitionOffset{{std::string(message.topic()), message.partition()}, message.offset()});
}

}  // namespace turnstile
