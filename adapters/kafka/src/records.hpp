#pragma once
// librdkafka's records as messages of the framework.

#include <librdkafka/rdkafka.h>

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "turnstile/ports/broker.hpp"

namespace turnstile::kafka {

class Client;

/// Parses a record's headers on demand.
class RecordHeaders final : public HeaderReader {
 public:
  std::vector<HeaderView> all(const void* record) const override;
  Found find(const void* record, std::string_view name) const override;
  /// For records of any origin.
  static const RecordHeaders& of_any();
  /// For records that lie where librdkafka received them (record_layout.hpp).
  static const RecordHeaders& in_place();

 private:
  explicit RecordHeaders(bool in_place) noexcept : in_place_(in_place) {}
  struct Parsed {
    const rd_kafka_headers_t* headers = nullptr;  ///< null: it has none, or none that can be parsed
    bool unreadable = false;
  };
  [[nodiscard]] Parsed of(const void* record) const;

  bool in_place_;
};

/// Owns the records, and keeps their client alive.
class RecordBlock final : public ports::Block {
 public:
  /// Takes ownership of the records. They must belong to one partition, and contain no errors.
  RecordBlock(std::shared_ptr<Client> client, std::span<rd_kafka_message_t* const> records);
  ~RecordBlock() override;
  RecordBlock(const RecordBlock&) = delete;
  RecordBlock& operator=(const RecordBlock&) = delete;
  [[nodiscard]] std::span<const Message> messages() const noexcept override { return views_; }

 private:
  std::shared_ptr<Client> client_;
  std::vector<Message> views_;  // native() of each is its record
};

}  // namespace turnstile::kafka
