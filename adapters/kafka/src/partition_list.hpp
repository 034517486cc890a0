#pragma once

#include <span>
#include <vector>

#include "handles.hpp"
#include "turnstile/ports/broker.hpp"

namespace turnstile::kafka {

/// The list's elements, as a range.
std::span<rd_kafka_topic_partition_t> elements(rd_kafka_topic_partition_list_t* list);
std::span<const rd_kafka_topic_partition_t> elements(const rd_kafka_topic_partition_list_t* list);

PartitionList list_of(std::span<const TopicPartition> partitions);
/// Each with its offset and its metadata. It always makes new elements (hazard: reused-list-element).
PartitionList list_of(std::span<const ports::OffsetCommit> offsets);
std::vector<TopicPartition> partitions_of(const rd_kafka_topic_partition_list_t* list);

}  // namespace turnstile::kafka
