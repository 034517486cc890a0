#include "fetcher_wakeup.hpp"

#include <string>

namespace turnstile::kafka {
namespace {

constexpr int kLooksByItselfSince = 0x02020000;  // fetch.queue.backoff.ms

std::size_t number(const Settings& settings, const std::string& key) { return std::stoull(effective(settings, key)); }

}  // namespace

FetcherWakeup::FetcherWakeup(const Settings& settings) : needed_(rd_kafka_version() < kLooksByItselfSince) {
  if (!needed_) return;
  half_count_ = number(settings, "queued.min.messages") / 2;
  half_bytes_ = number(settings, "queued.max.messages.kbytes") * 1024 / 2;
}

bool FetcherWakeup::due(std::size_t waited, std::span<rd_kafka_message_t* const> taken,
                        std::size_t& bytes_since) const noexcept {
  if (!needed_) return false;
  for (const auto* record : taken) bytes_since += record->len + record->key_len;
  const bool passed_half = waited > half_count_ && waited <= half_count_ + taken.size();
  if (!passed_half && bytes_since < half_bytes_) return false;
  bytes_since = 0;
  return true;
}

void FetcherWakeup::wake(rd_kafka_t* handle, const char* topic, std::int32_t partition) noexcept {
  const PartitionList list{rd_kafka_topic_partition_list_new(1)};
  rd_kafka_topic_partition_list_add(list.get(), topic, partition)->offset = RD_KAFKA_OFFSET_BEGINNING;
  (void)rd_kafka_offsets_for_times(handle, list.get(), 0);
}

}  // namespace turnstile::kafka
