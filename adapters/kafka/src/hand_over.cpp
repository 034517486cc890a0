#include "hand_over.hpp"

#include <array>

namespace turnstile::kafka {
namespace {

using HeadersPtr = std::unique_ptr<rd_kafka_headers_t, FreedBy<rd_kafka_headers_destroy>>;

HeadersPtr headers_of(const OwnedMessage& message) {
  HeadersPtr headers{rd_kafka_headers_new(message.headers.size())};
  for (const auto& [name, value] : message.headers) {
    rd_kafka_header_add(headers.get(), name.data(), static_cast<ssize_t>(name.size()), value ? value->data() : nullptr,
                        value ? static_cast<ssize_t>(value->size()) : 0);
  }
  return headers;
}

// librdkafka only reads the bytes, but takes void*.
rd_kafka_vu_t bytes_of(rd_kafka_vtype_t kind, const std::optional<std::string>& bytes) {
  rd_kafka_vu_t field{};
  field.vtype = kind;
  field.u.mem.ptr = bytes ? const_cast<char*>(bytes->data()) : nullptr;
  field.u.mem.size = bytes ? bytes->size() : 0;
  return field;
}

}  // namespace

KafkaError hand_over(rd_kafka_t* handle, const OwnedMessage& message, void* opaque, int flags) {
  auto headers = headers_of(message);
  std::array<rd_kafka_vu_t, 8> fields{};
  fields[0].vtype = RD_KAFKA_VTYPE_TOPIC;
  fields[0].u.cstr = message.topic.c_str();
  fields[1].vtype = RD_KAFKA_VTYPE_PARTITION;
  fields[1].u.i32 = message.partition < 0 ? RD_KAFKA_PARTITION_UA : message.partition;
  fields[2] = bytes_of(RD_KAFKA_VTYPE_KEY, message.key);
  fields[3] = bytes_of(RD_KAFKA_VTYPE_VALUE, message.payload);
  fields[4].vtype = RD_KAFKA_VTYPE_TIMESTAMP;
  fields[4].u.i64 = message.timestamp.time_since_epoch().count();  // 0: now
  fields[5].vtype = RD_KAFKA_VTYPE_MSGFLAGS;
  fields[5].u.i = flags;
  fields[6].vtype = RD_KAFKA_VTYPE_OPAQUE;
  fields[6].u.ptr = opaque;
  fields[7].vtype = RD_KAFKA_VTYPE_HEADERS;
  fields[7].u.headers = headers.get();
  KafkaError refused{rd_kafka_produceva(handle, fields.data(), fields.size())};
  if (!refused) (void)headers.release();  // librdkafka owns them after it has accepted the record
  return refused;
}

}  // namespace turnstile::kafka
