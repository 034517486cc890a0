#pragma once
// Where a message's id comes from. Pure; computed once, from the raw record, before a handler sees it (hazard: id-before-handler).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "turnstile/message.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

/// The record has no usable id. `why` is for people: "header 'message-id' is absent". It never quotes the record.
struct MissingId {
  std::string why;
};

/// header:NAME | key | json:/pointer | cloudevents | offset. A value; thread-safe to read.
///
/// What is hashed, where an id is not one text of the record (all numbers eight bytes, the least significant first):
///   cloudevents   length of source, source, id
///   offset        length of topic, topic, incarnation, partition, offset
class IdSource {
 public:
  /// The source, or a sentence that says what is wrong with `text` and what may stand there.
  static std::variant<IdSource, std::string> parse(std::string_view text);

  /// `incarnation`: how often the topic was found recreated, see PartitionClaim.
  [[nodiscard]] std::variant<MessageId, MissingId> of(const Message& message, std::int32_t incarnation) const;
  /// As it was written: "header:message-id".
  [[nodiscard]] std::string text() const;
  /// Whether a record that is published again is another one.
  [[nodiscard]] bool is_offset() const noexcept { return kind_ == Kind::offset; }

 private:
  enum class Kind : std::uint8_t { header, key, json, cloudevents, offset };
  IdSource(Kind kind, std::string name, std::vector<std::string> path)
      : kind_(kind), name_(std::move(name)), path_(std::move(path)) {}

  Kind kind_;
  std::string name_;               ///< of the header, or the JSON pointer as written
  std::vector<std::string> path_;  ///< the JSON pointer's steps
};

/// Tells payloads apart: the first 64 bits of its SHA-256, 0 for a null payload. Stored, so it must not change.
std::int64_t fingerprint(const Message& message);
std::int64_t fingerprint(std::string_view body);

/// What an outside system may know a handler's effect by: the same for every run.
MessageId effect_key(std::string_view handler, const MessageId& id);

}  // namespace turnstile
