// How the consumer finds gaps behind the last record of a partition: offsets without a record, which the group may commit.
// And how it learns where librdkafka reads a partition of which the group's offset is not in the log (auto.offset.reset).

#include <utility>

#include "consumer.hpp"

namespace turnstile::kafka {
namespace {

using std::chrono::milliseconds;

/// A partition is idle if nothing was taken between two looks.
constexpr milliseconds kLookEvery{500};
/// How long until the same question is asked again: a transaction may be open for minutes, and a broker silent.
constexpr milliseconds kAskAgain{5'000};
/// The longest wait for an answer. Nothing is polled meanwhile.
constexpr milliseconds kPositionWait{500};

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
  std::vector<TopicPartition> unsure;
  for (auto& [at, assigned] : assigned_) {
    const bool has_moved =
        assigned.next != assigned.next_seen || assigned.seek_to || rd_kafka_queue_length(assigned.queue.get()) > 0;
    assigned.next_seen = assigned.next;
    assigned.idle_looks = has_moved ? 0 : assigned.idle_looks + 1;
    if (assigned.idle_looks > 1 && !look_at_idle(at, assigned)) unsure.push_back(at);
    else assigned.quiet_end.reset();
  }
  if (!unsure.empty() && SteadyClock::now() >= next_positions_) find_positions(unsure);
}

/// The last fetch tells where the partition begins and ends, and it brought no record. The partition may end with a
/// transaction that is still open. False: it may be read from another offset than `next`.
bool KafkaConsumer::look_at_idle(const TopicPartition& at, Assigned& assigned) {
  Offset first = 0, end = 0;
  if (rd_kafka_get_watermark_offsets(client_->handle(), at.topic.c_str(), at.partition, &first, &end) || end < 0)
    return true;
  if (!assigned.next || *assigned.next > end || *assigned.next < first) return false;
  const Offset next = *assigned.next;
  if (next == end) {
    assigned.read_up_to = end;
    return true;
  }
  const auto now = SteadyClock::now();
  if (assigned.gap_asked == end && now < assigned.gap_asked_at + kAskAgain) return true;
  if (!gaps_.ask(at, next)) return true;
  assigned.gap_asked = end;
  assigned.gap_asked_at = now;
  return true;
}

/// Of partitions of which no record has come. librdkafka reads from the group's offset, if that is in the log, and
/// otherwise from where auto.offset.reset tells.
void KafkaConsumer::find_positions(const std::vector<TopicPartition>& unsure) {
  std::vector<std::optional<ports::GroupOffset>> committed;
  std::vector<std::optional<std::pair<Offset, Offset>>> bounds;
  try {
    committed = this->committed(unsure, kPositionWait);
    bounds = this->bounds(unsure, kPositionWait);
  } catch (const BrokerError&) {
    next_positions_ = SteadyClock::now() + kAskAgain;
    return;
  }
  for (std::size_t i = 0; i < unsure.size(); ++i) {
    if (!bounds[i]) {
      next_positions_ = SteadyClock::now() + kAskAgain;
      continue;
    }
    Assigned& assigned = assigned_.at(unsure[i]);
    const auto [first, end] = *bounds[i];
    const auto next = assigned.next ? assigned.next : committed[i] ? std::optional(committed[i]->offset) : std::nullopt;
    if (next && *next >= first && *next <= end) assigned.next = next;
    else if (reset_to_ == RD_KAFKA_OFFSET_BEGINNING) assigned.next = assigned.read_up_to = first;
    else if (reset_to_ == RD_KAFKA_OFFSET_END && is_read_up_to(unsure[i], assigned, end))
      assigned.next = assigned.read_up_to = end;
  }
}

/// Whether a partition that is read from its end, as it was some time ago, has no record up to `end`, as it is now. If
/// the last fetch saw the same end, no transaction was open: its end would have added a marker. So that fetch brought
/// all records there are, and none was taken. They may be on their way to the queue, so it must be so at two looks.
bool KafkaConsumer::is_read_up_to(const TopicPartition& at, Assigned& assigned, Offset end) {
  Offset first = 0, fetched_end = 0;
  const bool is_quiet =
      !rd_kafka_get_watermark_offsets(client_->handle(), at.topic.c_str(), at.partition, &first, &fetched_end) &&
      fetched_end == end && rd_kafka_queue_length(assigned.queue.get()) == 0;
  const auto before = std::exchange(assigned.quiet_end, is_quiet ? std::optional(end) : std::nullopt);
  return is_quiet && before == end;
}

std::optional<Offset> KafkaConsumer::read_up_to(const TopicPartition& of) {
  const auto found = assigned_.find(of);
  if (found == assigned_.end() || found->second.seek_to) return std::nullopt;
  return found->second.read_up_to;
}

}  // namespace turnstile::kafka
