#pragma once
// Where a message's id comes from. Pure; computed once from the raw record, before a handler sees the message
// (hazard: id-before-handler).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "turnstile/message.hpp"
#include "turnstile/types.hpp"

namespace turnstile::detail {

/// The record has no usable id. `why` is for people: "header 'message-id' is absent". It never quotes the record.
struct MissingId {
  std::string why;
};

/// header:NAME | key | json:/pointer | cloudevents | offset. A value; several threads may read it.
///
/// If an id is not a single text of the record, these values are hashed (each number in eight bytes, the least
/// significant first):
///   cloudevents   length of source, source, id
///   offset        length of topic, topic, incarnation, partition, offset
class IdSource {
 public:
  /// The source, or a sentence that tells why `text` is wrong and which values are allowed.
  static std::variant<IdSource, std::string> parse(std::string_view text);

  /// `incarnation` is how often the topic was found recreated; see PartitionClaim.
  [[nodiscard]] std::variant<MessageId, MissingId> of(const Message& message, std::int32_t incarnation) const;
  /// As written in the configuration: "header:message-id".
  [[nodiscard]] std::string text() const;
  /// Whether a record that is published again gets another id.
  [[nodiscard]] bool is_offset() const noexcept { return kind_ == Kind::offset; }

 private:
  enum class Kind : std::uint8_t { header, key, json, cloudevents, offset };
  IdSource(Kind kind, std::string name, std::vector<std::string> path)
      : kind_(kind), name_(std::move(name)), path_(std::move(path)) {}

  Kind kind_;
  std::string name_;               ///< of the header; or the JSON pointer as written
  std::vector<std::string> path_;  ///< the JSON pointer's steps
};

/// Distinguishes payloads: the first 64 bits of the SHA-256 of the payload, 0 for a null payload. It is stored, so it
/// must not change.
std::int64_t fingerprint(const Message& message);
std::int64_t fingerprint(std::string_view body);

/// The key by which an outside system can identify a handler's effect: the same for every run.
MessageId effect_key(std::string_view handler, const MessageId& id);

}  // namespace turnstile::detail
