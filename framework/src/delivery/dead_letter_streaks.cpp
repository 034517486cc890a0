#include "delivery/dead_letter_streaks.hpp"

#include <algorithm>
#include <utility>

#include "delivery/dead_letters.hpp"
#include "turnstile/shell.hpp"

namespace turnstile::detail {

std::optional<std::int64_t> DeadLetterStreaks::count(const OwnedPartition& place, DeadReason reason) {
  // Messages in doubt come from a crash or a failover that is over. Stopping the partition would settle none of them.
  if (most_ == 0 || reason == DeadReason::unknown) return std::nullopt;
  const std::lock_guard lock(mutex_);
  Streak& streak = by_partition_[place.at.partition];
  if (streak.reason != reason || streak.fence != place.fence) streak = {place.fence, reason, 0, false};
  running_ = by_partition_.size();
  if (streak.count >= most_) return streak.count;
  ++streak.count;
  return std::nullopt;
}

void DeadLetterStreaks::take_back(const OwnedPartition& place, DeadReason reason) {
  const std::lock_guard lock(mutex_);
  const auto it = by_partition_.find(place.at.partition);
  if (it == by_partition_.end() || it->second.reason != reason || it->second.fence != place.fence) return;
  it->second.count = std::max<std::int64_t>(it->second.count - 1, 0);
}

void DeadLetterStreaks::went_well(const OwnedPartition& place) { forget(place.at); }

void DeadLetterStreaks::forget(const TopicPartition& at) {
  if (running_.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(mutex_);
  by_partition_.erase(at.partition);
  running_ = by_partition_.size();
}

bool DeadLetterStreaks::tell_of(const OwnedPartition& place) {
  const std::lock_guard lock(mutex_);
  const auto it = by_partition_.find(place.at.partition);
  return it != by_partition_.end() && !std::exchange(it->second.told, true);
}

std::string remedy_for(DeadReason reason, const TopicPlan& plan, bool rows) {
  const std::string restart = ". Then restart the consumers";
  const auto replay = [&] {
    const std::string then = restart + ". After that, for the messages that are dead letters already: ";
    if (rows)
      return then + "turnstile dlq replay --all " + text::shell_option("--topic", plan.topic, "TOPIC") + " --reason " +
             std::string(to_text(reason));
    return then + "publish the records in the topic '" + plan.dead_letter.value_or("") + "' to '" + plan.topic +
           "' again";
  };
  const std::string section = "[topics." + plan.topic + "]";
  if (reason == DeadReason::missing_id && plan.mode == Mode::numbered)
    return "its producers do not number what they send: let them use NumberedSender, or set another mode in " +
           section + restart;
  if (reason == DeadReason::missing_id) {
    return "configure where its records have their ids, in " + section +
           ": message_id = \"key\", \"header:NAME\", \"json:/pointer\" or \"cloudevents\"; where they have none, mode = "
           "\"by_offset\"" +
           replay();
  }
  if (reason == DeadReason::too_old) {
    return "if old timestamps do not mean old deliveries, as when history is imported, set too_old = \"run\" in " +
           section + replay();
  }
  if (reason == DeadReason::duplicate)
    return "offsets may have been reset: duplicates = \"skip\" in " + section +
           " skips messages that have taken effect" + restart;
  if (reason == DeadReason::mismatch)
    return "equal ids come with different payloads: message_id in " + section +
           " names a value that several messages share, or a producer uses ids twice" + restart;
  if (reason == DeadReason::outside_window)
    return "raise request_window (" + std::to_string(plan.request_window) + ") in " + section + restart;
  if (reason == DeadReason::unreadable)
    return "find the producer that writes headers which no client can read, and repair it. Nothing in the consumer is "
           "wrong; stop_after_dead = 0 in " +
           section + " lets it go past such records" + restart;
  if (reason == DeadReason::no_session || reason == DeadReason::forged)
    return "check its producers: their sessions must be in the consumers' database, and their messages signed for this topic" +
           restart;
  return "see what the handler reports, and fix it or the system that it depends on" + replay();
}

}  // namespace turnstile::detail
