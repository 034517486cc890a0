// A poll loop of the program's own that uses the decorators, for tests that kill it from outside, or let a message kill
// it.
//
//   poll_loop CONFIG TOPIC SCHEMA
//
// Each message makes one row in SCHEMA.effect. A message with the payload "abort" ends the process.

#include <librdkafka/rdkafka.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

#include "turnstile/kafka/message.hpp"
#include "turnstile/turnstile.hpp"

namespace {

using namespace turnstile;
using namespace std::chrono_literals;

volatile std::sig_atomic_t stopping = 0;

void on_rebalance(rd_kafka_t* kafka, rd_kafka_resp_err_t error, rd_kafka_topic_partition_list_t* partitions,
                  void* opaque) {
  if (error == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
    rd_kafka_assign(kafka, partitions);
    return;
  }
  auto& loop = *static_cast<PollLoop*>(opaque);
  for (int i = 0; i < partitions->cnt; ++i) loop.revoked({partitions->elems[i].topic, partitions->elems[i].partition});
  rd_kafka_assign(kafka, nullptr);
}

using Kafka = std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)>;
using Record = std::unique_ptr<rd_kafka_message_t, decltype(&rd_kafka_message_destroy)>;
using Topics = std::unique_ptr<rd_kafka_topic_partition_list_t, decltype(&rd_kafka_topic_partition_list_destroy)>;

Kafka subscribe(const Config& config, const std::string& topic, PollLoop& loop) {
  char error[512];
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "enable.auto.commit", "false", error, sizeof error);
  for (const auto& [name, value] : config.kafka) {
    if (rd_kafka_conf_set(conf, name.c_str(), value.c_str(), error, sizeof error) != RD_KAFKA_CONF_OK)
      throw std::runtime_error(error);
  }
  rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
  rd_kafka_conf_set_opaque(conf, &loop);
  Kafka kafka{rd_kafka_new(RD_KAFKA_CONSUMER, conf, error, sizeof error), rd_kafka_destroy};
  if (!kafka) throw std::runtime_error(error);
  rd_kafka_poll_set_consumer(kafka.get());
  const Topics topics{rd_kafka_topic_partition_list_new(1), rd_kafka_topic_partition_list_destroy};
  rd_kafka_topic_partition_list_add(topics.get(), topic.c_str(), RD_KAFKA_PARTITION_UA);
  rd_kafka_subscribe(kafka.get(), topics.get());
  return kafka;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return 2;
  std::signal(SIGTERM, [](int) { stopping = 1; });
  const Config config = Config::load(argv[1]);
  const std::string sql = "INSERT INTO " + std::string(argv[3]) +
                          ".effect (id, attempt, pid, record_partition, record_offset) VALUES ($1, $2, 0, $3, $4)";
  const auto handler = [&](const Message& message, Context& context) {
    if (message.text() == "abort") std::abort();
    context.tx().exec(sql, std::string(message.header("message-id").value_or("none")), context.attempt(),
                      message.partition(), message.offset());
  };
  PollLoop loop{config};
  loop.topic(argv[2], handler | transactional() | retry(exponential{20ms, 3, 200ms}) | dead_letter());
  const Kafka kafka = subscribe(config, argv[2], loop);
  while (stopping == 0) {
    const Record record{rd_kafka_consumer_poll(kafka.get(), 200), rd_kafka_message_destroy};
    if (!record || record->err != RD_KAFKA_RESP_ERR_NO_ERROR) continue;
    try {
      loop.handle(kafka::view(record.get()));
    } catch (const Fenced&) {
      continue;
    } catch (const ReadAgain& error) {
      const Topics where{rd_kafka_topic_partition_list_new(1), rd_kafka_topic_partition_list_destroy};
      rd_kafka_topic_partition_list_add(where.get(), error.from.at.topic.c_str(), error.from.at.partition)->offset =
          error.from.offset;
      rd_kafka_error_destroy(rd_kafka_seek_partitions(kafka.get(), where.get(), 10'000));
      loop.revoked(error.from.at);
      continue;
    }
    rd_kafka_commit_message(kafka.get(), record.get(), 1);
  }
  rd_kafka_consumer_close(kafka.get());
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
