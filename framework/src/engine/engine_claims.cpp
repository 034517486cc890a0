// How the engine claims its partitions in the store, at their assignment and later, and where it reads them from.

#include <algorithm>
#include <map>
#include <set>

#include "engine/claim_wait.hpp"
#include "engine/engine.hpp"
#include "engine/engine_shared.hpp"
#include "engine/setup_checks.hpp"
#include "turnstile/error.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// The longest wait for the broker within a rebalance: well below any session timeout.
constexpr milliseconds kBrokerWait{5'000};
/// The longest wait for it later, when nothing is polled meanwhile, and the pause after a call without an answer.
constexpr milliseconds kBrokerWaitAgain{500}, kBrokerRest{5'000};

/// The whole process must stop.
struct HandlerRenumbered : Error {
  explicit HandlerRenumbered(const std::string& message) : Error(Code::store_rewound, message) {}
};

/// A database that went back to an earlier time may have lost a handler's name. It may then have assigned its number to
/// another handler.
void expect_same_handler(ports::Store& store, const LaneState& lane) {
  const TopicRunner& runner = lane.topic.runner;
  const HandlerId now = store.register_handler(runner.plan().handler);
  if (now == runner.handler()) return;
  throw HandlerRenumbered("handler '" + runner.plan().handler + "' of topic '" + runner.plan().topic +
                          "': its number in the database was " + std::to_string(runner.handler().value) + " and is " +
                          std::to_string(now.value) +
                          " since the database went back to an earlier time. The consumer stops; start it again");
}

/// Mode leased: the messages that are read again were settled before. Either the lane before this one settled them or,
/// below Kafka's offset, the group did.
void mark_in_doubt(const LaneState& lane, const std::optional<Offset>& committed, Offset start, OwnedPartition& place) {
  if (lane.topic.runner.plan().mode != Mode::leased || lane.topic.fails_open()) return;
  SettledOffsets settled = lane.before ? lane.before->settled : SettledOffsets{};
  settled.add(SettledOffsets{committed.value_or(0), {}});
  if (settled.any_from(start)) place.in_doubt = std::make_shared<const SettledOffsets>(std::move(settled));
}

}  // namespace

std::vector<TopicPartitionOffset> Engine::on_assigned(std::span<const TopicPartition> partitions) {
  std::vector<LanePtr> claiming, unfenced;
  for (const auto& at : partitions) {
    TopicState* topic = topic_of(at);
    if (topic == nullptr) continue;
    logs_.assigned(at);
    if (topic->needs_store()) claiming.push_back(open_claiming(*topic, {.at = at, .fence = {}}));
    else unfenced.push_back(std::make_shared<LaneState>(*topic, OwnedPartition{.at = at, .fence = {}}));
  }
  open_unfenced(unfenced);
  if (!claiming.empty()) look_for_recreated_topics();
  run_log_->info("assigned " + std::to_string(partitions.size()) + " partitions");
  count_partitions(partitions_ + partitions.size());
  auto starts = claim(claiming);
  kept_.clear();                    // what was not assigned again has another owner
  limiters_->wait_until_claimed();  // no message of them has been read yet
  reporter_->assigned(partitions_);
  return starts;
}

/// A lane that this thread claims. The keeper does not claim it: a second claim would fence the first one.
LanePtr Engine::open_claiming(TopicState& topic, OwnedPartition place, std::optional<LaneState::Before> before) {
  auto lane = std::make_shared<LaneState>(topic, std::move(place));
  lane->phase = LaneState::Phase::claiming;
  lane->claim_at = SteadyTime::max();
  lane->before = std::move(before);
  shared_->scheduler.open(lane);
  return lane;
}

/// Mode at_least_once needs no store, and starts where Kafka tells.
void Engine::open_unfenced(const std::vector<LanePtr>& lanes) {
  guard(lanes);
  for (const auto& lane : lanes) {
    lane->topic.runner.forget(lane->place.at);  // other members may have owned it since
    limiters_->on_claimed(settings_.group, {}, lane->place.at, Epoch{});
    tell_assigned(*lane, Epoch{});
    shared_->scheduler.open(lane);
  }
}

/// Claims the partitions of these lanes in the store, and opens them. Returns the offsets to read from. The keeper
/// claims the partitions that this function could not claim.
std::vector<TopicPartitionOffset> Engine::claim(const std::vector<LanePtr>& lanes) {
  std::vector<TopicPartitionOffset> starts;
  if (lanes.empty()) return starts;
  std::map<TopicPartition, LanePtr> claiming;
  for (const auto& lane : lanes) claiming[lane->place.at] = lane;
  KafkaAnswers kafka(*consumer_, partitions_of(lanes), kBrokerWait);
  const auto begin = [&](const ports::PartitionClaim& claim) {
    const LanePtr& lane = claiming.at(claim.at);
    const OwnedPartition place = place_of(*lane, claim, kafka);
    if (lane->start) starts.push_back({claim.at, *lane->start});
    shared_->scheduler.admit(*lane, place);
    limiters_->on_claimed(settings_.group, claim.store, claim.at, claim.fence.epoch);
    tell_assigned(*lane, claim.fence.epoch);
  };
  try {
    const auto claims = store_->partitions().claim_partitions(settings_.group, partitions_of(lanes),
                                                              claim_wait(settings_.lock_timeout, lanes, *run_log_));
    std::set<const TopicState*> topics;
    for (const auto& lane : lanes) {
      if (topics.insert(&lane->topic).second)
        check_no_claims(*store_, lane->topic.runner.handler(), lane->topic.runner.plan());
    }
    for (const auto& claim : claims) {
      try {
        begin(claim);
      } catch (const BrokerError& e) {  // the others may have a leader
        run_log_->warn(Code::partition_start_unknown, claim.at,
                       std::string("the offset to start at could not be determined; retrying: ") + e.what());
      }
    }
  } catch (const StoreBusy& e) {
    run_log_->info(std::string("the assigned partitions could not be claimed in the database yet, because another "
                               "session holds a lock; the consumer tries again: ") +
                   e.what());
  } catch (const ConfigError&) {
    fatal_ = std::current_exception();
  } catch (const std::exception& e) {
    shared_->scheduler.store_failed(e.what());  // the keeper claims them when the database is available again
    go_on_without_store(lanes, kafka);
  }
  shared_->scheduler.locked([&] {
    for (const auto& lane : lanes) lane->claim_at = {};
  });
  return starts;
}

void Engine::tell_assigned(const LaneState& lane, Epoch epoch) const {
  lane.topic.runner.services().observers.tell(&Observer::on_assigned, lane.place.at, epoch);
}

void Engine::take_late_claims() {
  std::vector<std::pair<LanePtr, ports::PartitionClaim>> late;
  {
    const std::lock_guard lock(shared_->mutex);
    late.swap(shared_->late_claims);
  }
  if (late.empty()) return;
  look_for_recreated_topics();
  std::vector<TopicPartition> claimed;
  for (const auto& [lane, claim] : late) claimed.push_back(claim.at);
  KafkaAnswers kafka(*consumer_, std::move(claimed), kBrokerWaitAgain);
  for (const auto& [lane, claim] : late) {
    take_late_claim(lane, claim, kafka);
    if (fatal_) return;
  }
}

/// What a late claim meets.
Engine::LateClaim Engine::look_at(LaneState& lane, const ports::PartitionClaim& claim) const {
  return shared_->scheduler.locked([&] {
    if (lane.phase == LaneState::Phase::claiming) return LateClaim::first;
    if (lane.phase != LaneState::Phase::fenced) return LateClaim::released;
    const bool changed = lane.went_back || lane.place.fence->history != claim.fence.history ||
                         claim.watermark < lane.flushed || lane.place.incarnation != claim.incarnation;
    if (!changed) return LateClaim::again;
    // Even if it continues without the store, it cannot continue in another log.
    const bool other_log = claim.incarnation > lane.place.incarnation;
    if (!lane.topic.fails_open() || other_log) return LateClaim::of_another_history;
    lane.went_back = false;
    lane.flushed = claim.watermark;
    return LateClaim::again;
  });
}

void Engine::take_late_claim(LanePtr lane, const ports::PartitionClaim& claim, KafkaAnswers& kafka) {
  const LateClaim kind = look_at(*lane, claim);
  if (kind == LateClaim::released) return;  // released in the meantime: its next owner claims it
  if (kind == LateClaim::of_another_history) lane = begin_anew(lane);
  try {
    check_no_claims(*store_, lane->topic.runner.handler(), lane->topic.runner.plan());
    OwnedPartition place{claim.at, claim.fence, claim.incarnation};
    if (kind == LateClaim::again) {
      begin_again(*lane, place);
      place.in_doubt = lane->place.in_doubt;
      lane->topic.runner.find_dead(place, lane->start);
      watch_over(place, lane->place, claim, lane->start, kafka);
    } else {  // nothing was taken yet: go to the start of the partition
      place = place_of(*lane, claim, kafka);
      if (lane->start) consumer_->seek({claim.at, *lane->start});
    }
    limiters_->on_claimed(settings_.group, claim.store, claim.at, claim.fence.epoch);
    limiters_->wait_until_claimed();
    shared_->scheduler.admit(*lane, place);
    const std::string again =
        kind == LateClaim::of_another_history
            ? ", after the database had changed; reading again from offset " + std::to_string(lane->start.value_or(0))
            : "";
    run_log_->info(claim.at, "claimed, epoch " + std::to_string(claim.fence.epoch.value) + again);
    tell_assigned(*lane, claim.fence.epoch);
  } catch (const HandlerRenumbered&) {
    fatal_ = std::current_exception();
  } catch (const ConfigError&) {
    fatal_ = std::current_exception();
  } catch (const std::exception& e) {
    run_log_->warn(Code::partition_start_unknown, claim.at,
                   std::string("claimed, but the offset to start at could not be determined; retrying: ") + e.what());
    shared_->scheduler.locked([l = lane.get()] { l->claim_at = steady_clock::now() + kBrokerRest; });
  }
}

/// A topic that continues without the database goes on where it is, even if the database has forgotten the log.
void Engine::begin_again(LaneState& lane, OwnedPartition& place) {
  logs_.claimed(place.at, place.incarnation);
  logs_.claimed_under(place.at, *place.fence);
  const std::int32_t last = logs_.incarnation(place.at);
  if (last == place.incarnation) return;
  const auto position =
      shared_->scheduler.locked([&] { return lane.lane.position() ? lane.lane.position() : lane.start; });
  place.incarnation = store_->partitions().begin_incarnation(*place.fence, position.value_or(0), last);
  logs_.settle(place.at, {}, place.incarnation, std::nullopt);
}

// --- where a partition starts ----------------------------------------------------------------------------------------

/// Where to start so that no message is missed: at the lower of Kafka's committed offset and the database's watermark,
/// but not below the start of the log. A topic that continues without the database starts at Kafka's offset, because
/// its watermark did not advance.
/// If the database went back to a time before its first watermark of the partition, it knows nothing. Then the start is
/// where the group began to read it or, if this process does not know that, the beginning of the topic. Absent: as
/// Kafka tells. `claim` gets the watermark that this function writes.
std::optional<Offset> Engine::start_of(LaneState& lane, ports::PartitionClaim& claim, OwnedPartition& place,
                                       KafkaAnswers& kafka) {
  const TopicState& topic = lane.topic;
  auto done = std::max(claim.watermark, claim.highest_progress());  // absent is the lowest value
  // The watermark may not have been written since. What took effect is in the store, if that lost no transactions.
  if (lane.place.guard && lane.place.guard->history == claim.fence.history) done = std::max(done, lane.flushed);
  const bool suspect = logs_.suspects(claim.at);
  if (!done && !lane.before && !suspect) return std::nullopt;
  const auto known = what_is_known(claim.at, {.done = done, .watermark = claim.watermark}, kafka);
  using Kind = LogIdentity::Verdict::Kind;
  auto verdict = logs_.judge(claim.at, known);
  // A topic that continues without the database continues at Kafka's offset.
  if (verdict.kind == Kind::forgotten && topic.fails_open() && known.committed && !known.committed_earlier)
    verdict.from = std::max(*known.committed, known.first);
  const auto other = act_on(verdict, topic, place, known);
  if (place.incarnation != claim.incarnation) claim.watermark = other;
  logs_.settle(claim.at, verdict, place.incarnation, other);
  if (verdict.kind != Kind::same) next_commit_ = {};  // Kafka's offset then names the new log
  if (known.committed && verdict.kind != Kind::recreated) {
    logs_.has_offset(claim.at, LeaseClock::now());
    // An offset of the log before is not the offset of this log, even if it is the same number.
    if (verdict.kind != Kind::truncated && !known.committed_earlier) lane.committed = known.committed;
  }
  // Mode leased: records of another log are not in doubt, at any offset.
  if (other && (verdict.kind == Kind::forgotten || verdict.kind == Kind::same)) {
    const Offset settled = known.committed_earlier ? 0 : known.committed.value_or(0);
    mark_in_doubt(lane, std::min(settled, known.end), *other, place);
  }
  if (other) return other;
  const auto& committed = known.committed;
  if (!claim.watermark && lane.before) {
    const Offset start = std::max(lane.before->first.value_or(known.first), known.first);
    run_log_->warn(
        Code::store_rewound, claim.at,
        "the database went back to a time before its first watermark of the partition; reading again from offset " +
            std::to_string(start));
    // At once, because a process that takes over later knows only the database.
    const ports::WatermarkUpdate update{claim.fence, start};
    if (store_->partitions().advance_watermarks({&update, 1}).front() != ports::WatermarkState::moved)
      throw Fenced(to_string(claim.at) + ": it was claimed by another member meanwhile");
    claim.watermark = start;
    mark_in_doubt(lane, committed, start, place);
    return start;
  }
  if (!claim.watermark && committed) return not_below(claim.at, *committed, known);
  if (!claim.watermark) return suspect || topic.done_without_ids(claim) ? std::optional(known.first) : std::nullopt;
  Offset start = committed && (topic.fails_open() || *committed < *claim.watermark) ? *committed : *claim.watermark;
  if (!committed) {
    if (!recreations_known_) {
      throw BrokerError(Code::kafka_unavailable,
                        to_string(claim.at) +
                            ": Kafka has no offset of the group, and did not answer whether the "
                            "topic's other partitions have one");
    }
    // Either the group had no members for a long time, and Kafka has deleted its offsets, or the topic was recreated.
    // In both cases the records' own ids show which of them have taken effect.
    if (!topic.runner.plan().knows_by_offset()) start = known.first;
    if (*claim.watermark > 0) {  // at 0, nothing of it is skipped, and nothing has taken effect
      run_log_->warn(Code::group_offset_missing, claim.at,
                     "Kafka has no offset of the group, and the database has settled the partition up to " +
                         std::to_string(*claim.watermark) + "; reading it from offset " + std::to_string(start) +
                         (start < *claim.watermark
                              ? ": messages that have taken effect are recognized by their ids, and do not run again"
                              : ". If the topic was deleted and created again, its records below that are not read"));
    }
  } else if (start < *committed) {
    run_log_->info(claim.at, "starting at the database's watermark " + std::to_string(start) +
                                 ", below Kafka's offset " + std::to_string(*committed) +
                                 " (the group's offset was moved forward, or the database lost commits): the records "
                                 "between are read");
  } else if (*committed < *claim.watermark) {
    run_log_->info(
        claim.at,
        "starting at Kafka's offset " + std::to_string(*committed) + ", below the database's watermark " +
            std::to_string(*claim.watermark) +
            " (the group's offset was lowered, or not committed before a crash): the records between are read "
            "again, and those that took effect are duplicates");
  }
  start = not_below(claim.at, start, known);
  mark_in_doubt(lane, committed, start, place);
  return start;
}

/// Decides where the partition is read from, and collects its data.
OwnedPartition Engine::place_of(LaneState& lane, ports::PartitionClaim claim, KafkaAnswers& kafka) {
  OwnedPartition place{claim.at, claim.fence, claim.incarnation};
  if (lane.before) expect_same_handler(*store_, lane);
  if (logs_.claimed(claim.at, claim.incarnation)) {  // another member has begun another log
    lane.before.reset();
    lane.flushed.reset();
  }
  logs_.claimed_under(claim.at, claim.fence);
  lane.start = start_of(lane, claim, place, kafka);
  const auto done = place.incarnation == claim.incarnation ? lane.topic.done_without_ids(claim) : std::nullopt;
  if (done > lane.start) {
    run_log_->info(claim.at, "starting at offset " + std::to_string(*done) +
                                 ": the handler has done the records below it in mode by_offset or numbered, which "
                                 "stores no ids");
    lane.start = done;
  }
  lane.follows_other_log = false;
  lane.flushed = claim.watermark;
  lane.topic.runner.find_dead(place, lane.start);
  watch_over(place, lane.place, claim, lane.start, kafka);
  return place;
}

/// Finds messages that may have killed the last owner, before they kill other processes. `before`: the partition as
/// this process owned it until now, if it did. `start`: nothing below it is read; absent: unknown.
void Engine::watch_over(OwnedPartition& place, const OwnedPartition& before, const ports::PartitionClaim& claim,
                        std::optional<Offset> start, KafkaAnswers& kafka) {
  place.guard = claim.fence;
  if (claim.is_clean) return;
  if (is_next_claim(before.guard, claim.fence)) {
    place.suspicion = before.suspicion;
    return;
  }
  const auto& bounds = kafka.bounds(claim.at);
  place.suspicion =
      suspect(*trials_, claim, start.value_or(0), bounds ? std::optional(bounds->second) : std::nullopt, *run_log_);
}

// --- what differs from the last owner --------------------------------------------------------------------------------

/// Mode at_least_once needs no store. If the program has a store, it finds messages that kill their process there too.
void Engine::guard(const std::vector<LanePtr>& lanes) {
  if (!store_ || lanes.empty()) return;
  try {
    const auto claims = store_->partitions().claim_partitions(settings_.group, partitions_of(lanes),
                                                              claim_wait(settings_.lock_timeout, lanes, *run_log_));
    KafkaAnswers kafka(*consumer_, partitions_of(lanes), kBrokerWaitAgain);
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      std::optional<Offset> start;
      if (!claims[i].is_clean) {
        try {
          if (const auto& committed = kafka.committed(claims[i].at)) start = committed->offset;
        } catch (const BrokerError&) {  // then no suspect is dropped
        }
      }
      watch_over(lanes[i]->place, OwnedPartition{.at = claims[i].at, .fence = {}}, claims[i], start, kafka);
      if (const auto& suspicion = lanes[i]->place.suspicion) lanes[i]->lane.single_out(suspicion->suspects);
    }
  } catch (const std::exception& e) {
    run_log_->info(
        "topics in mode at_least_once continue without the database, so messages that kill their process are not found: " +
        std::string(e.what()));
  }
}

/// The database has another history than when the partition was claimed (a restart, a failover to a replica, a backup),
/// or a lower watermark than before. The last commits may be lost. The watermark was written after the messages below
/// it, so all of those are there. The rest is read again. Nothing of the lane runs.
LanePtr Engine::begin_anew(const LanePtr& lane) {
  logs_.begin(lane->place.at);
  OwnedPartition place{.at = lane->place.at, .fence = {}};
  place.guard = lane->place.guard;
  place.suspicion = lane->place.suspicion;
  auto before = shared_->scheduler.locked([&] { return what_was_settled(*lane); });
  shared_->scheduler.close({&lane, 1});
  return open_claiming(lane->topic, std::move(place), std::move(before));
}

}  // namespace turnstile::detail
