#include "engine/holds.hpp"

#include <algorithm>

#include "turnstile/shell.hpp"
#include "turnstile/text.hpp"

namespace turnstile::detail {

namespace {

std::string seconds_text(std::chrono::steady_clock::duration time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  if (ms < 10'000) return std::to_string(ms) + " ms";
  return std::to_string(ms / 1'000) + " s";
}

bool is_unclaimed(const LaneState& lane) {
  return lane.phase == LaneState::Phase::claiming || lane.phase == LaneState::Phase::fenced;
}

/// Kafka tells neither the producer nor whether it lives.
std::string why_hidden(const TopicPartition& at, Offset from, std::int64_t hidden) {
  const auto command = [&](const std::string& verb) {
    return "kafka-transactions.sh --bootstrap-server BROKER " + verb + " --topic " + at.topic + " --partition " +
           std::to_string(at.partition);
  };
  return "a producer's transaction that began at offset " + std::to_string(from) + " is open and hides " +
         text::count(hidden, "offset") +
         ": consumers get no record from there on before it ends. Find the producer, and let it commit or abort (" +
         command("describe-producers") + "). If it no longer runs, abort its transaction (" + command("abort") +
         " --start-offset " + std::to_string(from) + ")";
}

/// None of its messages is unsettled.
std::string why_unread(const LaneState& lane) {
  if (!lane.end.why_unknown.empty())
    return "Kafka does not tell where the partition ends, so records may wait there: " + lane.end.why_unknown;
  if (!lane.may_have_unread()) return "nothing holds it: it has no messages";
  if (const auto hidden = lane.hidden(); hidden > 0)
    return why_hidden(lane.place.at, lane.end.offsets->readable, hidden);
  return "records below offset " + std::to_string(lane.end.offsets->last) +
         " wait in Kafka, and the consumer does not get them from the broker that leads the partition";
}

}  // namespace

bool waits(const LaneState& lane) {
  return !lane.is_held() && (lane.lane.oldest() != nullptr || is_unclaimed(lane) || lane.may_have_unread());
}

bool is_stuck(const LaneState& lane, SteadyTime now, std::chrono::milliseconds patience) {
  if (!waits(lane)) return false;
  if (now - lane.moved_at >= patience) return true;
  const Message* oldest = lane.lane.oldest();
  return oldest != nullptr && lane.topic.runner.why_dead_letter_waits(lane.place, *oldest).has_value();
}

Holds::Holds(Scheduler& scheduler, const ports::Limiters* limiters)
    : scheduler_(scheduler), running_(scheduler.running()) {
  if (limiters != nullptr) limiters_ = limiters->health();
  for (const LanePtr& lane : scheduler.lanes()) {
    if (lane->topic.limiter && !limits_.contains(&lane->topic)) limits_[&lane->topic] = lane->topic.limiter->state();
  }
}

Hold Holds::of(const LaneState& lane, SteadyTime now) const {
  const TopicState& topic = lane.topic;
  const Message* oldest = lane.lane.oldest();
  const auto& store = scheduler_.store_trouble_unlocked();
  if (is_unclaimed(lane)) {
    if (!store.empty()) return {std::nullopt, "the partition waits for the database, which cannot be used: " + store};
    return {std::nullopt, "the partition could not be claimed in the database: " + lane.unclaimed_why};
  }
  const auto offset = oldest != nullptr ? std::optional(oldest->offset()) : std::nullopt;
  if (offset) {
    if (auto hold = running_on(lane, *offset, now)) return *hold;
  }
  if (!store.empty() && topic.needs_store() && !topic.fails_open())
    return {offset, "the database cannot be used, so no handler of the topic starts: " + store};
  if (lane.waits_for_pauses)
    return {offset, "the database does not tell what is paused, so no handler of the topic starts"};
  if (oldest == nullptr) return {std::nullopt, why_unread(lane)};
  if (auto why = topic.runner.why_dead_letter_waits(lane.place, *oldest)) return {offset, std::move(*why)};
  if (auto why = scheduler_.why_quiet_unlocked(lane, now); !why.empty()) return {offset, std::move(why)};
  if (topic.delivered.empty() && topic.asked > 0) return {offset, why_no_permit(topic)};
  if (const auto due = lane.lane.next_due(); due && *due > now)
    return {offset, "this message holds the partition: its last run failed, and the next one begins in " +
                        seconds_text(*due - now)};
  const bool all_busy = !running_.empty() &&
                        std::all_of(running_.begin(), running_.end(), [](const auto& r) { return !r.lanes.empty(); });
  return {offset, all_busy ? "this message holds the partition: it waits for a worker, and all " +
                                 std::to_string(running_.size()) + " are busy (consumer.workers)"
                           : "this message holds the partition"};
}

std::optional<Hold> Holds::running_on(const LaneState& lane, Offset oldest, SteadyTime now) const {
  bool at_work = false;
  for (const auto& worker : running_) {
    const auto is_this = [&](const LanePtr& one) { return one.get() == &lane; };
    if (std::none_of(worker.lanes.begin(), worker.lanes.end(), is_this)) continue;
    at_work = true;
    const auto run = worker.watch->look();
    if (!run) continue;
    const std::string time = seconds_text(now - run->since);
    if (run->partition == lane.place.at.partition)
      return Hold{run->offset, "this message holds the partition: its handler has been running for " + time};
    return Hold{oldest, "this message shares its transaction with " +
                            to_string(TopicPartition{lane.place.at.topic, run->partition}) + " offset " +
                            std::to_string(run->offset) + ", whose handler has been running for " + time};
  }
  if (!at_work || lane.lane.running() == 0) return std::nullopt;
  if (auto why = lane.topic.runner.why_dead_letter_waits(lane.place, *lane.lane.oldest())) return Hold{oldest, *why};
  if (const int failed = lane.lane.attempt_of_oldest() - 1; failed > 0) {
    return Hold{oldest, "this message holds the partition: it has failed " + std::to_string(failed) +
                            (failed == 1 ? " time" : " times") + ", and a worker runs it again"};
  }
  const auto& dead_letter = lane.topic.runner.plan().dead_letter;
  return Hold{oldest, "a worker has this message, and runs no handler: it waits for the database" +
                          (dead_letter ? ", or for the dead letter topic " + *dead_letter : std::string())};
}

std::string Holds::why_no_permit(const TopicState& topic) const {
  const std::string& name = topic.runner.plan().limiter;
  if (limiters_.state == LimitersHealth::State::halted)
    return "no handler under a limit starts until this process is restarted: " + limiters_.why;
  if (limiters_.state == LimitersHealth::State::cut_off)
    return "no handler under a limit starts for now: " + limiters_.why;
  const auto limit = limits_.find(&topic);
  if (limit == limits_.end()) return "it waits for a permit of limiter '" + name + "'";
  if (limit->second.limit == 0) {
    const std::string word = text::shell_operand(name, "NAME");
    return "limiter '" + name + "' is paused, its limit is 0: turnstile limits set " + word +
           " N, or turnstile limits unset " + word + ", lets handlers start again";
  }
  return "it waits for a permit of limiter '" + name + "': of " + std::to_string(limit->second.limit) +
         " at once this process uses " + std::to_string(limit->second.in_use) +
         "; turnstile permits shows which processes hold the others";
}

}  // namespace turnstile::detail
