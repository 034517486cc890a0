#include "engine/log_identity.hpp"

#include <algorithm>
#include <utility>

namespace turnstile::detail {

LogIdentity::Look LogIdentity::look(const TopicPartition& at, std::span<const Message> messages) {
  Log& log = logs_[at];
  Look look = Look::follow;
  for (const Message& message : messages) {
    const bool goes_back = log.taken && message.offset() <= *log.taken;
    switch (log.memory.compare(message)) {
      case LogMemory::Finding::ahead: log.memory.note(message); break;
      case LogMemory::Finding::same:
        if (goes_back) look = Look::repeat;
        break;
      case LogMemory::Finding::other: log.other_from = message.offset(); return Look::broken;
      case LogMemory::Finding::older:
        if (!goes_back) break;  // reading began there
        log.went_back = true;
        return Look::broken;
    }
    log.taken = std::max(log.taken, std::optional(message.offset()));
  }
  return look;
}

void LogIdentity::assigned(const TopicPartition& at) {
  Log& log = logs_[at];
  log.memory.forget();
  log.taken.reset();
  log.other_from.reset();
  log.went_back = false;
  log.released = false;
}

std::optional<Fence> LogIdentity::take_released(const TopicPartition& at) {
  const auto found = logs_.find(at);
  return found != logs_.end() && std::exchange(found->second.released, false) ? found->second.fence : std::nullopt;
}

void LogIdentity::forget_offsets(LeaseClock::time_point seen_before) {
  for (auto& [at, log] : logs_) {
    if (log.offset_seen && *log.offset_seen < seen_before) log.offset_seen.reset();
  }
}

bool LogIdentity::had_offset(const TopicPartition& at) const {
  const auto found = logs_.find(at);
  return found != logs_.end() && found->second.offset_seen;
}

bool LogIdentity::expects_offset(const TopicPartition& at) const {
  const auto found = logs_.find(at);
  return found != logs_.end() && (found->second.offset_seen || is_of_recreated_topic(at, found->second));
}

void LogIdentity::begun_elsewhere(const TopicPartition& at, const std::string& metadata) {
  const auto read = read_incarnations(metadata);
  Log& log = logs_[at];
  if (!read || !log.incarnation || read->rbegin()->first <= *log.incarnation) return;
  log = Log{};
  log.recreation = recreations_[at.topic];
  log.incarnation = read->rbegin()->first;
  log.began = *read;
  log.begun_elsewhere = true;
}

std::vector<TopicPartition> LogIdentity::with_offset() const {
  std::vector<TopicPartition> all;
  for (const auto& [at, log] : logs_) {
    if (log.offset_seen) all.push_back(at);
  }
  return all;
}

void LogIdentity::shows_recreation(const TopicPartition& at) {
  const Log& log = logs_[at];
  if (!log.gone && !is_of_recreated_topic(at, log)) ++recreations_[at.topic];
}

void LogIdentity::is_gone(const TopicPartition& at) {
  Log& log = logs_[at];
  log.gone = true;
  log.begun_since_gone = false;
  log.recreation = recreations_[at.topic];
}

bool LogIdentity::is_of_recreated_topic(const TopicPartition& at, const Log& log) const {
  const auto found = recreations_.find(at.topic);
  return found != recreations_.end() && log.recreation < found->second;
}

void LogIdentity::exists_again(const TopicPartition& at) {
  Log& log = logs_[at];
  (log.begun_since_gone ? log.exists_again : log.gone) = true;
  log.begun_since_gone = false;
}

bool LogIdentity::was_gone(const TopicPartition& at) const {
  const auto found = logs_.find(at);
  return found != logs_.end() && found->second.gone;
}

bool LogIdentity::claimed(const TopicPartition& at, std::int32_t incarnation) {
  Log& log = logs_[at];
  const bool is_old = log.incarnation && *log.incarnation < incarnation;
  if (is_old) {
    log = Log{};
    log.recreation = recreations_[at.topic];
  }
  log.in_store = incarnation;
  log.incarnation = std::max(log.incarnation.value_or(0), incarnation);
  log.began.try_emplace(incarnation, 0);
  return std::exchange(log.begun_elsewhere, false) || is_old;
}

bool LogIdentity::read(const TopicPartition& at, const std::string& metadata) {
  const auto read = read_incarnations(metadata);
  Log& log = logs_[at];
  if (!read || !log.in_store) return true;
  for (const auto& [incarnation, began] : *read) {
    Offset& known = log.began[incarnation];
    known = std::max(known, began);  // 0: unknown
  }
  const std::int32_t last = read->rbegin()->first;
  if (last < *log.incarnation) return false;
  log.incarnation = last;
  return true;
}

std::string LogIdentity::metadata(const TopicPartition& at) const {
  const auto found = logs_.find(at);
  if (found == logs_.end() || !found->second.in_store) return {};
  return write_incarnations(found->second.began);
}

std::optional<Offset> LogIdentity::Log::forgotten_from() const {
  std::optional<Offset> from;
  if (!in_store) return from;
  for (auto it = began.upper_bound(*in_store); it != began.end(); ++it)
    from = std::min(from.value_or(it->second), it->second);
  return from;
}

std::int32_t LogIdentity::incarnation(const TopicPartition& at) const {
  const auto found = logs_.find(at);
  return found == logs_.end() ? 0 : found->second.incarnation.value_or(0);
}

bool LogIdentity::suspects(const TopicPartition& at) const {
  const auto found = logs_.find(at);
  if (found == logs_.end()) return false;
  const Log& log = found->second;
  return is_of_recreated_topic(at, log) || log.other_from || log.went_back || log.offset_seen || log.gone ||
         log.exists_again || log.forgotten_from();
}

LogIdentity::Verdict LogIdentity::judge(const TopicPartition& at, const Known& known) const {
  static const Log kNothing{};
  const auto found = logs_.find(at);
  const Log& log = found == logs_.end() ? kNothing : found->second;
  const std::string ends = "it ends at offset " + std::to_string(known.end);
  const auto forgotten_from = log.forgotten_from();
  const bool too_short = known.done && *known.done > known.end && !forgotten_from;
  // Kafka deletes the offsets of its groups together with a topic. It also deletes the offsets of a group without
  // members after a week, so a missing offset alone proves nothing.
  const bool gone = log.gone || is_of_recreated_topic(at, log);
  if (!known.committed && (log.offset_seen || gone || log.other_from || too_short)) {
    std::string why = too_short         ? ends + " and the database has settled it up to " + std::to_string(*known.done)
                      : log.offset_seen ? "Kafka has dropped the offset that the group had committed"
                      : gone            ? "it did not exist for a while"
                                        : "offset " + std::to_string(*log.other_from) + " holds another record";
    return {Verdict::Kind::recreated, known.first, true, std::move(why)};
  }
  if (forgotten_from) {
    // The records below are the same in both incarnations, and the database has done them.
    const Offset from = std::min({*forgotten_from, known.done.value_or(0), log.other_from.value_or(known.end)});
    return {Verdict::Kind::forgotten, std::max(from, known.first), true,
            std::string("the database went back to a time before it knew that ") +
                (*forgotten_from > 0 ? "records were cut off the partition's end" : "the topic was recreated")};
  }
  if (log.other_from) {
    // Records below it may have been read and not have run yet.
    const Offset from = std::min(*log.other_from, known.done.value_or(known.committed.value_or(0)));
    return {Verdict::Kind::truncated, std::max(from, known.first), true,
            "offset " + std::to_string(*log.other_from) + " holds another record than the one that was read there"};
  }
  const bool cut = too_short || (known.committed && *known.committed > known.end);
  if ((cut || log.exists_again) && log.memory.first()) {
    // The last records are read again and compared. This finds the first record that differs.
    const Offset from = std::min({*log.memory.first(), known.end, known.done.value_or(known.end)});
    return {Verdict::Kind::same, std::max(from, known.first), true, {}};
  }
  if (cut) {
    return {Verdict::Kind::truncated, known.end, false,
            ends + ", and was read up to " + std::to_string(too_short ? *known.done : *known.committed)};
  }
  return {};
}

void LogIdentity::settle(const TopicPartition& at, const Verdict& verdict, std::int32_t incarnation,
                         std::optional<Offset> start) {
  Log& log = logs_[at];
  const auto forgotten_from = log.forgotten_from();
  log.incarnation = incarnation;
  if (log.in_store) log.in_store = incarnation;
  log.taken.reset();
  log.other_from.reset();
  log.went_back = false;
  if (verdict.kind == Verdict::Kind::recreated) {
    log.begun_since_gone = true;
    shows_recreation(at);
  }
  log.recreation = recreations_[at.topic];
  log.gone = false;
  log.exists_again = false;
  switch (verdict.kind) {
    case Verdict::Kind::same: break;
    case Verdict::Kind::recreated: log.began[incarnation] = 0; break;
    case Verdict::Kind::truncated: log.began[incarnation] = start.value_or(0); break;
    case Verdict::Kind::forgotten: log.began[incarnation] = forgotten_from.value_or(0); break;
  }
  if (verdict.kind == Verdict::Kind::same || verdict.kind == Verdict::Kind::forgotten) return;
  log.memory.forget();
  if (verdict.kind == Verdict::Kind::recreated) log.offset_seen.reset();
}

}  // namespace turnstile::detail
