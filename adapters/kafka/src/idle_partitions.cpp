// How the consumer finds gaps behind the last record of a partition: offsets without a record, which the group may commit.

#include <algorithm>

#include "consumer.hpp"

namespace turnstile::kafka {
namespace {

using std::chrono::milliseconds;

/// A partition is idle if nothing was taken between two looks.
constexpr milliseconds kLookEvery{500};
/// How long until the same question is asked again: a transaction may be open for minutes.
constexpr milliseconds kAskAgain{5'000};

}  // namespace

void KafkaConsumer::look_at_idle_partitions() {
  for (const auto& gap : gaps_.found()) {
    const auto found = assigned_.find(gap.at);
    if (found == assigned_.end()) continue;
    Assigned& assigned = found->second;
    if (!assigned.next || *assigned.next < gap.from || *assigned.next >= gap.to) continue;
    assigned.next = assigned.read_up_to = gap.to;
  }
  if (SteadyClock::now() < next_look_at_idle_) return;
  next_look_at_idle_ = SteadyClock::now() + kLookEvery;
  for (auto& [at, assigned] : assigned_) {
    const bool is_idle = assigned.next && assigned.next == assigned.next_seen && !assigned.seek_to &&
                         rd_kafka_queue_length(assigned.queue.get()) == 0;
    assigned.next_seen = assigned.next;
    if (is_idle) look_at_idle(at, assigned);
  }
}

/// The last fetch tells where the partition begins and ends, and it brought no record. The partition may end with a
/// transaction that is still open.
void KafkaConsumer::look_at_idle(const TopicPartition& at, Assigned& assigned) {
  Offset first = 0, end = 0;
  if (rd_kafka_get_watermark_offsets(client_->handle(), at.topic.c_str(), at.partition, &first, &end) || end < 0)
    return;
  if (*assigned.next > end) return assigned.next.reset();  // it is read from another offset (auto.offset.reset)
  const Offset next = std::max(*assigned.next, first);     // records below `first` were deleted
  assigned.next = next;
  if (next == end) assigned.read_up_to = end;
  if (next == end) return;
  const auto now = SteadyClock::now();
  if (assigned.gap_asked == end && now < assigned.gap_asked_at + kAskAgain) return;
  assigned.gap_asked = end;
  assigned.gap_asked_at = now;
  gaps_.ask(at, next);
}

std::optional<Offset> KafkaConsumer::read_up_to(const TopicPartition& of) {
  const auto found = assigned_.find(of);
  if (found == assigned_.end() || found->second.seek_to) return std::nullopt;
  return found->second.read_up_to;
}

}  // namespace turnstile::kafka
