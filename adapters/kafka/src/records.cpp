#include "records.hpp"

#include <array>
#include <cstdint>
#include <mutex>

#include "client.hpp"
#include "record_layout.hpp"
#include "turnstile/kafka/message.hpp"

namespace turnstile::kafka {
namespace {

std::optional<std::string_view> bytes(const void* data, std::size_t size) {
  if (!data) return std::nullopt;
  return std::string_view(static_cast<const char*>(data), size);
}

Message view_of(const rd_kafka_message_t& record, std::string_view topic, const RecordHeaders& headers) {
  rd_kafka_timestamp_type_t kind{};
  const auto ms = rd_kafka_message_timestamp(&record, &kind);
  Message::Fields fields;
  fields.topic = topic;
  fields.partition = record.partition;
  fields.offset = record.offset;
  fields.timestamp = Timestamp{std::chrono::milliseconds{kind == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE || ms < 0 ? 0 : ms}};
  fields.key = bytes(record.key, record.key_len);
  fields.payload = bytes(record.payload, record.len);
  return {fields, headers, &record};
}

/// librdkafka parses a record's headers at the first call and stores them in the record, without a lock. Two workers can
/// make that call at once: one looks for the id of a waiting message, the other runs it.
std::mutex& lock_of(const void* record) {
  static std::array<std::mutex, 64> locks;
  return locks[(reinterpret_cast<std::uintptr_t>(record) >> 7) % locks.size()];  // a record has more than 128 bytes
}

}  // namespace

Message view(const rd_kafka_message_s* record) {
  return view_of(*record, record->rkt ? rd_kafka_topic_name(record->rkt) : std::string_view{}, RecordHeaders::of_any());
}

const RecordHeaders& RecordHeaders::of_any() {
  static const RecordHeaders reader{false};
  return reader;
}

const RecordHeaders& RecordHeaders::in_place() {
  static const RecordHeaders reader{true};
  return reader;
}

RecordHeaders::Parsed RecordHeaders::of(const void* record) const {
  if (!record) return {};
  const auto& fetched = *static_cast<const rd_kafka_message_t*>(record);
  if (in_place_ && certainly_without_headers(fetched.payload, fetched.len)) return {};
  rd_kafka_headers_t* headers = nullptr;
  const std::lock_guard lock(lock_of(record));
  const auto error = rd_kafka_message_headers(&fetched, &headers);
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return {.headers = headers};
  return {.unreadable = error != RD_KAFKA_RESP_ERR__NOENT};
}

std::vector<HeaderView> RecordHeaders::all(const void* record) const {
  std::vector<HeaderView> found;
  const auto* headers = of(record).headers;
  if (!headers) return found;
  found.reserve(rd_kafka_header_cnt(headers));
  const char* name = nullptr;
  const void* value = nullptr;
  std::size_t size = 0;
  for (std::size_t i = 0; rd_kafka_header_get_all(headers, i, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR; ++i)
    found.push_back({name, bytes(value, size)});
  return found;
}

HeaderReader::Found RecordHeaders::find(const void* record, std::string_view name) const {
  Found found;
  const auto [headers, unreadable] = of(record);
  found.unreadable = unreadable;
  if (!headers) return found;
  const char* here = nullptr;
  const void* value = nullptr;
  std::size_t size = 0;
  for (std::size_t i = 0; rd_kafka_header_get_all(headers, i, &here, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR;
       ++i) {
    if (name != here) continue;
    ++found.count;
    found.value = bytes(value, size);
  }
  return found;
}

RecordBlock::RecordBlock(std::shared_ptr<Client> client, std::span<rd_kafka_message_t* const> records)
    : client_(std::move(client)) {
  views_.reserve(records.size());
  const std::string_view topic = records.empty() ? "" : rd_kafka_topic_name(records.front()->rkt);
  const auto& headers = client_->leaves_records_in_place() ? RecordHeaders::in_place() : RecordHeaders::of_any();
  for (const auto* record : records) views_.push_back(view_of(*record, topic, headers));
}

RecordBlock::~RecordBlock() {
  for (const auto& message : views_) {
    // Const only for the framework: the block owns its records.
    rd_kafka_message_destroy(const_cast<rd_kafka_message_t*>(static_cast<const rd_kafka_message_t*>(message.native())));
  }
}

}  // namespace turnstile::kafka
