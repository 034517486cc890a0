// The engine's handling of changed logs: topics that were deleted and created again, and logs that were cut off.

#include <algorithm>
#include <set>

#include "engine/claim_wait.hpp"
#include "engine/engine.hpp"
#include "engine/engine_shared.hpp"
#include "engine/kafka_pace.hpp"
#include "turnstile/error.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// How often it looks whether the handlers of an old log have ended.
constexpr milliseconds kDrainLook{50};

}  // namespace

/// A partition that is released while Kafka may have another log of it.
struct Engine::Leaving {
  LanePtr lane;
  OwnedPartition place;
  std::optional<Offset> watermark;  ///< the store's
  std::optional<Offset> done;       ///< all messages below it have taken effect
};

/// The lane's records, if they follow the records that were read.
std::unique_ptr<ports::Block> Engine::take(const LanePtr& lane, std::size_t most) {
  const TopicPartition& at = lane->place.at;
  auto block = consumer_->take(at, most);
  if (!block) return nullptr;
  const auto look = logs_.look(at, block->messages());
  if (look == LogIdentity::Look::follow || drops_what_was_taken()) return block;
  // The lane drops repeated records. But if Kafka has dropped the group's offset, they are records of another topic.
  if (look == LogIdentity::Look::repeat && (!logs_.had_offset(at) || has_offset_now(at))) return block;
  doubt(lane);
  return nullptr;
}

bool Engine::has_offset_now(const TopicPartition& at) try {
  return consumer_->committed({&at, 1}, kKafkaWait).front().has_value();
} catch (const BrokerError&) {
  return false;  // begin_other_logs() asks until there is an answer
}

/// No record of the lane is taken any more, and none of its positions counts. begin_other_logs() reads it again.
void Engine::doubt(const LanePtr& lane) {
  shared_->scheduler.locked([&] {
    lane->replaced = true;
    if (lane->phase == LaneState::Phase::open) lane->phase = LaneState::Phase::draining;
  });
  if (std::find(other_logs_.begin(), other_logs_.end(), lane) == other_logs_.end()) other_logs_.push_back(lane);
}

void Engine::on_topic_change(const std::string& topic, bool exists) {
  if (exists) {
    run_log_->warn(Code::topic_recreated,
                   "topic " + topic + " exists again: its partitions are read from their beginning");
  } else {
    run_log_->error(Code::topic_deleted,
                    "topic " + topic +
                        " was deleted in Kafka: its records that were not read yet are lost, and nothing of it runs "
                        "until it is created again. Other topics continue");
  }
  if (!exists) logs_.topic_is_gone(topic);
  for (const auto& lane : shared_->scheduler.lanes()) {
    if (lane->place.at.topic != topic) continue;
    if (exists) logs_.exists_again(lane->place.at);
    else logs_.is_gone(lane->place.at);
    if (exists && !drops_what_was_taken()) doubt(lane);
  }
}

/// Adds what Kafka knows to what the store knows. Throws BrokerError.
LogIdentity::Known Engine::what_is_known(const TopicPartition& at, LogIdentity::Known in_store, KafkaAnswers& kafka) {
  forget_old_offsets();
  LogIdentity::Known known = in_store;
  if (const auto& committed = kafka.committed(at)) {
    known.committed = committed->offset;
    known.committed_earlier = known.watermark && !logs_.read(at, committed->metadata);
    if (known.committed_earlier) {
      run_log_->info(at, "Kafka's offset " + std::to_string(committed->offset) +
                             " belongs to the log before: the database's watermark " +
                             std::to_string(*known.watermark) + " counts");
      known.committed = known.watermark;
    }
  }
  const auto& bounds = kafka.bounds(at);
  if (!bounds) throw BrokerError(Code::kafka_unavailable, to_string(at) + ": the broker does not report where it ends");
  known.first = bounds->first;
  known.end = bounds->second;
  if (std::max(known.committed, known.done) <= known.end) return known;  // absent is the lowest value
  // Either records were cut off, or they were read with isolation.level=read_uncommitted and their transaction is open.
  const auto& end = kafka.log_end(at);
  if (!end)
    throw BrokerError(Code::kafka_unavailable, to_string(at) + ": the broker does not report where its log ends");
  known.end = std::max(known.end, *end);
  return known;
}

void Engine::begin_other_logs() {
  if (other_logs_.empty() || steady_clock::now() < next_other_logs_) return;
  const auto all = shared_->scheduler.lanes();
  const auto is_revoked = [&](const auto& lane) { return std::find(all.begin(), all.end(), lane) == all.end(); };
  std::erase_if(other_logs_, is_revoked);
  look_for_other_logs();
  std::vector<LanePtr> drained;
  std::erase_if(other_logs_, [&](const auto& lane) {
    if (!lane->drains_until || !has_drained(lane)) return false;
    drained.push_back(lane);
    return true;
  });
  KafkaAnswers kafka(*consumer_, partitions_of(drained), kKafkaWait);
  for (const auto& lane : drained) {
    if (lane->topic.needs_store()) claim_other_log(lane);
    else if (!begin_without_store(lane, kafka)) other_logs_.push_back(lane);
  }
  if (other_logs_.empty()) return;
  const bool asks_kafka =
      std::any_of(other_logs_.begin(), other_logs_.end(), [](const auto& lane) { return !lane->drains_until; });
  next_other_logs_ = steady_clock::now() + (asks_kafka ? kKafkaRest : kDrainLook);
}

/// Until the topic exists and has a leader, there is nothing to read.
void Engine::look_for_other_logs() {
  std::vector<LanePtr> asked;
  for (const auto& lane : other_logs_) {
    if (!lane->drains_until) asked.push_back(lane);
  }
  if (asked.empty()) return;
  KafkaAnswers kafka(*consumer_, partitions_of(asked), kKafkaWait);
  for (const auto& lane : asked) {
    if (!kafka.bounds(lane->place.at)) continue;
    run_log_->info(
        lane->place.at,
        "Kafka may have another topic under this name: running handlers finish, then the partition is read anew");
    lane->drains_until = steady_clock::now() + settings_.consumer.drain_timeout;
  }
}

/// Running handlers of the old log may end, because no process can read its records again. Other partitions go on
/// meanwhile, so this thread does not wait for them.
bool Engine::has_drained(const LanePtr& lane) {
  if (shared_->scheduler.drain({&lane, 1}, SteadyTime::min(), [] { return true; })) return true;
  if (steady_clock::now() < *lane->drains_until) return false;
  shared_->scheduler.cancel({&lane, 1});
  return true;
}

/// The keeper claims it: see take_late_claims().
void Engine::claim_other_log(const LanePtr& lane) {
  flush_drained(*lane);
  shared_->scheduler.close({&lane, 1});
  logs_.begin(lane->place.at);
  OwnedPartition place{.at = lane->place.at, .fence = {}};
  place.guard = lane->place.guard;  // without its suspicion, which belongs to offsets of the old log
  auto fresh = std::make_shared<LaneState>(lane->topic, std::move(place));
  fresh->phase = LaneState::Phase::claiming;
  fresh->follows_other_log = true;
  fresh->flushed = settled_in_store(*lane);
  shared_->scheduler.open(std::move(fresh));
}

/// Up to where the lane's messages have taken effect in the store.
std::optional<Offset> Engine::settled_in_store(const LaneState& lane) const {
  return shared_->scheduler.locked([&] { return std::max(lane.lane.position(), lane.flushed); });
}

/// If it is the same log, cut off, the watermark tells where to go on. The keeper writes none of a lane in doubt.
void Engine::flush_drained(const LaneState& lane) {
  const auto position = shared_->scheduler.locked([&] { return lane.committed ? lane.lane.position() : std::nullopt; });
  if (!position || !lane.place.fence || !shared_->scheduler.store_available()) return;
  try {
    const ports::WatermarkUpdate update{*lane.place.fence, *position, lane.flushed};
    store_->partitions().advance_watermarks({&update, 1});
  } catch (const std::exception& e) {
    run_log_->debug(lane.place.at, lane.topic.runner.plan().handler, *position,
                    std::string("its watermark was not written, so more may be read again: ") + e.what());
  }
}

bool Engine::begin_without_store(const LanePtr& lane, KafkaAnswers& kafka) {
  const TopicPartition at = lane->place.at;
  try {
    const auto known = what_is_known(at, {}, kafka);
    const auto verdict = logs_.judge(at, known);
    OwnedPartition place{.at = at, .fence = {}};
    place.guard = lane->place.guard;
    const auto other = act_on(verdict, lane->topic, place, known);
    const Offset start = other ? *other : not_below(at, known.committed.value_or(known.first), known);
    logs_.settle(at, verdict, place.incarnation, other);
    if (verdict.kind != LogIdentity::Verdict::Kind::same) lane->topic.runner.forget(at);
    shared_->scheduler.close({&lane, 1});
    auto fresh = std::make_shared<LaneState>(lane->topic, place);
    fresh->start = start;
    shared_->scheduler.open(std::move(fresh));
    consumer_->seek({at, start});
    next_commit_ = {};  // a process that takes over knows only the group's offset
    return true;
  } catch (const BrokerError& e) {
    run_log_->warn(Code::partition_start_unknown, at,
                   std::string("the offset to continue at could not be determined; retrying: ") + e.what());
    lane->drains_until.reset();  // asks whether the topic still exists
    return false;
  }
}

/// These lanes are released before begin_other_logs() has handled them, or before their claim of the new log was taken.
/// Their next owner must not use the old topic's watermark for the new topic.
void Engine::leave_other_logs(const std::vector<LanePtr>& lanes, bool lost) {
  std::vector<LanePtr> leaving;
  for (const auto& lane : lanes) {
    const bool is_claimed = lane->place.fence || lane->place.guard;
    if (lane->topic.needs_store() && (lane->replaced || lane->follows_other_log) && is_claimed) leaving.push_back(lane);
  }
  if (leaving.empty()) return;
  keeper_->await_flush();
  const auto warn = [&](const TopicPartition& at, const std::exception& why) {
    run_log_->warn(Code::topic_recreated, at,
                   std::string("Kafka may have another topic under this name, and this process could not record it; "
                               "the next owner of the partition has to detect it: ") +
                       why.what());
  };
  std::vector<Leaving> owned;
  std::set<TopicPartition> asked;
  for (const auto& lane : leaving) {
    try {
      owned.push_back(own_to_leave(lane, lost));
      asked.insert({lane->place.at, {lane->place.at.topic, 0}});  // the latter for begin_missing_log()
    } catch (const std::exception& e) {
      warn(lane->place.at, e);
    }
  }
  KafkaAnswers kafka(*consumer_, {asked.begin(), asked.end()}, kKafkaWait);
  std::vector<ports::OffsetCommit> begun;
  for (auto& one : owned) {
    try {
      if (const auto start = leave(one, kafka)) begun.push_back({one.place.at, *start, logs_.metadata(one.place.at)});
    } catch (const std::exception& e) {
      warn(one.place.at, e);
    }
  }
  // So that the next owner knows where the new log began, even if the database forgets it.
  if (!begun.empty() && !lost) consumer_->commit(begun, true);
}

/// Whether it was claimed again since it was admitted: its fence is no longer valid.
bool Engine::has_late_claim(const LanePtr& lane) const {
  const std::lock_guard lock(shared_->mutex);
  return std::any_of(shared_->late_claims.begin(), shared_->late_claims.end(),
                     [&](const auto& late) { return late.first == lane; });
}

/// With a valid fence. Kafka must be asked after that: see KafkaAnswers.
Engine::Leaving Engine::own_to_leave(const LanePtr& lane, bool lost) {
  if (!shared_->scheduler.store_available()) throw StoreUnavailable("PostgreSQL does not answer");
  Leaving one{lane, lane->place, lane->flushed, settled_in_store(*lane)};
  OwnedPartition& place = one.place;
  if (place.fence && !has_late_claim(lane)) return one;
  if (lost) throw Fenced("another member may have claimed it");  // a claim would fence that member
  // No process knows which claim of the partition is the newest: the answer to one may have been lost.
  const auto claim =
      store_->partitions()
          .claim_partitions(settings_.group, {&place.at, 1}, claim_wait(settings_.lock_timeout, {lane}, *run_log_))
          .front();
  one.watermark = claim.watermark;
  // After a failover the store may have lost what took effect. And what took effect may belong to the log before: the
  // answer to begin_incarnation() can have been lost, too.
  const bool other_history = place.guard && place.guard->history != claim.fence.history;
  const bool other_log = logs_.claimed(place.at, claim.incarnation);
  logs_.claimed_under(place.at, claim.fence);
  if (other_history || other_log) one.done = std::max(claim.watermark, claim.highest_progress());
  place.fence = claim.fence;
  place.incarnation = claim.incarnation;
  return one;
}

/// Returns where the new log begins that the partition is released with. Absent: nothing is to be recorded.
std::optional<Offset> Engine::leave(Leaving& one, KafkaAnswers& kafka) {
  const TopicPartition& at = one.place.at;
  if (logs_.had_offset(at) && !kafka.committed(at) && begin_missing_log(at, *one.place.fence, kafka))
    return std::nullopt;
  const auto known = what_is_known(one.place.at, {.done = one.done, .watermark = one.watermark}, kafka);
  const auto verdict = logs_.judge(one.place.at, known);
  const auto start = act_on(verdict, one.lane->topic, one.place, known);
  using Kind = LogIdentity::Verdict::Kind;
  // For a log that the store has forgotten, Kafka's offset tells the next owner which messages are in doubt.
  if (verdict.kind == Kind::same || verdict.kind == Kind::forgotten) return std::nullopt;
  logs_.settle(one.place.at, verdict, one.place.incarnation, start);
  return start;
}

/// Where to start, if not where the log that was read continues.
std::optional<Offset> Engine::act_on(const LogIdentity::Verdict& verdict, const TopicState& topic,
                                     OwnedPartition& place, const LogIdentity::Known& known) {
  using Kind = LogIdentity::Verdict::Kind;
  if (verdict.kind == Kind::same) return verdict.from;
  const bool by_offset = topic.runner.plan().knows_by_offset();
  Offset start = *verdict.from;
  std::string where = "from its beginning, offset ";
  if (verdict.kind == Kind::forgotten && start > known.first) {
    where = "from offset ";
  } else if (verdict.kind == Kind::truncated && (verdict.exact || by_offset || !topic.needs_store())) {
    where = "from offset ";
    // Where the database knows exactly how far the partition is done, the records from there on have not taken effect.
    if (!verdict.exact && numbers_records(topic.runner.plan().mode))
      start = std::min(start, known.done.value_or(start));
  } else if (verdict.kind == Kind::truncated) {
    start = known.first;  // ids show which messages have taken effect
  }
  std::string as;
  if (place.fence) {
    // The group's offset stays as it is: its metadata tells the next owner that it belongs to the log before.
    const std::int32_t last = logs_.incarnation(place.at);
    place.incarnation =
        store_->partitions().begin_incarnation(*place.fence, start, verdict.kind == Kind::forgotten ? last : last + 1);
    as = " as incarnation " + std::to_string(place.incarnation);
  }
  if (verdict.kind == Kind::forgotten) {
    run_log_->warn(Code::store_rewound, place.at,
                   verdict.why + "; reading again " + where + std::to_string(start) + as);
    return start;
  }
  const bool recreated = verdict.kind == Kind::recreated;
  run_log_->warn(Code::topic_recreated, place.at,
                 (recreated ? "the topic was recreated: " : "records were cut off the partition's end: ") +
                     verdict.why + "; reading it " + where + std::to_string(start) + as +
                     (recreated || verdict.exact || !by_offset ? ""
                                                               : ". Records that were written below that since then "
                                                                 "cannot be distinguished from those that were read"));
  return start;
}

/// `start`, or the first record that Kafka still has. It warns about records between the two: those that the group has
/// not committed are lost.
Offset Engine::not_below(const TopicPartition& at, Offset start, const LogIdentity::Known& known) {
  if (start >= known.first) return start;
  const auto offsets = [](Offset from, Offset to) {
    return "offsets " + std::to_string(from) + " to " + std::to_string(to - 1);
  };
  const std::string goes_on = "; reading continues at offset " + std::to_string(known.first);
  const Offset settled = std::clamp(known.committed.value_or(start), start, known.first);
  if (settled > start) {
    run_log_->warn(Code::records_deleted, at,
                   "Kafka has deleted " + offsets(start, settled) +
                       " (retention). The group had committed them as settled, but the database's watermark is only " +
                       std::to_string(start) +
                       ". If the database has lost transactions since (a failover to a lagging replica, or a restore), "
                       "their effects may be missing, and they cannot be read again. Otherwise nothing is missing" +
                       goes_on);
  }
  if (settled < known.first) {
    run_log_->warn(Code::records_deleted, at,
                   "Kafka has deleted records before they were read: " + offsets(settled, known.first) +
                       " (retention). They are lost" + goes_on);
  }
  return known.first;
}

}  // namespace turnstile::detail
