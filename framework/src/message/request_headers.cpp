#include "message/request_headers.hpp"

#include <fmt/compile.h>
#include <fmt/format.h>
#include <openssl/crypto.h>

#include <charconv>
#include <optional>

#include "message/digest.hpp"
#include "message/replay.hpp"

namespace turnstile::detail {

namespace {

constexpr std::string_view kProducer = "producer-id";
constexpr std::string_view kNumber = "request-number";
constexpr std::string_view kAck = "request-ack";
constexpr std::string_view kProof = "request-proof";
constexpr std::size_t kProofBytes = 16;

std::string proof_of(const ports::Request& request, std::string_view topic, std::string_view secret) {
  const std::string text =
      fmt::format(FMT_COMPILE("{} {} {} {}"), request.producer.text(), request.number, request.acked, topic);
  const Sha256 digest = hmac_sha256(secret, text);
  std::string proof;
  for (std::size_t i = 0; i < kProofBytes; ++i) {
    proof += "0123456789abcdef"[digest[i] >> 4];
    proof += "0123456789abcdef"[digest[i] & 15];
  }
  return proof;
}

std::string about(std::string_view header, std::string_view what) {
  return fmt::format("header '{}' {}", header, what);
}

using NumberOrMissing = std::variant<std::int64_t, MissingId>;

NumberOrMissing number_in(std::string_view header, std::string_view text, std::int64_t least) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < least)
    return MissingId{about(header, fmt::format("is not a decimal number from {} to 9223372036854775807", least))};
  return number;
}

/// The single value of a header. A MissingId if there is no value, or more than one.
std::variant<std::string_view, MissingId> only(const Message& message, std::string_view header) {
  const auto found = message.find(header);
  if (found.count > 1) return MissingId{about(header, fmt::format("appears {} times", found.count))};
  if (!found.value) return MissingId{about(header, found.count == 0 ? "is absent" : "has no value")};
  return *found.value;
}

std::optional<MessageId> uuid_in(std::string_view text) {
  const MessageId id = MessageId::from(text);
  // Text that is no UUID was hashed, so its id has another text.
  return text.size() == 36 && id.text() == text ? std::optional(id) : std::nullopt;
}

NumberOrMissing acked_of(const Message& message) {
  if (message.find(kAck).count == 0) return 0;
  auto text = only(message, kAck);
  if (auto* missing = std::get_if<MissingId>(&text)) return std::move(*missing);
  return number_in(kAck, std::get<std::string_view>(text), 0);
}

/// When the message was first sent. A replayed record has a newer timestamp of its own.
Timestamp sent_at(const Message& message, bool replayed) {
  const auto said = replayed ? message.header(kSentAt) : std::nullopt;
  if (!said) return message.timestamp();
  const auto time = number_in(kSentAt, *said, 0);
  const auto* ms = std::get_if<std::int64_t>(&time);
  return ms == nullptr ? message.timestamp() : Timestamp(std::chrono::milliseconds(*ms));
}

}  // namespace

bool StampedRequest::is_proved(std::string_view topic, std::string_view secret) const {
  const std::string expected = proof_of(request, topic, secret);
  return proof.size() == expected.size() && CRYPTO_memcmp(proof.data(), expected.data(), expected.size()) == 0;
}

std::variant<StampedRequest, MissingId> request_of(const Message& message) {
  auto producer = only(message, kProducer);
  if (auto* missing = std::get_if<MissingId>(&producer)) return std::move(*missing);
  const auto id = uuid_in(std::get<std::string_view>(producer));
  if (!id) return MissingId{about(kProducer, "is not a UUID in lowercase letters")};
  auto digits = only(message, kNumber);
  if (auto* missing = std::get_if<MissingId>(&digits)) return std::move(*missing);
  auto number = number_in(kNumber, std::get<std::string_view>(digits), 1);
  if (auto* missing = std::get_if<MissingId>(&number)) return std::move(*missing);
  auto acked = acked_of(message);
  if (auto* missing = std::get_if<MissingId>(&acked)) return std::move(*missing);
  auto proof = only(message, kProof);
  if (auto* missing = std::get_if<MissingId>(&proof)) return std::move(*missing);
  const bool replayed = replayed_for(message).has_value();
  return StampedRequest{
      {*id, std::get<std::int64_t>(number), std::get<std::int64_t>(acked), sent_at(message, replayed), replayed},
      std::get<std::string_view>(proof)};
}

void stamp(OwnedMessage& message, const ports::Request& request, std::string_view secret) {
  std::erase_if(message.headers, [](const Header& header) {
    return header.name == kProducer || header.name == kNumber || header.name == kAck || header.name == kProof;
  });
  message.headers.push_back({std::string(kProducer), request.producer.text()});
  message.headers.push_back({std::string(kNumber), std::to_string(request.number)});
  message.headers.push_back({std::string(kAck), std::to_string(request.acked)});
  message.headers.push_back({std::string(kProof), proof_of(request, message.topic, secret)});
}

MessageId message_id(const ports::Request& request) {
  return MessageId::from(fmt::format("request {} {}", request.producer.text(), request.number));
}

}  // namespace turnstile::detail
