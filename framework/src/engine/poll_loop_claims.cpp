// The partitions of a PollLoop: their claims, and where the caller reads them from.

#include <algorithm>

#include "engine/claim_wait.hpp"
#include "engine/log_identity.hpp"
#include "engine/poll_loop_state.hpp"
#include "engine/setup_checks.hpp"
#include "turnstile/error.hpp"
#include "turnstile/ports/broker.hpp"

namespace turnstile::detail {

namespace {

/// How long the broker may take to return where a log begins and ends.
constexpr std::chrono::seconds kKafkaWait{5};

[[noreturn]] void throw_read_again(const TopicPartition& at, Offset from) {
  throw ReadAgain(
      to_string(at) +
          ": the database was restarted, failed over or restored, and may have lost what it had committed; seek "
          "the partition to offset " +
          std::to_string(from) + ", and call revoked()",
      {at, from});
}

}  // namespace

OwnedPartition PollLoopState::place_of(const Message& message, const TopicState& topic) {
  const TopicPartition at{std::string(message.topic()), message.partition()};
  if (!spec.backends.store) return {.at = at, .fence = {}};
  const std::lock_guard lock(mutex);
  if (const auto it = read_again.find(at); it != read_again.end()) throw_read_again(at, it->second);
  Known known{.message = message.offset(), .first = message.offset(), .is_other = is_other_record(at, topic, message)};
  std::optional<OwnedPartition> before;  // it stays in `places` if a call below throws: the next call finds the same
  if (const auto it = places.find(at); it != places.end()) {
    if (!may_be_another_log(at, known)) {
      remember(at, topic, message);
      return it->second;
    }
    before = it->second;
    if (const auto mine = progress.find(at); mine != progress.end()) known.settled = mine->second.settled;
  }
  OwnedPartition place{.at = at, .fence = {}};
  if (!topic.needs_store()) {
    guard_unfenced(place, topic, message.offset());
    return places[at] = std::move(place);
  }
  const Claimed claimed = topic.fails_open() ? Claimed{claim(at, topic)} : claim_from(at, topic, known);
  place.fence = claimed.claim.fence;
  place.incarnation = claimed.claim.incarnation;
  topic.runner.find_dead(place, std::nullopt);  // only the caller knows where it starts
  if (const auto it = in_doubt.find(at); it != in_doubt.end())
    place.in_doubt = std::make_shared<const SettledOffsets>(SettledOffsets{it->second.below});
  guard(place, claimed.claim, message.offset(), before ? &*before : nullptr);
  progress[at] = {.first = message.offset(), .last = message.offset()};
  places[at] = place;
  if (!topic.fails_open()) start_at_the_watermark(message, topic, claimed);
  remember(at, topic, message);
  return place;
}

/// Call it with the mutex held.
ports::PartitionClaim PollLoopState::claim(const TopicPartition& at, const TopicState& topic) {
  try {
    auto claimed =
        spec.backends.store->partitions()
            .claim_partitions(spec.config.group(), {&at, 1},
                              claim_wait(topic.runner.services().lock_timeout, topic.runner.plan(), at, *run_log))
            .front();
    if (topic.needs_store()) check_no_claims(*spec.backends.store, topic.runner.handler(), topic.runner.plan());
    return claimed;
  } catch (const StoreBusy& e) {
    throw StoreUnavailable(
        Code::store_busy,
        to_string(at) +
            ": the partition could not be claimed in the database, because another session holds a lock: " + e.what());
  }
}

/// Claims the partition. If it has no watermark, the first message's offset becomes its watermark. It is written before
/// anything is settled, so that a process that settles a later message than the first cannot skip the first.
/// Another member may claim the partition before the watermark is written, and may have a later first message. If the
/// log is another one than the settled log, old offsets have no meaning, and its incarnation begins. If another member
/// has begun it already, what this loop knows is of the old log. Call it with the mutex held.
PollLoopState::Claimed PollLoopState::claim_from(const TopicPartition& at, const TopicState& topic, Known known) {
  bool begun_elsewhere = false;
  for (;;) {
    ports::PartitionClaim claimed = claim(at, topic);
    const auto mine = handled.find(at);
    const std::int32_t last = mine == handled.end() ? claimed.incarnation : mine->second.incarnation;
    if (last < claimed.incarnation) {
      forget_the_old_log(at);
      known.is_other = false;
      known.settled.reset();
      begun_elsewhere = true;
    }
    if (claimed.incarnation < last) {
      // It has lost what all owners of that incarnation had settled, and this loop may not be the first of them.
      const Offset first = std::min(begin_of_log(at).value_or(known.first), known.first);
      run_log->warn(Code::store_rewound, at,
                    "the database went back to a time before it knew that the topic was recreated; reading again from "
                    "offset " +
                        std::to_string(first));
      begin_incarnation(claimed, first, last);
      return {claimed};
    }
    handled[at].incarnation = claimed.incarnation;
    const auto done =
        std::max({claimed.watermark, claimed.highest_progress(), known.settled});  // absent is the lowest value
    std::optional<Offset> first;
    if (known.is_other) {
      first = begin_of_another_log(at, topic, known.message, std::nullopt);
      if (!first) handled[at].log.forget();
    } else if (done) {
      first = begin_of_another_log(at, topic, known.message, *done);
    }
    if (first) {
      begin_incarnation(claimed, *first, claimed.incarnation + 1);
      forget_the_old_log(at);
      return {claimed, true};
    }
    if (claimed.watermark) return {claimed, false, begun_elsewhere};
    const ports::WatermarkUpdate update{claimed.fence, known.first};
    claimed.watermark = known.first;
    if (spec.backends.store->partitions().advance_watermarks({&update, 1}).front() == ports::WatermarkState::moved)
      return {claimed, false, begun_elsewhere};
  }
}

void PollLoopState::begin_incarnation(ports::PartitionClaim& claim, Offset first, std::int32_t at_least) {
  claim.incarnation = spec.backends.store->partitions().begin_incarnation(claim.fence, first, at_least);
  handled[claim.at].incarnation = claim.incarnation;
  claim.watermark = first;
  claim.progress.clear();
}

/// Returns where Kafka's log begins and ends, if it is a different log from the log whose messages below `done` are
/// settled. Absent: as far as known, it is that log.
/// Kafka is asked only if `message` lies below `done`. `message` is in Kafka's log, and so are the messages after it.
/// Without `done`: another record was handled at its offset. Throws BrokerError.
std::optional<std::pair<Offset, Offset>> PollLoopState::bounds_of_another_log(const TopicPartition& at, Offset message,
                                                                              std::optional<Offset> done) const {
  if ((done && message >= *done) || !spec.backends.broker) return std::nullopt;
  const auto consumer = spec.backends.broker->open_consumer();
  auto bounds = consumer->bounds({&at, 1}, kKafkaWait).front();
  if (!bounds || (done && bounds->second >= *done)) return std::nullopt;
  // The loop may read with isolation.level=read_uncommitted: records of open transactions are in the log too.
  const auto end = consumer->log_ends({&at, 1}, kKafkaWait).front();
  if (!end || (done && *end >= *done)) return std::nullopt;
  bounds->second = *end;
  if (message >= bounds->second) return std::nullopt;  // the loop reads a topic of that name from another Kafka
  return bounds;
}

/// Returns where to begin reading, if Kafka has another log: see bounds_of_another_log(). Call it under a claim: only
/// then is it certain that no other member has found that log.
std::optional<Offset> PollLoopState::begin_of_another_log(const TopicPartition& at, const TopicState& topic,
                                                          Offset message, std::optional<Offset> done) const {
  try {
    const auto bounds = bounds_of_another_log(at, message, done);
    if (!bounds) return std::nullopt;
    const std::string why =
        done
            ? "it ends at offset " + std::to_string(bounds->second) + ", and was settled up to " + std::to_string(*done)
            : "offset " + std::to_string(message) + " holds another record than the one that was handled there";
    // Kafka deletes the group's offset together with a topic. If there is an offset, records were cut off the log's
    // end, or the caller has committed since.
    if (topic.runner.plan().knows_by_offset() &&
        spec.backends.broker->open_consumer()->committed({&at, 1}, kKafkaWait).front()) {
      run_log->error(Code::topic_recreated, at,
                     "the topic was recreated, or records were cut off its end: " + why +
                         ". Its new records below the settled offset cannot be distinguished from the old ones, and "
                         "count as duplicates. Give a recreated topic another name");
      return std::nullopt;
    }
    run_log->warn(Code::topic_recreated, at,
                  "the topic was recreated, or records were cut off its end: " + why +
                      "; reading it from its beginning, offset " + std::to_string(bounds->first));
    return bounds->first;
  } catch (const std::exception& e) {
    warn_of_same_topic(at, message, e);
    return std::nullopt;
  }
}

void PollLoopState::warn_of_same_topic(const TopicPartition& at, Offset message, const std::exception& why) const {
  run_log->warn(Code::partition_start_unknown, at,
                "offset " + std::to_string(message) +
                    " was settled before, and Kafka did not answer whether the topic was recreated since; it counts "
                    "as the same topic: " +
                    why.what());
}

bool PollLoopState::remembers_records(const TopicState& topic) const {
  return topic.needs_store() && !topic.fails_open() && spec.backends.broker != nullptr;
}

/// Whether this loop has handled another record at this offset. Call it with the mutex held.
bool PollLoopState::is_other_record(const TopicPartition& at, const TopicState& topic, const Message& message) const {
  if (!remembers_records(topic)) return false;
  const auto known = handled.find(at);
  return known != handled.end() && known->second.log.compare(message) == LogMemory::Finding::other &&
         known->second.log.has_read(message.offset());
}

/// Call it with the mutex held.
void PollLoopState::remember(const TopicPartition& at, const TopicState& topic, const Message& message) {
  if (!remembers_records(topic)) return;
  LogMemory& memory = handled[at].log;
  if (memory.compare(message) == LogMemory::Finding::ahead) memory.note(message);
}

/// For a partition that this loop owns. The caller has not called revoked(), and reads another record than before, or
/// lower offsets than before. It is another log if that log ends below the settled offset. Call it with the mutex held.
bool PollLoopState::may_be_another_log(const TopicPartition& at, const Known& known) {
  const auto found = progress.find(at);
  const bool goes_back = found != progress.end() && known.message < found->second.last && found->second.settled;
  if (known.is_other || goes_back) {
    try {
      if (bounds_of_another_log(at, known.message, known.is_other ? std::nullopt : found->second.settled)) return true;
    } catch (const std::exception& e) {
      warn_of_same_topic(at, known.message, e);
    }
  }
  if (known.is_other) handled[at].log.forget();
  if (found != progress.end()) found->second.last = known.message;
  return false;
}

/// Call it with the mutex held.
void PollLoopState::forget_the_old_log(const TopicPartition& at) {
  handled[at].log.forget();
  gone_back.erase(at);
  in_doubt.erase(at);
  attempts.erase(at);
  dropped.erase(at);
  topics.at(at.topic)->runner.forget(at);
}

/// The caller believes that the messages between the watermark and the first message were settled. The database may
/// have lost them, together with the process that could have noticed it. If no message lies between them, the same
/// message comes again after the seek.
/// A message below TopicState::done_without_ids() must not run: the caller is sent forward.
void PollLoopState::start_at_the_watermark(const Message& message, const TopicState& topic, const Claimed& claimed) {
  const TopicPartition at{std::string(message.topic()), message.partition()};
  const auto been = gone_back.extract(at);
  const auto done = topic.done_without_ids(claimed.claim);
  const auto settled = std::max(claimed.claim.watermark, done);
  const bool too_early = done > message.offset();
  if (!settled || (!too_early && *settled >= message.offset())) return;
  if (been && been.mapped() == *settled && !too_early) return;
  const Offset from = too_early ? *done : not_below_the_log(at, *settled, message.offset());
  if (from == message.offset()) return;
  read_again[at] = from;
  gone_back[at] = *settled;
  const std::string first = to_string(at) + ": the first message has offset " + std::to_string(message.offset());
  const std::string seek = "; seek the partition to offset " + std::to_string(from) + ", and call revoked()";
  if (too_early)
    throw ReadAgain(first + ", and the handler has done the records below offset " + std::to_string(from) +
                        " in mode by_offset or numbered, which stores no ids: they would run again" + seek,
                    {at, from});
  if (claimed.another_log)
    throw ReadAgain(first + ", and the topic was recreated: it is read from its beginning" + seek, {at, from});
  const auto unsettled = dropped.find(at);
  doubt(at, topic,
        {.below = unsettled == dropped.end() ? message.offset() : std::min(message.offset(), unsettled->second)});
  throw ReadAgain(first + ", and the database records what was done only below offset " + std::to_string(*settled) +
                      ": the last owner ended without releasing the partition, or the database lost its last "
                      "transactions" +
                      seek,
                  {at, from});
}

/// Absent without a broker, for a topic that it does not have, and while it does not answer.
std::optional<Offset> PollLoopState::begin_of_log(const TopicPartition& at) const {
  if (!spec.backends.broker) return std::nullopt;
  try {
    const auto bounds = spec.backends.broker->open_consumer()->bounds({&at, 1}, kKafkaWait).front();
    if (bounds) return bounds->first;
    run_log->warn(
        Code::partition_start_unknown, at,
        "Kafka does not report where the partition begins, so the offset to read again from may lie below its "
        "first record");
  } catch (const std::exception& e) {
    run_log->warn(Code::partition_start_unknown, at,
                  std::string("Kafka was asked where the partition begins and did not answer, so the offset to read "
                              "again from may lie below its first record: ") +
                      e.what());
  }
  return std::nullopt;
}

/// After a seek below the log's start, auto.offset.reset applies, and can mean the log's end. `message` exists, so it
/// bounds the result.
Offset PollLoopState::not_below_the_log(const TopicPartition& at, Offset from, Offset message) const {
  const Offset first = std::min(begin_of_log(at).value_or(from), message);
  if (from >= first) return from;
  run_log->warn(Code::records_deleted, at,
                "Kafka has deleted records that the database does not record as settled: offsets " +
                    std::to_string(from) + " to " + std::to_string(first - 1) +
                    " (retention). Those among them that were not settled are lost; reading continues at offset " +
                    std::to_string(first));
  return first;
}

/// Throws ReadAgain if the reason was not another member but another history of the database.
void PollLoopState::fenced(const OwnedPartition& place, const TopicState& topic, Offset message) {
  const std::lock_guard lock(mutex);
  const auto found = places.find(place.at);
  if (found == places.end() || found->second.fence != place.fence || topic.fails_open()) return;
  if (spec.backends.store->history() == place.fence->history) return;
  const Progress known = progress[place.at];
  // An owner that takes over before the caller has read the messages again knows only the database.
  const Claimed claimed =
      claim_from(place.at, topic, {.message = message, .first = known.first, .settled = known.settled});
  const bool is_same_log = !claimed.another_log && !claimed.begun_elsewhere;
  Offset from = *claimed.claim.watermark;
  if (is_same_log) from = std::min(from, known.settled.value_or(known.first));
  from = std::max(from, topic.done_without_ids(claimed.claim).value_or(from));
  if (is_same_log && known.settled) doubt(place.at, topic, {.below = *known.settled, .own = *known.settled});
  // revoked() releases it. Its progress must not be written then: the database may have lost it.
  progress.erase(place.at);
  if (is_next_claim(found->second.guard, claimed.claim.fence)) {
    found->second.fence = found->second.guard = claimed.claim.fence;
    found->second.incarnation = claimed.claim.incarnation;
  } else {
    places.erase(found);
  }
  gone_back[place.at] = from;
  throw_read_again(place.at, read_again[place.at] = not_below_the_log(place.at, from, message));
}

/// The caller drops the message, so nothing that is known of the partition tells which message comes next.
void PollLoopState::throw_fenced(const Message& message, const std::string& why) {
  const TopicPartition at{std::string(message.topic()), message.partition()};
  {
    const std::lock_guard lock(mutex);
    gone_back.erase(at);
    attempts.erase(at);
    Offset& first = dropped.try_emplace(at, message.offset()).first->second;
    first = std::min(first, message.offset());
  }
  release({&at, 1});
  throw Fenced(where(message) + ": " + why);
}

/// The progress of the last owner is unknown here: it can have taken a window of messages beyond the settled ones. The
/// caller's start is unknown too: `message` is only the first of its messages that came here.
/// `before`: the partition as this loop owned it until now, if it did. Its suspicion belongs to offsets of its log.
void PollLoopState::guard(OwnedPartition& place, const ports::PartitionClaim& claim, Offset message,
                          const OwnedPartition* before) {
  place.guard = claim.fence;
  if (before != nullptr && is_next_claim(before->guard, claim.fence)) {
    if (before->incarnation == place.incarnation) place.suspicion = before->suspicion;
    return;
  }
  const auto window = spec.config.consumer.window;
  const Offset first = std::min(message, claim.watermark.value_or(message)) - static_cast<Offset>(window);
  place.suspicion = suspect(*spec.backends.store->trials(), claim, std::max<Offset>(first, 0), std::nullopt, *run_log);
  if (place.suspicion) unproved[place.at] = window;
}

/// Mode at_least_once needs no store. If the program has a store, it finds messages that kill their process there too.
void PollLoopState::guard_unfenced(OwnedPartition& place, const TopicState& topic, Offset message) {
  try {
    guard(place, claim(place.at, topic), message, nullptr);
  } catch (const std::exception& e) {
    run_log->info(
        place.at,
        std::string(
            "mode at_least_once continues without the database, so messages that kill their process are not found: ") +
            e.what());
  }
}

}  // namespace turnstile::detail
