#pragma once
// A message as a handler sees it. `Message` is a view of a record that another object owns (librdkafka, a test). It is
// cheap to copy, and valid only while the handler runs. `own()` makes a copy.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/types.hpp"

namespace turnstile {

/// A header as Kafka carries it: names can repeat, and a value can be absent. It holds views into the record.
struct HeaderView {
  std::string_view name{};                  ///< the header's name
  std::optional<std::string_view> value{};  ///< absent: the header has no value
};

/// A header that owns its bytes.
struct Header {
  std::string name{};                  ///< the header's name
  std::optional<std::string> value{};  ///< absent: the header has no value
  /// Compares all members.
  bool operator==(const Header&) const = default;
};

/// Reads the headers of a record on demand. Most handlers never need them, and parsing them costs more than the rest of
/// the message. Stateless. Each adapter has one reader, which lives as long as the process.
class HeaderReader {
 public:
  virtual ~HeaderReader() = default;
  /// All headers, in the order of the record. The views point into `record`.
  virtual std::vector<HeaderView> all(const void* record) const = 0;
  /// The number of headers with a name, and the value of the last one. In Kafka's convention the last one wins. `unreadable`:
  /// the record has headers, and they cannot be parsed, so nothing is known of them. Turnstile does not run such a message
  /// (DeadReason::unreadable).
  struct Found {
    int count = 0;                          ///< how many headers have the name
    std::optional<std::string_view> value;  ///< of the last one; absent: no such header, or it has no value
    bool unreadable = false;                ///< the record's headers are malformed, or more than the client reads
  };
  /// Finds the headers with this name.
  virtual Found find(const void* record, std::string_view name) const = 0;
};

/// A record that owns its bytes: to store, to produce, or to build in a test.
struct OwnedMessage {
  std::string topic{};                   ///< its topic, or the topic to send it to
  std::int32_t partition = 0;            ///< within the topic
  Offset offset = 0;                     ///< within the partition
  Timestamp timestamp{};                 ///< the record's timestamp
  std::optional<std::string> key{};      ///< absent: no key
  std::optional<std::string> payload{};  ///< absent: no payload
  std::vector<Header> headers{};         ///< in the order of the record
  /// Only for Context::publish(): the message is sent at this time or later. A time that has passed, or none: at once.
  std::optional<Timestamp> not_before{};
};

/// A message as a handler sees it: a view that is valid while the handler runs.
class Message {
 public:
  /// The fields that an adapter fills in.
  struct Fields {
    std::string_view topic{};                   ///< the topic
    std::int32_t partition = 0;                 ///< within the topic
    Offset offset = 0;                          ///< of the record
    Timestamp timestamp{};                      ///< of the record
    std::optional<std::string_view> key{};      ///< absent: no key
    std::optional<std::string_view> payload{};  ///< absent: no payload
  };

  Message() = default;
  /// The view passes `record` to `reader`. Both must outlive it.
  Message(const Fields& fields, const HeaderReader& reader, const void* record) noexcept
      : fields_(fields), reader_(&reader), record_(record) {}
  /// A view of an owned message, which must outlive it.
  explicit Message(const OwnedMessage& owned);
  /// The runtime gives a handler views with ids. The id must outlive the view.
  Message(const Message& of, const MessageId& id) noexcept : Message(of) { id_ = &id; }

  /// The record's topic.
  [[nodiscard]] std::string_view topic() const noexcept { return fields_.topic; }
  /// The record's partition.
  [[nodiscard]] std::int32_t partition() const noexcept { return fields_.partition; }
  /// The record's offset in the partition.
  [[nodiscard]] Offset offset() const noexcept { return fields_.offset; }
  /// The record's timestamp: create time or log append time, depending on the topic. 0 if the record has none.
  [[nodiscard]] Timestamp timestamp() const noexcept { return fields_.timestamp; }
  /// Absent for a record without a key.
  [[nodiscard]] std::optional<std::string_view> key() const noexcept { return fields_.key; }
  /// Absent for a null payload (a tombstone).
  [[nodiscard]] std::optional<std::string_view> payload() const noexcept { return fields_.payload; }
  /// The payload's text; empty for a null payload.
  [[nodiscard]] std::string_view text() const noexcept { return fields_.payload.value_or(std::string_view{}); }
  /// The id by which the inbox knows the message: `ctx.tx().exec(sql, message.id())` sends it as a uuid. A UUID of the
  /// sender is unchanged; another id is a hash (MessageId::from()). Absent in mode at_least_once, and outside a handler.
  [[nodiscard]] std::optional<MessageId> id() const noexcept {
    return id_ == nullptr ? std::nullopt : std::optional(*id_);
  }
  /// The value of the last header with this name.
  [[nodiscard]] std::optional<std::string_view> header(std::string_view name) const { return find(name).value; }
  /// How many headers have this name, and the value of the last one.
  [[nodiscard]] HeaderReader::Found find(std::string_view name) const;
  /// All headers, in the order of the record.
  [[nodiscard]] std::vector<HeaderView> headers() const;
  /// A copy that owns its bytes.
  [[nodiscard]] OwnedMessage own() const;
  /// The adapter's own record. For librdkafka it is the `rd_kafka_message_t*`.
  [[nodiscard]] const void* native() const noexcept { return record_; }

 private:
  Fields fields_;
  const HeaderReader* reader_ = nullptr;
  const void* record_ = nullptr;
  const MessageId* id_ = nullptr;
};

/// "payments[3]@1042"
std::string where(const Message& message);

}  // namespace turnstile
