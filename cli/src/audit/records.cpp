#include "audit/records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "command.hpp"
#include "settings.hpp"
#include "turnstile/kafka/group.hpp"
#include "turnstile/record_ids.hpp"
#include "turnstile/replay.hpp"

namespace turnstile::cli::audit {

namespace {

/// Records whose rows are asked for together. PostgreSQL may read the whole inbox for each question, so there must not be
/// many of them. A record takes about 600 bytes until it is settled.
constexpr std::size_t kAtOnce = 100'000;

/// One bit for each offset of a range.
class OffsetSet {
 public:
  explicit OffsetSet(const kafka::OffsetRange& of)
      : begin_(of.begin), bits_(static_cast<std::size_t>(of.end - of.begin)) {}
  void add(Offset offset) { bits_.at(static_cast<std::size_t>(offset - begin_)) = true; }
  /// Whether it was in the set. Afterwards it is not.
  bool take(Offset offset) {
    if (offset < begin_ || offset >= begin_ + static_cast<Offset>(bits_.size())) return false;
    const auto i = static_cast<std::size_t>(offset - begin_);
    const bool was = bits_.at(i);
    bits_[i] = false;
    return was;
  }

 private:
  Offset begin_;
  std::vector<bool> bits_;
};

/// A record that waits for the answer about its id.
struct Waiting {
  Offset offset = 0;
  Timestamp time{};
  RecordIds::Found id{};
  std::string replay_of{};  ///< the place of the dead letter that was replayed as this record; empty: none
};

/// A record of which nothing is known.
struct Unaccounted {
  std::size_t partition = 0;  ///< as in RecordAudit::partitions
  Offset offset = 0;
  Timestamp time{};
  std::string why{};
};
/// The reasons of more would take too much memory.
constexpr std::size_t kMostReasons = 100'000;

/// A stored retry that the relay sends again is no replay.
std::string replay_of(const Message& message) {
  const auto from = message.header(kReplayedFrom);
  return from && !message.header(kRetry) ? std::string(*from) : "";
}

/// The ids of some of the records that wait, each with the places of its records.
class Asked {
 public:
  void add(const RecordIds::Found& found, std::size_t place) {
    if (const auto* id = std::get_if<MessageId>(&found)) places_.emplace_back(*id, place);
  }
  /// Each id once. From here on nothing is added.
  std::vector<MessageId> ids() {
    std::sort(places_.begin(), places_.end());
    std::vector<MessageId> ids;
    ids.reserve(places_.size());
    for (const auto& [id, place] : places_) {
      if (ids.empty() || ids.back() != id) ids.push_back(id);
    }
    return ids;
  }
  /// Calls `each` with the place of each record that has the id.
  template <class Each>
  void at(const MessageId& id, Each each) const {
    for (auto of = std::lower_bound(places_.begin(), places_.end(), std::pair(id, std::size_t{0}));
         of != places_.end() && of->first == id; ++of)
      each(of->second);
  }

 private:
  std::vector<std::pair<MessageId, std::size_t>> places_;
};

class Pass {
 public:
  Pass(const Config& config, const RecordAuditOptions& options, RecordIds ids)
      : options_(options),
        ids_(std::move(ids)),
        snapshot_(require_postgres(config), options.group.value_or(config.group()), options.topic, ids_.handler()),
        // After the snapshot: each effect in it has its record below these ends.
        reader_(require_kafka(config), options.topic, nullptr),
        is_compacted_(reader_.is_compacted()),
        asks_claims_(ids_.mode() == Mode::leased || snapshot_.has_claims()) {
    result_.topic = options.topic;
    result_.group = options.group.value_or(config.group());
    result_.handler = ids_.handler();
    result_.mode = ids_.mode();
    result_.taken_at = snapshot_.taken_at();
    result_.all_since = snapshot_.all_since();
    group_ = require_kafka(config);
    group_["group.id"] = result_.group;
  }

  RecordAudit run(const std::function<void(std::int64_t)>& on_progress) {
    find_new_logs();
    for (const auto& range : reader_.ranges(options_.from, options_.to)) {
      PartitionCounts& counts = result_.partitions.emplace_back(PartitionCounts{.range = range});
      seen_.emplace_back(range);
      read_.emplace_back(range);
      read(counts, on_progress);
    }
    settle_the_rest();
    if (stores_ids()) look_for_records();
    result_.outbox = snapshot_.outbox();
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool stores_ids() const { return keeps_ids(ids_.mode()); }

  /// A topic that was created again gets its next incarnation when a consumer reads it. Until then the tables are about
  /// the log before it: Kafka has dropped the group's offset, and the log ends below what was settled.
  void find_new_logs() {
    known_ = snapshot_.partitions();
    const auto logs = reader_.ranges(std::nullopt, std::nullopt);
    std::vector<postgres::AuditedPartition*> shorter;
    std::vector<TopicPartition> places;
    for (auto& known : known_) {
      const auto at = static_cast<std::size_t>(known.partition);
      const Offset settled = std::max(known.watermark.value_or(0), known.next_offset.value_or(0));
      if (at >= logs.size() || logs[at].end >= settled) continue;
      shorter.push_back(&known);
      places.push_back({options_.topic, known.partition});
    }
    if (places.empty()) return;
    const auto committed = kafka::GroupAdmin(group_).committed(places);
    for (std::size_t i = 0; i < shorter.size(); ++i) {
      if (committed[i]) continue;
      ++shorter[i]->incarnation;
      shorter[i]->watermark.reset();
      shorter[i]->next_offset.reset();
    }
  }

  void read(PartitionCounts& counts, const std::function<void(std::int64_t)>& on_progress) {
    Place place{.mode = ids_.mode(), .all_since = snapshot_.all_since()};
    for (const auto& claimed : known_) {
      if (claimed.partition == counts.range.partition) place.partition = claimed;
    }
    if (place.partition && counts.range.begin == counts.range.first_kept) {
      // A group that has settled nothing may have begun behind them.
      const Offset settled = std::max(place.partition->watermark.value_or(0), place.partition->next_offset.value_or(0));
      if (settled > 0) counts.deleted_unsettled = std::max<std::int64_t>(counts.range.first_kept - settled, 0);
    }
    std::vector<Waiting> waiting;
    const std::int32_t incarnation = place.partition ? place.partition->incarnation : 0;
    reader_.read(counts.range, [&](std::span<const Message> messages) {
      for (const Message& message : messages)
        waiting.push_back({message.offset(), message.timestamp(), ids_.of(message, incarnation), replay_of(message)});
      if (waiting.size() >= kAtOnce) {
        settle(waiting, place, counts);
        on_progress(result_.records());
      }
      return true;
    });
    settle(waiting, place, counts);
  }

  void settle(std::vector<Waiting>& waiting, const Place& place, PartitionCounts& counts) {
    if (waiting.empty()) return;
    Asked asked;
    if (stores_ids()) {
      for (std::size_t i = 0; i < waiting.size(); ++i) asked.add(waiting[i].id, i);
    }
    const auto ids = asked.ids();
    std::vector<const postgres::AuditedEffect*> effect_of(waiting.size());
    std::vector<const postgres::AuditedClaim*> claim_of(waiting.size());
    std::vector<const postgres::AuditedDead*> dead_of(waiting.size());
    const auto effects = ids.empty() ? std::vector<postgres::AuditedEffect>{} : snapshot_.effects(ids);
    for (const auto& effect : effects) asked.at(effect.id, [&](std::size_t i) { effect_of[i] = &effect; });
    const auto claims = ids.empty() || !asks_claims_ ? std::vector<postgres::AuditedClaim>{} : snapshot_.claims(ids);
    for (const auto& claim : claims) asked.at(claim.id, [&](std::size_t i) { claim_of[i] = &claim; });
    const auto dead = place.partition
                          ? snapshot_.dead(*place.partition, waiting.front().offset, waiting.back().offset + 1)
                          : std::vector<postgres::AuditedDead>{};
    for (const auto& letter : dead) {
      const auto at = std::lower_bound(waiting.begin(), waiting.end(), letter.offset,
                                       [](const Waiting& record, Offset offset) { return record.offset < offset; });
      if (at != waiting.end() && at->offset == letter.offset)
        dead_of.at(static_cast<std::size_t>(at - waiting.begin())) = &letter;
    }
    const auto facts_of = [&](std::size_t i) {
      return Facts{waiting[i].offset, waiting[i].time, &waiting[i].id, effect_of[i], claim_of[i], dead_of[i]};
    };
    std::vector<Judgement> judgements;
    for (std::size_t i = 0; i < waiting.size(); ++i) judgements.push_back(judge(facts_of(i), place));
    ask_for_retries(waiting, judgements, [&](std::size_t i, const postgres::AuditedRetry& retry) {
      Facts facts = facts_of(i);
      facts.retry = &retry;
      return judge(facts, place);
    });
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      const Waiting& record = waiting[i];
      const Facts facts = facts_of(i);
      if (facts.effect != nullptr && is_of(*facts.effect, facts, place)) seen_.back().add(record.offset);
      if (is_compacted_) read_.back().add(record.offset);
      Judgement& judgement = judgements[i];
      ++counts.records;
      if (!record.replay_of.empty() && !std::holds_alternative<RecordIds::ForAnother>(record.id))
        replayed_.insert(record.replay_of);
      if (judgement.fate == Fate::unaccounted) {
        if (rest_.size() >= kMostReasons) judgement.why = "nothing is known of it";
        rest_.push_back({result_.partitions.size() - 1, record.offset, record.time, std::move(judgement.why)});
        continue;
      }
      ++counts.of(judgement.fate);
      if (is_violation(judgement.fate)) add_violation(counts, record.offset, record.time, std::move(judgement));
    }
    waiting.clear();
  }

  /// What became of the records of which nothing is known: a later record may be the replay of one. Its dead letter was
  /// deleted since.
  void settle_the_rest() {
    for (Unaccounted& record : rest_) {
      PartitionCounts& counts = result_.partitions[record.partition];
      const TopicPartitionOffset at{{options_.topic, counts.range.partition}, record.offset};
      if (replayed_.contains(to_string(at))) {
        ++counts.of(Fate::dead_letter);
        continue;
      }
      ++counts.of(Fate::unaccounted);
      add_violation(counts, record.offset, record.time, {Fate::unaccounted, std::move(record.why)});
    }
    rest_.clear();
  }

  void add_violation(const PartitionCounts& counts, Offset offset, Timestamp time, Judgement judgement) {
    ++result_.unaccounted;
    add({{{options_.topic, counts.range.partition}, offset}, time, judgement.fate, std::move(judgement.why)});
  }

  /// Judges the records anew of which nothing is known by their place: they may be stored for a retry.
  template <class Judge>
  void ask_for_retries(const std::vector<Waiting>& waiting, std::vector<Judgement>& judgements, Judge judge_again) {
    Asked asked;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (judgements[i].fate == Fate::unaccounted || judgements[i].fate == Fate::cannot_tell)
        asked.add(waiting[i].id, i);
    }
    const auto ids = asked.ids();
    if (ids.empty()) return;
    const auto retries = snapshot_.retries(ids);
    // Where the record is the replay of one of these dead letters: its number.
    std::vector<std::int64_t> letter_of(waiting.size());
    for (const auto& retry : retries) {
      asked.at(retry.id, [&](std::size_t i) {
        if (retry.dead && retry.place == waiting[i].replay_of) letter_of[i] = *retry.dead;
      });
    }
    for (const auto& retry : retries) {
      asked.at(retry.id, [&](std::size_t i) {
        // A replayed dead letter shows nothing of the record that replayed it.
        if (!retry.dead || retry.waits || *retry.dead > letter_of[i]) judgements[i] = judge_again(i, retry);
      });
    }
  }

  /// Each effect of the range must have been found by its record, and only one by each.
  void look_for_records() {
    std::vector<postgres::AuditSnapshot::SlotRange> ranges;
    std::map<std::int32_t, std::pair<const postgres::AuditedPartition*, std::size_t>> by_slot;
    for (const auto& claimed : known_) {
      for (std::size_t i = 0; i < result_.partitions.size(); ++i) {
        const auto& range = result_.partitions[i].range;
        if (range.partition != claimed.partition) continue;
        // Behind the end there can be no record, so there must be no effect.
        const bool to_the_end = !options_.to;
        ranges.push_back({claimed.slot, range.begin, to_the_end ? std::numeric_limits<Offset>::max() : range.end});
        by_slot[claimed.slot] = {&claimed, i};
      }
    }
    // Records that the broker deleted meanwhile were not read.
    const auto now = reader_.ranges(std::nullopt, std::nullopt);
    add_elsewhere();
    snapshot_.each_effect(ranges, [&](std::int32_t slot, Offset offset, std::string_view id) {
      const auto& [claimed, i] = by_slot.at(slot);
      if (seen_[i].take(offset)) return;  // a second effect of the same record is not in it any more
      // The inbox does not tell incarnations apart: the row may be of the topic before it was recreated.
      const bool may_be_compacted = is_compacted_ && offset < result_.partitions[i].range.end && !read_[i].take(offset);
      if (offset < now.at(i).first_kept || claimed->incarnation > 0 || may_be_compacted) {
        ++result_.effects_of_deleted;
        return;
      }
      if (!options_.to && offset >= result_.partitions[i].range.end && offset < log_ends().at(i)) {
        ++result_.effects_of_unread;
        return;
      }
      ++result_.effects_without_record;
      add({{{options_.topic, claimed->partition}, offset},
           Timestamp{},
           Fate::took_effect,
           fmt::format("id {} took effect, but the record has another id, or does not exist", id)});
    });
  }

  /// Where the partitions end for a consumer that reads the records of open transactions, too. The group may have been one
  /// before its isolation.level was changed.
  const std::vector<Offset>& log_ends() {
    if (!log_ends_.empty()) return log_ends_;
    kafka::Settings settings = group_;
    settings["isolation.level"] = "read_uncommitted";
    kafka::RecordReader all(settings, options_.topic, nullptr);
    for (const auto& range : all.ranges(std::nullopt, std::nullopt)) log_ends_.push_back(range.end);
    return log_ends_;
  }

  /// Effects that belong to no record of the topic.
  void add_elsewhere() {
    result_.elsewhere = snapshot_.elsewhere(with_their_logs(), {options_.from, options_.to}, kMostViolations);
    result_.effects_of_deleted = result_.elsewhere.before;
    result_.effects_without_record = result_.elsewhere.strays;
    for (const auto& stray : result_.elsewhere.some_strays) {
      const auto known =
          std::find_if(known_.begin(), known_.end(), [&](const auto& of) { return of.slot == stray.slot; });
      const bool in_topic = known != known_.end();
      Violation violation{.fate = Fate::took_effect};
      violation.at.offset = stray.offset;
      if (in_topic) violation.at.at = {options_.topic, known->partition};
      else violation.slot = stray.slot;
      violation.why = fmt::format("id {0} took effect, but {1}; see: turnstile inbox inspect {0}", stray.id.text(),
                                  in_topic ? "no record has such an offset" : "no partition ever had this slot");
      add(std::move(violation));
    }
  }

  /// For each slot of the group and the topic: before `begin` its records cannot be compared. Before the first record that
  /// the broker has, they are deleted. If the span begins later, they are not of the span.
  [[nodiscard]] std::vector<postgres::AuditSnapshot::SlotRange> with_their_logs() const {
    constexpr Offset kNone = std::numeric_limits<Offset>::max();
    std::vector<postgres::AuditSnapshot::SlotRange> logs;
    for (const auto& claimed : known_) {
      // A topic that was created again can have fewer partitions.
      auto& log = logs.emplace_back(postgres::AuditSnapshot::SlotRange{claimed.slot, kNone, kNone});
      for (const auto& counts : result_.partitions) {
        if (counts.range.partition != claimed.partition) continue;
        log.begin = counts.range.begin == counts.range.first_kept ? counts.range.begin : 0;
      }
    }
    return logs;
  }

  void add(Violation violation) {
    if (result_.violations.size() < kMostViolations) result_.violations.push_back(std::move(violation));
  }

  const RecordAuditOptions& options_;
  const RecordIds ids_;
  postgres::AuditSnapshot snapshot_;
  kafka::RecordReader reader_;
  kafka::Settings group_;
  std::vector<postgres::AuditedPartition> known_;
  const bool is_compacted_;
  const bool asks_claims_;
  std::vector<OffsetSet> seen_;  ///< for each partition: whose effects were found
  std::vector<OffsetSet> read_;  ///< for each partition: which records there are, if it is compacted
  std::vector<Unaccounted> rest_;
  std::vector<Offset> log_ends_;    ///< asked for when they are needed
  std::set<std::string> replayed_;  ///< the places of the dead letters that were replayed to this topic
  RecordAudit result_;
};

}  // namespace

std::int64_t RecordAudit::sum(Fate fate) const {
  return std::accumulate(partitions.begin(), partitions.end(), std::int64_t{0},
                         [&](std::int64_t so_far, const auto& counts) { return so_far + counts.of(fate); });
}

std::int64_t RecordAudit::records() const {
  return std::accumulate(partitions.begin(), partitions.end(), std::int64_t{0},
                         [](std::int64_t so_far, const auto& counts) { return so_far + counts.records; });
}

std::int64_t RecordAudit::deleted_unsettled() const {
  return std::accumulate(partitions.begin(), partitions.end(), std::int64_t{0},
                         [](std::int64_t so_far, const auto& counts) { return so_far + counts.deleted_unsettled; });
}

RecordAudit audit_records(const Config& config, const RecordAuditOptions& options,
                          const std::function<void(std::int64_t records)>& on_progress) {
  const auto settings = config.topics.find(options.topic);
  RecordIds ids(options.topic, settings == config.topics.end() ? TopicSettings{} : settings->second,
                options.group.value_or(config.group()));
  if (ids.mode() == Mode::at_least_once) {
    throw UsageError(fmt::format(
        "topic {} has mode at_least_once by {}: nothing is stored of its messages, so there is nothing to audit. If a "
        "program sets another mode, write [topics.{}] mode as the program has it",
        options.topic, source_of(config), options.topic));
  }
  return Pass(config, options, std::move(ids)).run(on_progress);
}

}  // namespace turnstile::cli::audit
