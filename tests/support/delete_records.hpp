#pragma once
// Deletes the first records of a partition, on the broker of the tests.

#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tests/support/world.hpp"

namespace turnstile::test {

/// Deletes records as retention does.
inline void delete_before(const std::string& topic, std::int32_t partition, std::int64_t first_kept) {
  char error[512];
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "bootstrap.servers", kafka_servers().c_str(), error, sizeof error);
  const std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)> kafka{
      rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof error), rd_kafka_destroy};
  rd_kafka_topic_partition_list_t* list = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(list, topic.c_str(), partition)->offset = first_kept;
  rd_kafka_DeleteRecords_t* records = rd_kafka_DeleteRecords_new(list);
  rd_kafka_topic_partition_list_destroy(list);
  rd_kafka_queue_t* queue = rd_kafka_queue_new(kafka.get());
  rd_kafka_DeleteRecords(kafka.get(), &records, 1, nullptr, queue);
  rd_kafka_event_t* event = rd_kafka_queue_poll(queue, 20'000);
  EXPECT_TRUE(event != nullptr && rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR_NO_ERROR);
  rd_kafka_event_destroy(event);
  rd_kafka_queue_destroy(queue);
  rd_kafka_DeleteRecords_destroy(records);
}

}  // namespace turnstile::test
