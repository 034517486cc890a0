#pragma once
// librdkafka's records as the framework's messages.

#include <librdkafka/rdkafka.h>

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "turnstile/ports/broker.hpp"

namespace turnstile::kafka {

class Client;

/// Parses a record's headers when asked.
class RecordHeaders final : public HeaderReader {
 public:
  std::vector<HeaderView> all(const void* record) const override;
  Found find(const void* record, std::string_view name) const override;
  static const RecordHeaders& instance();
};

/// Owns the records and a share of the client that they came from.
class RecordBlock final : public Block {
 public:
  /// Takes the records over. They are of one partition, and none holds an error.
  RecordBlock(std::shared_ptr<Client> client, std::span<rd_kafka_message_t* const> records);
  ~RecordBlock() override;
  RecordBlock(const RecordBlock&) = delete;
  RecordBlock& operator=(const RecordBlock&) = delete;
  [[nodiscard]] std::span<const Message> messages() const noexcept override { return views_; }

 private:
  std::shared_ptr<Client> client_;
  std::vector<Message> views_;  // each holds its record as native()
};

}  // namespace turnstile::kafka
