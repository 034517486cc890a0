#include "producer.hpp"

#include <array>
#include <condition_variable>

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

// librdkafka only reads them, but takes void*.
rd_kafka_vu_t bytes_of(rd_kafka_vtype_t kind, const std::optional<std::string>& bytes) {
  rd_kafka_vu_t field{};
  field.vtype = kind;
  field.u.mem.ptr = bytes ? const_cast<char*>(bytes->data()) : nullptr;
  field.u.mem.size = bytes ? bytes->size() : 0;
  return field;
}

/// Lives on the sender's stack: send() does not return before the report has come, and one always comes, at the latest
/// after delivery.timeout.ms.
struct DeliveryReport {
  std::mutex mutex;
  std::condition_variable arrived;
  bool here = false;
  rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR_NO_ERROR;
  BrokerProducer::Sent sent;

  void set(const rd_kafka_message_t& record) {
    std::lock_guard lock(mutex);
    code = record.err;
    sent = {record.partition, record.offset};
    here = true;
    arrived.notify_one();  // under the lock: the sender destroys this object as soon as it has it
  }
  void wait() {
    std::unique_lock lock(mutex);
    arrived.wait(lock, [this] { return here; });
  }
};

/// Not copied: the record's bytes stay where they are until the report has come.
KafkaError produce(rd_kafka_t* handle, const OwnedMessage& message, rd_kafka_headers_t* headers,
                   DeliveryReport& report) {
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
  fields[5].u.i = RD_KAFKA_MSG_F_BLOCK;
  fields[6].vtype = RD_KAFKA_VTYPE_OPAQUE;
  fields[6].u.ptr = &report;
  fields[7].vtype = RD_KAFKA_VTYPE_HEADERS;
  fields[7].u.headers = headers;
  return KafkaError{rd_kafka_produceva(handle, fields.data(), fields.size())};
}

}  // namespace

ProducerLine::ProducerLine(const Settings& settings, std::shared_ptr<spdlog::logger> logger)
    : client_(Client::open(Role::producer, settings, std::move(logger), this)),
      queue_(rd_kafka_queue_get_main(client_->handle())),
      server_([this] { serve(); }) {}

ProducerLine::~ProducerLine() {
  stop_ = true;
  rd_kafka_queue_yield(queue_.get());
  server_.join();
}

void ProducerLine::serve() noexcept {
  constexpr int poll_ms = 500;  // bounds the time to stop, should the yield come between two polls
  while (!stop_) rd_kafka_poll(client_->handle(), poll_ms);
}

void ProducerLine::on_delivered(const rd_kafka_message_t& record) noexcept {
  static_cast<DeliveryReport*>(record._private)->set(record);
}

bool ProducerLine::broken() const noexcept {
  return rd_kafka_fatal_error(client_->handle(), nullptr, 0) != RD_KAFKA_RESP_ERR_NO_ERROR;
}

BrokerProducer::Sent ProducerLine::send(const OwnedMessage& message) {
  DeliveryReport report;
  auto headers = headers_of(message);
  const auto refused = produce(client_->handle(), message, headers.get(), report);
  if (refused)
    throw broker_error(rd_kafka_error_code(refused.get()), rd_kafka_error_string(refused.get()),
                       client_->where(message.topic));
  (void)headers.release();  // librdkafka's, now that it has accepted the record
  report.wait();
  if (!report.code) return report.sent;
  if (report.code == RD_KAFKA_RESP_ERR__MSG_TIMED_OUT) throw client_->no_answer(report.code, "", message.topic);
  throw broker_error(report.code, "", client_->where(message.topic));
}

KafkaProducer::KafkaProducer(Settings settings, std::shared_ptr<spdlog::logger> logger)
    : settings_(std::move(settings)),
      logger_(std::move(logger)),
      line_(std::make_shared<ProducerLine>(settings_, logger_)) {}

std::shared_ptr<ProducerLine> KafkaProducer::line() {
  std::lock_guard lock(mutex_);
  if (line_->broken()) line_ = std::make_shared<ProducerLine>(settings_, logger_);
  return line_;
}

BrokerProducer::Sent KafkaProducer::send(const OwnedMessage& message) { return line()->send(message); }

}  // namespace turnstile::kafka
