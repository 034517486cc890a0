#pragma once
// librdkafka's objects, each freed by its own function.

#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>

namespace turnstile::kafka {

/// A timeout for librdkafka: 1 ms to an hour.
inline int ms(std::chrono::milliseconds time) {
  return static_cast<int>(std::clamp<std::int64_t>(time.count(), 1, 3'600'000));
}

template <auto Free>
struct FreedBy {
  template <class T>
  void operator()(T* handle) const noexcept {
    Free(handle);
  }
};

using Conf = std::unique_ptr<rd_kafka_conf_t, FreedBy<rd_kafka_conf_destroy>>;
using PartitionList = std::unique_ptr<rd_kafka_topic_partition_list_t, FreedBy<rd_kafka_topic_partition_list_destroy>>;
using Queue = std::unique_ptr<rd_kafka_queue_t, FreedBy<rd_kafka_queue_destroy>>;
using Topic = std::unique_ptr<rd_kafka_topic_t, FreedBy<rd_kafka_topic_destroy>>;
using KafkaError = std::unique_ptr<rd_kafka_error_t, FreedBy<rd_kafka_error_destroy>>;
using Event = std::unique_ptr<rd_kafka_event_t, FreedBy<rd_kafka_event_destroy>>;
using AdminOptions = std::unique_ptr<rd_kafka_AdminOptions_t, FreedBy<rd_kafka_AdminOptions_destroy>>;
using Metadata = std::unique_ptr<const rd_kafka_metadata_t, FreedBy<rd_kafka_metadata_destroy>>;
using ConfigResource = std::unique_ptr<rd_kafka_ConfigResource_t, FreedBy<rd_kafka_ConfigResource_destroy>>;
using NewTopicHandle = std::unique_ptr<rd_kafka_NewTopic_t, FreedBy<rd_kafka_NewTopic_destroy>>;
using NewPartitionsHandle = std::unique_ptr<rd_kafka_NewPartitions_t, FreedBy<rd_kafka_NewPartitions_destroy>>;
using DeleteTopicHandle = std::unique_ptr<rd_kafka_DeleteTopic_t, FreedBy<rd_kafka_DeleteTopic_destroy>>;
using RecordPtr = std::unique_ptr<rd_kafka_message_t, FreedBy<rd_kafka_message_destroy>>;

}  // namespace turnstile::kafka
