// What the group's offsets in Kafka tell the engine of its logs: Kafka deletes them together with their topic.

#include <algorithm>
#include <map>

#include "engine/engine.hpp"
#include "engine/engine_shared.hpp"
#include "engine/kafka_pace.hpp"
#include "turnstile/error.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// The wait before the last commit of a partition, and before the claims of partitions.
constexpr milliseconds kLongWait{2'000};
/// How often the engine asks for the group's offsets of partitions that are idle, or that other members read.
constexpr milliseconds kLogCheck{10'000};
/// How long Kafka surely keeps the offsets of a group without members: half of a day, the shortest default of
/// offsets.retention.minutes. A process can be suspended for longer, or cut off.
constexpr std::chrono::hours kOffsetsKept{12};

void add_missing(std::vector<TopicPartition>& to, const std::vector<TopicPartition>& more) {
  for (const auto& at : more) {
    if (std::find(to.begin(), to.end(), at) == to.end()) to.push_back(at);
  }
}

}  // namespace

void Engine::forget_old_offsets() { logs_.forget_offsets(LeaseClock::now() - kOffsetsKept); }

/// Removes the positions in topics that were deleted in the meantime: Kafka deletes a group's offsets with its topic.
/// An offset of the old topic must not be committed in the new one, because it would skip records that were never read.
/// At intervals, and as the last chance, it looks at all partitions that this process reads or has read: nothing else
/// shows an idle consumer another topic whose log is as long as the old one.
std::vector<TopicPartitionOffset> Engine::still_there(std::vector<TopicPartitionOffset> positions, bool wait) {
  forget_old_offsets();
  std::vector<TopicPartition> asked;
  for (const auto& position : positions) {
    if (logs_.expects_offset(position.at)) asked.push_back(position.at);
  }
  const auto lanes = shared_->scheduler.lanes();
  if (wait || LeaseClock::now() >= next_log_check_) {
    auto all = watched(lanes);
    add_missing(all, logs_.with_offset());
    if (!all.empty()) next_log_check_ = LeaseClock::now() + kLogCheck;
    add_missing(asked, all);
  }
  if (asked.empty() || drops_what_was_taken()) return positions;
  std::vector<std::optional<ports::GroupOffset>> committed;
  try {
    committed = look_at_offsets(asked, wait ? kLongWait : kKafkaWait);
  } catch (const BrokerError&) {
    std::vector<TopicPartitionOffset> kept;
    if (wait) {  // the last chance; without these commits the next owner reads more messages again
      const auto end = std::stable_partition(positions.begin(), positions.end(),
                                             [&](const auto& position) { return !logs_.expects_offset(position.at); });
      kept.assign(positions.begin(), end);
      positions.erase(positions.begin(), end);
    }
    on_commit_end(positions, false);
    next_commit_ = steady_clock::now() + kKafkaRest;
    return kept;
  }
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (committed[i]) continue;
    for (const auto& lane : lanes) {
      // Its offset can also have expired, if this process was cut off for long. Its claim then decides where to read.
      const bool had_one = logs_.expects_offset(asked[i]) || (lane->committed && lane->topic.needs_store());
      if (lane->place.at != asked[i] || !had_one) continue;
      std::erase_if(positions, [&](const auto& position) { return position.at == asked[i]; });
      doubt(lane);
    }
  }
  return positions;
}

/// A partition that this process reads, or has read, can show that the topic of a partition that it claims now was
/// recreated. If Kafka does not answer, no claim may take a missing offset for one that has expired: see start_of().
void Engine::look_for_recreated_topics() {
  forget_old_offsets();
  recreations_known_ = true;
  const auto asked = logs_.with_offset();
  if (asked.empty() || drops_what_was_taken()) return;
  try {
    look_at_offsets(asked, kLongWait);
  } catch (const BrokerError&) {
    recreations_known_ = false;
  }
}

/// Asks Kafka for the group's offsets, and notes which there are, and which it has dropped.
std::vector<std::optional<ports::GroupOffset>> Engine::look_at_offsets(const std::vector<TopicPartition>& asked,
                                                                       milliseconds wait) {
  auto committed = consumer_->committed(asked, wait);
  const auto read_here = watched(shared_->scheduler.lanes());
  std::map<TopicPartition, Fence> dropped;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const TopicPartition& at = asked[i];
    if (!committed[i]) {
      if (!logs_.had_offset(at)) continue;
      logs_.shows_recreation(at);
      if (const auto fence = logs_.take_released(at)) dropped[at] = *fence;
      continue;
    }
    // Of a partition that this process reads, its fence tells whether another member has begun another log.
    if (std::find(read_here.begin(), read_here.end(), at) == read_here.end())
      logs_.begun_elsewhere(at, committed[i]->metadata);
    logs_.has_offset(at, LeaseClock::now());
  }
  if (dropped.empty()) return committed;
  std::vector<TopicPartition> of_dropped;
  for (const auto& [at, fence] : dropped) add_missing(of_dropped, {at, {at.topic, 0}});
  KafkaAnswers kafka(*consumer_, std::move(of_dropped), wait);
  for (const auto& [at, fence] : dropped) {
    try {
      if (!begin_missing_log(at, fence, kafka)) logs_.released(at);
    } catch (const Fenced&) {  // another member has claimed it since
    } catch (const std::exception&) {
      logs_.released(at);  // it tries again when it looks again
    }
  }
  return committed;
}

/// Kafka has dropped the group's offset of this partition, nothing of it runs, and this process was the last to claim
/// it. If the topic exists, but the partition does not, the topic was recreated with fewer partitions. The partition has
/// no owner then. If it is added later, its owner may be a process that knows nothing of the old topic, and must not use
/// the old watermark. Returns false if it is not so. `kafka`: of this partition and the topic's first one. Throws Fenced if
/// another member has claimed it.
bool Engine::begin_missing_log(const TopicPartition& at, const Fence& fence, KafkaAnswers& kafka) {
  if (!shared_->scheduler.store_available() || kafka.bounds(at) || !kafka.bounds({at.topic, 0})) return false;
  keeper_->await_flush();  // no watermark of the old log may follow
  const auto incarnation = store_->partitions().begin_incarnation(fence, 0, logs_.incarnation(at) + 1);
  logs_.begun_elsewhere(at, write_incarnations({{incarnation, 0}}));  // not in what is known of the old log
  run_log_->info(at,
                 "the topic was recreated without this partition: if it is added again, it is read from its "
                 "beginning, as incarnation " +
                     std::to_string(incarnation));
  return true;
}

/// The partitions whose logs this process reads, without those of topics that do not exist now.
std::vector<TopicPartition> Engine::watched(const std::vector<LanePtr>& lanes) const {
  std::vector<TopicPartition> all;
  shared_->scheduler.locked([&] {
    for (const auto& lane : lanes) {
      const bool is_read = lane->phase == LaneState::Phase::open || lane->phase == LaneState::Phase::draining;
      if (is_read && !lane->replaced && !logs_.was_gone(lane->place.at)) all.push_back(lane->place.at);
    }
  });
  return all;
}

}  // namespace turnstile::detail
