#include "tests/integration/cli_kafka.hpp"

#include <librdkafka/rdkafka.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "tests/support/eventually.hpp"
#include "turnstile/kafka/admin.hpp"
#include "turnstile/kafka/message.hpp"

namespace turnstile::test {

namespace {

using Clock = std::chrono::steady_clock;

struct Destroy {
  void operator()(rd_kafka_t* handle) const { rd_kafka_destroy(handle); }
  void operator()(rd_kafka_topic_partition_list_t* list) const { rd_kafka_topic_partition_list_destroy(list); }
  void operator()(rd_kafka_message_t* message) const { rd_kafka_message_destroy(message); }
};

std::unique_ptr<rd_kafka_t, Destroy> open_consumer(const std::string& brokers) {
  char why[256];
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  for (const auto& [key, value] : std::map<std::string, std::string>{{"bootstrap.servers", brokers},
                                                                     {"group.id", "cli-test"},
                                                                     {"enable.auto.commit", "false"},
                                                                     {"enable.partition.eof", "true"}}) {
    if (rd_kafka_conf_set(conf, key.c_str(), value.c_str(), why, sizeof why) != RD_KAFKA_CONF_OK)
      throw std::runtime_error(why);
  }
  std::unique_ptr<rd_kafka_t, Destroy> handle(rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why));
  if (!handle) throw std::runtime_error(why);
  rd_kafka_poll_set_consumer(handle.get());
  return handle;
}

}  // namespace

TestKafka::TestKafka() {
  const char* brokers = std::getenv("TURNSTILE_TEST_KAFKA");
  if (brokers != nullptr) brokers_ = brokers;
}

std::string TestKafka::create_topic(std::int32_t partitions, const std::map<std::string, std::string>& settings) {
  static int count = 0;
  const std::string name = "cli-" + std::to_string(getpid()) + "-" +
                           std::to_string(Clock::now().time_since_epoch().count()) + "-" + std::to_string(++count);
  kafka::create_topic({{"bootstrap.servers", brokers_}}, {name, partitions, 1, settings}, kServerPatience);
  return name;
}

std::vector<OwnedMessage> TestKafka::read(const std::string& topic, std::size_t count) {
  const auto consumer = open_consumer(brokers_);
  const std::unique_ptr<rd_kafka_topic_partition_list_t, Destroy> all(rd_kafka_topic_partition_list_new(4));
  for (std::int32_t partition = 0; partition < 4; ++partition) {
    rd_kafka_topic_partition_list_add(all.get(), topic.c_str(), partition)->offset = RD_KAFKA_OFFSET_BEGINNING;
  }
  rd_kafka_assign(consumer.get(), all.get());
  std::vector<OwnedMessage> records;
  const auto end = Clock::now() + std::chrono::seconds(30);
  while (records.size() < count && Clock::now() < end) {
    const std::unique_ptr<rd_kafka_message_t, Destroy> message(rd_kafka_consumer_poll(consumer.get(), 200));
    if (message && message->err == RD_KAFKA_RESP_ERR_NO_ERROR) records.push_back(kafka::view(message.get()).own());
  }
  return records;
}

}  // namespace turnstile::test
