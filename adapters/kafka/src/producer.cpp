#include "producer.hpp"

#include <condition_variable>

#include "hand_over.hpp"
#include "topics.hpp"
#include "turnstile/ports/record_not_stored.hpp"

namespace turnstile::kafka {
namespace {

/// It lives on the sender's stack: send() does not return before the report arrives. A report always arrives, at the
/// latest after delivery.timeout.ms.
struct DeliveryReport {
  std::mutex mutex;
  std::condition_variable arrived;
  bool here = false;
  rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR_NO_ERROR;
  bool may_be_stored = false;  ///< although `code` is an error
  ports::BrokerProducer::Sent sent;

  void set(const rd_kafka_message_t& record) {
    std::lock_guard lock(mutex);
    code = record.err;
    may_be_stored = rd_kafka_message_status(&record) != RD_KAFKA_MSG_STATUS_NOT_PERSISTED;
    sent = {record.partition, record.offset};
    here = true;
    arrived.notify_one();  // under the lock: the sender destroys this object as soon as it has the lock
  }
  void wait() {
    std::unique_lock lock(mutex);
    arrived.wait(lock, [this] { return here; });
  }
};

ports::RecordNotStored not_stored(const BrokerError& error) { return {error.code(), error.what()}; }

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
  constexpr int poll_ms = 500;  // the longest time to stop if the yield comes between two polls
  while (!stop_) rd_kafka_poll(client_->handle(), poll_ms);
}

void ProducerLine::on_delivered(const rd_kafka_message_t& record) noexcept {
  static_cast<DeliveryReport*>(record._private)->set(record);
}

bool ProducerLine::broken() const noexcept {
  return rd_kafka_fatal_error(client_->handle(), nullptr, 0) != RD_KAFKA_RESP_ERR_NO_ERROR;
}

ports::BrokerProducer::Sent ProducerLine::send(const OwnedMessage& message) {
  if (!ports::is_topic_name(message.topic))  // librdkafka would call the topic unknown
    throw not_stored(broker_error(RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION, "", client_->where(message.topic)));
  ask_before_first_records(*client_, {message.topic});
  DeliveryReport report;
  auto refused = hand_over(client_->handle(), message, &report, RD_KAFKA_MSG_F_BLOCK);
  if (refused && is_remembered(rd_kafka_error_code(refused.get())) && look_again(*client_, message.topic))
    refused = hand_over(client_->handle(), message, &report, RD_KAFKA_MSG_F_BLOCK);
  if (refused)
    throw not_stored(broker_error(rd_kafka_error_code(refused.get()), rd_kafka_error_string(refused.get()),
                                  client_->where(message.topic)));
  report.wait();
  if (!report.code) return report.sent;
  const BrokerError error = report.code == RD_KAFKA_RESP_ERR__MSG_TIMED_OUT
                                ? client_->no_answer(report.code, "", message.topic)
                                : broker_error(report.code, "", client_->where(message.topic));
  if (report.may_be_stored) throw error;
  throw not_stored(error);
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

ports::BrokerProducer::Sent KafkaProducer::send(const OwnedMessage& message) { return line()->send(message); }

}  // namespace turnstile::kafka
