// How the consumer learns where partitions end. With isolation.level=read_committed, the records from the first one of
// an open transaction on are in the log, and no fetch brings them.

#include <algorithm>

#include "consumer.hpp"
#include "edges.hpp"

namespace turnstile::kafka {
namespace {

using std::chrono::milliseconds;

constexpr const char* kIsolation = "isolation.level";
constexpr const char* kUncommitted = "read_uncommitted";

std::optional<Offset> known(const Edge& end) {
  return !end.code && end.offset >= 0 ? std::optional<Offset>(end.offset) : std::nullopt;
}

}  // namespace

/// librdkafka asks with its client's level of isolation, and has no other question (2.0.2). So a client that reads
/// uncommitted records asks. It stays open: `turnstile top` asks every second.
std::vector<std::optional<Offset>> KafkaConsumer::log_ends(std::span<const TopicPartition> of, milliseconds timeout) {
  if (!uncommitted_) {
    Settings settings = settings_;
    const bool is_own = effective(settings, kIsolation) == kUncommitted;
    settings[kIsolation] = kUncommitted;
    uncommitted_ =
        is_own ? client_ : Client::open(Role::inspector, settings, nullptr);  // the consumer's own client logs
  }
  std::vector<std::optional<Offset>> ends;
  for (const Edge& end : ask_for_edges(*uncommitted_, of, RD_KAFKA_OFFSET_END, timeout)) ends.push_back(known(end));
  return ends;
}

/// The level of isolation is the consumer's, so the answer is `readable`. What the last fetch told would not do for it:
/// a partition whose queue is full is not fetched. But a partition that was read up to an open transaction is fetched
/// all the time.
std::vector<std::optional<ports::PartitionEnd>> KafkaConsumer::ends(std::span<const TopicPartition> of,
                                                                    milliseconds timeout) {
  const auto edges = ask_for_edges(*client_, of, RD_KAFKA_OFFSET_END, timeout);
  std::vector<std::optional<ports::PartitionEnd>> ends;
  for (std::size_t i = 0; i < of.size(); ++i) {
    const auto readable = known(edges[i]);
    if (!readable) {
      ends.emplace_back();
      continue;
    }
    Offset first = 0, fetched = 0;
    const bool was_fetched =
        !rd_kafka_get_watermark_offsets(client_->handle(), of[i].topic.c_str(), of[i].partition, &first, &fetched);
    ends.emplace_back(ports::PartitionEnd{*readable, was_fetched ? std::max(*readable, fetched) : *readable});
  }
  return ends;
}

std::vector<std::string> KafkaConsumer::why_no_end(std::span<const TopicPartition> of, milliseconds timeout) {
  return why_no_edge(*client_, of, timeout);
}

}  // namespace turnstile::kafka
