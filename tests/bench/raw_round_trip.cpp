#include "tests/bench/raw_round_trip.hpp"

#include "tests/bench/bench_common.hpp"
#include "tests/bench/raw_kafka.hpp"

namespace bench {

namespace {

rd_kafka_t* open(rd_kafka_type_t type, const Settings& settings) {
  char why[512];
  rd_kafka_t* client = rd_kafka_new(type, make_conf(settings), why, sizeof why);
  if (client == nullptr) die(why);
  return client;
}

}  // namespace

RoundTrip::RoundTrip(const std::string& brokers, std::string topic)
    : topic_(std::move(topic)),
      producer_(open(RD_KAFKA_PRODUCER,
                     {{"bootstrap.servers", brokers}, {"enable.idempotence", "true"}, {"linger.ms", "0"}})),
      consumer_(open(RD_KAFKA_CONSUMER,
                     {{"bootstrap.servers", brokers}, {"group.id", topic_}, {"enable.auto.commit", "false"}})) {
  create_topic(producer_, topic_, 1);
  rd_kafka_topic_partition_list_t* where = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(where, topic_.c_str(), 0)->offset = RD_KAFKA_OFFSET_BEGINNING;
  if (const auto error = rd_kafka_assign(consumer_, where)) die(rd_kafka_err2str(error));
  rd_kafka_topic_partition_list_destroy(where);
}

RoundTrip::~RoundTrip() {
  rd_kafka_destroy(consumer_);
  remove_topic(producer_, topic_);
  rd_kafka_destroy(producer_);
}

void RoundTrip::once() {
  const auto error = rd_kafka_producev(producer_, RD_KAFKA_V_TOPIC(topic_.c_str()), RD_KAFKA_V_PARTITION(0),
                                       RD_KAFKA_V_VALUE(const_cast<char*>("echo"), 4),
                                       RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
  if (error) die(rd_kafka_err2str(error));
  const std::int64_t start_ns = now_ns();
  while (seconds_since(start_ns) < 30) {
    rd_kafka_message_t* message = rd_kafka_consumer_poll(consumer_, 1'000);
    if (message == nullptr) continue;
    const auto what = message->err;
    rd_kafka_message_destroy(message);
    if (what == RD_KAFKA_RESP_ERR_NO_ERROR) return;
    if (what != RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) die(rd_kafka_err2str(what));
  }
  die("a record did not come back within 30 s");
}

}  // namespace bench
