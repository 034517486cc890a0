#pragma once
// A message as a handler sees it. `Message` is a view of a record that somebody else holds (librdkafka, a test):
// it is cheap to copy and valid only while the handler runs. `own()` copies it.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/types.hpp"

namespace turnstile {

/// Milliseconds since 1970, as Kafka has them.
using Timestamp = std::chrono::sys_time<std::chrono::milliseconds>;

/// A header as Kafka carries it: names may repeat, a value may be absent. Views into the record.
struct HeaderView {
  std::string_view name;                  ///< its name
  std::optional<std::string_view> value;  ///< absent: the header has no value
};

/// A header that owns its bytes.
struct Header {
  std::string name;                  ///< its name
  std::optional<std::string> value;  ///< absent: the header has no value
  /// Member by member.
  bool operator==(const Header&) const = default;
};

/// Reads the headers of a record only when they are asked for: most handlers never do, and parsing them costs
/// more than the rest of a message. Stateless; one per adapter, living for the whole process.
class HeaderReader {
 public:
  virtual ~HeaderReader() = default;
  /// All headers in the record's order; views into `record`.
  virtual std::vector<HeaderView> all(const void* record) const = 0;
  /// How many headers bear the name, and the value of the last one (Kafka's convention: the last one wins).
  struct Found {
    int count = 0;                          ///< how many headers have the name
    std::optional<std::string_view> value;  ///< of the last one; absent: none, or without a value
  };
  /// Looks for a header of the adapter's record.
  virtual Found find(const void* record, std::string_view name) const = 0;
};

/// A record that owns its bytes: to keep, to produce, to build in a test.
struct OwnedMessage {
  std::string topic;                   ///< where it is, or is to go
  std::int32_t partition = 0;          ///< within the topic
  Offset offset = 0;                   ///< within the partition
  Timestamp timestamp{};               ///< of the record
  std::optional<std::string> key;      ///< absent: no key
  std::optional<std::string> payload;  ///< absent: no payload
  std::vector<Header> headers;         ///< in their order
};

/// A message as a handler sees it: a view that lives as long as the handler runs.
class Message {
 public:
  /// What an adapter fills in.
  struct Fields {
    std::string_view topic;                   ///< the topic
    std::int32_t partition = 0;               ///< within the topic
    Offset offset = 0;                        ///< within the partition
    Timestamp timestamp{};                    ///< of the record
    std::optional<std::string_view> key;      ///< absent: no key
    std::optional<std::string_view> payload;  ///< absent: no payload
  };

  Message() = default;
  /// `record` is handed to `reader`; both must outlive this view.
  Message(const Fields& fields, const HeaderReader& reader, const void* record) noexcept
      : fields_(fields), reader_(&reader), record_(record) {}
  /// A view of an owned message, which must outlive it.
  explicit Message(const OwnedMessage& owned);

  /// The topic that it came from.
  [[nodiscard]] std::string_view topic() const noexcept { return fields_.topic; }
  /// The partition that it came from.
  [[nodiscard]] std::int32_t partition() const noexcept { return fields_.partition; }
  /// Its place in the partition.
  [[nodiscard]] Offset offset() const noexcept { return fields_.offset; }
  /// The record's own timestamp (create time or log append time, as the topic says); 0 when it has none.
  [[nodiscard]] Timestamp timestamp() const noexcept { return fields_.timestamp; }
  /// Absent for a record without a key.
  [[nodiscard]] std::optional<std::string_view> key() const noexcept { return fields_.key; }
  /// Absent for a null payload (a tombstone).
  [[nodiscard]] std::optional<std::string_view> payload() const noexcept { return fields_.payload; }
  /// The payload's text; empty for a null payload.
  [[nodiscard]] std::string_view text() const noexcept { return fields_.payload.value_or(std::string_view{}); }
  /// The value of the last header with that name.
  [[nodiscard]] std::optional<std::string_view> header(std::string_view name) const { return find(name).value; }
  /// The headers of this name: how many, and the last one.
  [[nodiscard]] HeaderReader::Found find(std::string_view name) const;
  /// All headers, in their order.
  [[nodiscard]] std::vector<HeaderView> headers() const;
  /// A copy that owns its bytes.
  [[nodiscard]] OwnedMessage own() const;
  /// What the adapter put in: for librdkafka's, the `rd_kafka_message_t*`.
  [[nodiscard]] const void* native() const noexcept { return record_; }

 private:
  Fields fields_;
  const HeaderReader* reader_ = nullptr;
  const void* record_ = nullptr;
};

/// "payments[3]@1042"
std::string where(const Message& message);

}  // namespace turnstile
