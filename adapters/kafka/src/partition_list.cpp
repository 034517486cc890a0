#include "partition_list.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

namespace turnstile::kafka {

std::span<rd_kafka_topic_partition_t> elements(rd_kafka_topic_partition_list_t* list) {
  if (!list) return {};
  return {list->elems, static_cast<std::size_t>(list->cnt)};
}

std::span<const rd_kafka_topic_partition_t> elements(const rd_kafka_topic_partition_list_t* list) {
  if (!list) return {};
  return {list->elems, static_cast<std::size_t>(list->cnt)};
}

PartitionList list_of(std::span<const TopicPartition> partitions) {
  PartitionList list{rd_kafka_topic_partition_list_new(static_cast<int>(partitions.size()))};
  for (const auto& at : partitions) rd_kafka_topic_partition_list_add(list.get(), at.topic.c_str(), at.partition);
  return list;
}

PartitionList list_of(std::span<const ports::OffsetCommit> offsets) {
  PartitionList list{rd_kafka_topic_partition_list_new(static_cast<int>(offsets.size()))};
  for (const auto& [at, offset, metadata] : offsets) {
    auto* element = rd_kafka_topic_partition_list_add(list.get(), at.topic.c_str(), at.partition);
    element->offset = offset;
    if (metadata.empty()) continue;
    element->metadata = std::malloc(metadata.size());  // librdkafka frees it with the list
    if (element->metadata == nullptr) throw std::bad_alloc();
    std::memcpy(element->metadata, metadata.data(), metadata.size());
    element->metadata_size = metadata.size();
  }
  return list;
}

std::vector<TopicPartition> partitions_of(const rd_kafka_topic_partition_list_t* list) {
  std::vector<TopicPartition> partitions;
  for (const auto& element : elements(list)) partitions.push_back({element.topic, element.partition});
  return partitions;
}

}  // namespace turnstile::kafka
