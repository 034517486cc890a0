// turnstile rewind: moves a consumer group back to the offsets of a time. The ids that are stored make it safe: what took
// effect is a duplicate. So it goes back no further than they reach, and only while the group has no members.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>

#include "command.hpp"
#include "database.hpp"
#include "output.hpp"
#include "point.hpp"
#include "rewind_plan.hpp"
#include "text.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/kafka/group.hpp"
#include "turnstile/kafka/record_reader.hpp"
#include "turnstile/record_ids.hpp"
#include "turnstile/replay.hpp"

namespace turnstile::cli {

namespace {

using Clock = std::chrono::steady_clock;

struct RewindOptions {
  std::string topic;
  std::string to;
  std::optional<std::string> group;
  std::optional<std::string> handler;
  std::optional<std::string> message_id;
  bool dry_run = false;
  bool yes = false;
};

constexpr std::size_t kIdsAtOnce = 1'000;
constexpr std::chrono::seconds kReportEvery{5};
constexpr std::size_t kMembersShown = 5;

Microseconds parse_to(const std::string& text) {
  const auto now = std::chrono::floor<std::chrono::microseconds>(std::chrono::system_clock::now());
  const auto time = parse_time("--to", text, now);
  if (time > now) throw UsageError(fmt::format("--to {}: lies in the future; a group only goes back", when(time)));
  return time;
}

class Rewinder {
 public:
  Rewinder(const Global& global, const Config& config, const RewindOptions& options)
      : json_(global.json), options_(options), to_(parse_to(options.to)), config_(config) {
    if (const auto found = config.topics.find(options.topic); found != config.topics.end()) settings_ = found->second;
    if (options.handler) settings_.handler = options.handler;
    if (options.message_id) settings_.message_id = options.message_id;
    handler_ = settings_.handler.value_or(options.topic);
    kafka_ = require_kafka(config);
    if (options.group) kafka_["group.id"] = *options.group;
    group_name_ = options.group.value_or(config.group());
  }

  Exit run() {
    if (settings_.mode == Mode::at_least_once) refuse_without_ids("its mode is at_least_once");
    auto admin = open_admin(config_);
    const RecordIds ids(options_.topic, settings_, group_name_);
    require_handler(admin, handler_);
    const auto known = admin.handled_topic(group_name_, options_.topic, handler_);
    if (known.partitions.empty()) refuse_without_ids("the database knows no partition of it for this group");
    const kafka::GroupAdmin group(kafka_);
    const auto members = group.members();
    if (!options_.dry_run) require_none(members);
    const auto positions = look(group, known);
    const auto plan = plan_rewind(positions);
    const bool moves = std::any_of(plan.begin(), plan.end(), [](const Rewind& each) { return each.to.has_value(); });
    const bool by_progress = numbers_records(ids.mode());
    if (moves && !by_progress) {
      require_ids(admin, known);
      require_no_progress(plan, positions);
    }
    const bool changes = moves && options_.yes && !options_.dry_run;
    if (changes) admin.require_owner();
    const auto counted = by_progress ? count_by_progress(plan, positions) : count_by_ids(admin, plan, known, ids);
    if (changes) move(group, plan);
    report(plan, counted, moves, changes);
    if (!members.empty()) {
      std::fflush(stdout);
      tell(fmt::format(
          "turnstile: group {} has {}, so these are the numbers of this moment. Stop all of them before you move it\n",
          one_line(group_name_, 80), count(static_cast<std::int64_t>(members.size()), "member")));
    }
    if (moves && !changes && !options_.dry_run)
      throw UsageError("rewind: nothing was changed; to move the group, run it again with --yes");
    return Exit::ok;
  }

 private:
  [[noreturn]] void refuse_without_ids(const std::string& why) const {
    throw Refusal(
        fmt::format("refused: {} of group {}: {}. Nothing would show which messages took effect, and all of them would "
                    "run again",
                    one_line(options_.topic, 80), one_line(group_name_, 80), why));
  }

  void require_none(const std::vector<std::string>& members) const {
    if (members.empty()) return;
    std::string named;
    for (std::size_t i = 0; i < members.size() && i < kMembersShown; ++i)
      named += (i == 0 ? "" : ", ") + one_line(members[i], 120);
    if (members.size() > kMembersShown) named += ", …";
    throw Refusal(fmt::format(
        "refused: group {} has {}: {}. They would go on from where they are, and overwrite the offsets. Stop "
        "them all (scale to 0, and wait until they have left the group), then run this again",
        one_line(group_name_, 80), count(static_cast<std::int64_t>(members.size()), "member"), named));
  }

  std::vector<GroupPosition> look(const kafka::GroupAdmin& group, const postgres::HandledTopic& known) const {
    const auto info = kafka::open_broker(kafka_, nullptr)->describe(options_.topic, std::chrono::seconds(5));
    if (!info) throw Error(Code::topic_missing, fmt::format("topic {} does not exist", one_line(options_.topic, 80)));
    std::vector<TopicPartition> all;
    for (std::int32_t p = 0; p < info->partitions; ++p) all.push_back({options_.topic, p});
    const auto committed = group.committed(all);
    const auto at_time = group.at_time(all, std::chrono::ceil<std::chrono::milliseconds>(to_));
    std::vector<GroupPosition> positions;
    for (std::size_t i = 0; i < all.size(); ++i) {
      GroupPosition position{.partition = all[i].partition, .committed = {}, .at_time = at_time[i]};
      if (committed[i]) position.committed = committed[i]->offset;
      if (const auto* partition = find(known, all[i].partition)) position.settled = partition->settled;
      positions.push_back(position);
    }
    return positions;
  }

  static const postgres::HandledPartition* find(const postgres::HandledTopic& known, std::int32_t partition) {
    for (const auto& each : known.partitions) {
      if (each.partition == partition) return &each;
    }
    return nullptr;
  }

  /// Older ids were deleted, or may be deleted while the messages are read again.
  void require_ids(postgres::Admin& admin, const postgres::HandledTopic& known) const {
    std::optional<std::chrono::seconds> kept = kKeepIdsByDefault;
    if (const auto declared = admin.kept(handler_); !declared.empty()) kept = declared.front().kept_for;
    std::optional<Microseconds> since = known.all_since;
    std::string why = "older ones were deleted";
    if (kept && (!since || *since < known.now - *kept)) {
      since = known.now - *kept;
      why = "they are kept for " + duration(*kept);
    }
    if (!since || to_ >= *since) return;
    throw Refusal(fmt::format(
        "refused: the ids of handler {} reach back to {} ({}). Of a message from before that, nothing would "
        "show whether it took effect. The earliest time is --to \"{}\"",
        one_line(handler_, 80), when(*since), why, when(std::chrono::ceil<std::chrono::seconds>(*since))));
  }

  /// Of messages that were handled in a mode without ids, nothing would show that they took effect.
  void require_no_progress(const std::vector<Rewind>& plan, const std::vector<GroupPosition>& positions) const {
    for (std::size_t i = 0; i < plan.size(); ++i) {
      if (!plan[i].to || !positions[i].settled || *plan[i].to >= *positions[i].settled) continue;
      throw Refusal(fmt::format(
          "refused: handler {} has handled partition {} up to offset {} in mode by_offset or numbered, which keeps no ids, and "
          "the configuration has another mode, in which those messages would run again. If the program sets the mode in its "
          "code, write [topics.{}] mode as the program has it. Otherwise go back to a time after that offset",
          one_line(handler_, 80), plan[i].partition, *positions[i].settled, one_line(options_.topic, 80)));
    }
  }

  static RewindCount count_by_progress(const std::vector<Rewind>& plan, const std::vector<GroupPosition>& positions) {
    RewindCount counted{.by_progress = true};
    for (std::size_t i = 0; i < plan.size(); ++i) {
      counted.read += plan[i].records();
      counted.duplicates += settled_records(plan[i], positions[i].settled.value_or(0));
    }
    counted.run = counted.read - counted.duplicates;
    return counted;
  }

  RewindCount count_by_ids(postgres::Admin& admin, const std::vector<Rewind>& plan, const postgres::HandledTopic& known,
                           const RecordIds& ids) const {
    RewindCount counted;
    std::int64_t all = 0;
    for (const auto& each : plan) all += each.records();
    if (all == 0) return counted;
    const bool is_offset = settings_.message_id == "offset";
    std::vector<MessageId> asked;
    std::vector<bool> came_back;  // for each of them
    const auto look_up = [&] {
      const auto fates = admin.fates(handler_, asked);
      for (std::size_t i = 0; i < fates.size(); ++i) {
        // Its row lets it run, and is gone.
        if (came_back[i] && (fates[i] == postgres::IdFate::none || fates[i] == postgres::IdFate::dead)) ++counted.over;
        else add(counted, fates[i], is_offset);
      }
      asked.clear();
      came_back.clear();
    };
    auto next_report = Clock::now() + kReportEvery;
    kafka::RecordReader reader(kafka_, options_.topic, nullptr);
    for (const auto& each : plan) {
      if (!each.to) continue;
      const auto* partition = find(known, each.partition);
      const std::int32_t incarnation = partition == nullptr ? 0 : partition->incarnation;
      reader.read({each.partition, *each.to, *each.committed, *each.to}, [&](std::span<const Message> records) {
        for (const auto& record : records) {
          ++counted.read;
          const auto found = ids.of(record, incarnation);
          if (const auto* id = std::get_if<MessageId>(&found)) {
            asked.push_back(*id);
            came_back.push_back(record.header(kRetry).has_value());
          } else if (std::holds_alternative<RecordIds::Missing>(found)) {
            ++counted.without_id;
          } else {
            ++counted.for_another;
          }
          if (asked.size() >= kIdsAtOnce) look_up();
        }
        if (Clock::now() >= next_report) {
          tell(fmt::format("counting: {} of up to {} records\n", number(counted.read), number(all)));
          next_report = Clock::now() + kReportEvery;
        }
        return true;
      });
    }
    if (!asked.empty()) look_up();
    return counted;
  }

  static void add(RewindCount& counted, postgres::IdFate fate, bool is_offset) {
    switch (fate) {
      case postgres::IdFate::none: ++counted.run; return;
      case postgres::IdFate::took_effect: ++counted.duplicates; return;
      case postgres::IdFate::stored: ++counted.stored; return;
      case postgres::IdFate::in_doubt: ++counted.in_doubt; return;
      case postgres::IdFate::killed: ++counted.stay_dead; return;
      case postgres::IdFate::dead: break;
    }
    // A record that its offset identifies does not run as long as its dead letter is there.
    if (is_offset) {
      ++counted.stay_dead;
    } else {
      ++counted.run;
      ++counted.dead;
    }
  }

  void move(const kafka::GroupAdmin& group, const std::vector<Rewind>& plan) const {
    std::vector<TopicPartition> all;
    for (const auto& each : plan) {
      if (each.to) all.push_back({options_.topic, each.partition});
    }
    const auto now = group.committed(all);
    std::vector<ports::OffsetCommit> commits;
    for (const auto& each : plan) {
      if (!each.to) continue;
      const auto& before = now[commits.size()];
      if (!before || before->offset != *each.committed) {
        throw Refusal(
            fmt::format("refused: the group's offset in partition {} has changed meanwhile; nothing was changed. "
                        "See that no consumer runs, then run this again",
                        each.partition));
      }
      // The text with the offset says to which log it belongs: see docs/internals/ownership.md.
      commits.push_back({{options_.topic, each.partition}, *each.to, before->metadata});
    }
    if (!group.set(commits)) {
      throw Refusal(fmt::format(
          "refused: a consumer has joined group {} meanwhile, and the group may have gone back before. Stop "
          "all consumers, then run this again: it shows the group's offsets",
          one_line(group_name_, 80)));
    }
  }

  void report(const std::vector<Rewind>& plan, const RewindCount& counted, bool moves, bool changed) const {
    if (json_) {
      Json partitions = Json::array();
      for (const auto& each : plan) {
        partitions.push_back({{"partition", each.partition},
                              {"offset", each.committed ? Json(*each.committed) : Json(nullptr)},
                              {"new_offset", each.to ? Json(*each.to) : Json(nullptr)}});
      }
      print(Json{{"group", group_name_},
                 {"topic", options_.topic},
                 {"handler", handler_},
                 {"to", iso(to_)},
                 {"changed", changed},
                 {"partitions", partitions},
                 {"records", counted.read},
                 {"duplicates", counted.duplicates},
                 {"stored", counted.stored},
                 {"run", counted.run},
                 {"run_dead_letters", counted.dead},
                 {"retries_over", counted.over},
                 {"in_doubt", counted.in_doubt},
                 {"stay_dead_letters", counted.stay_dead},
                 {"without_id", counted.without_id},
                 {"for_another", counted.for_another}});
      return;
    }
    std::vector<std::vector<std::string>> rows{{"PARTITION", "OFFSET", "NEW OFFSET", "OFFSETS READ AGAIN"}};
    for (const auto& each : plan) {
      rows.push_back({std::to_string(each.partition), each.committed ? std::to_string(*each.committed) : "none",
                      each.to ? std::to_string(*each.to) : "stays", number(each.records())});
    }
    fmt::print("{}", table(rows));
    if (!moves) {
      fmt::print("group {} has read nothing of {} that is newer than {}: nothing to do\n", one_line(group_name_, 80),
                 one_line(options_.topic, 249), when(to_));
      return;
    }
    fmt::print("group {} {} to {} in {}: {}\n", one_line(group_name_, 80), changed ? "went back" : "would go back",
               when(to_), one_line(options_.topic, 249), count(counted.read, "record"));
    const auto line = [](std::int64_t records, const std::string& what) {
      if (records > 0) fmt::print("  {} {}\n", number(records), what);
    };
    line(counted.duplicates, counted.by_progress ? "are settled, and are skipped: they took effect, or are dead letters"
                                                 : "are duplicates, and are skipped: they took effect");
    line(counted.stored,
         "are stored for a later attempt, or were dropped there, and are skipped: see turnstile retries list, and "
         "turnstile dlq list --reason dropped");
    if (counted.by_progress) line(counted.run, "run, except for those that are dead letters");
    else
      line(counted.run,
           "run: nothing shows that they took effect" +
               (counted.dead > 0 ? fmt::format(". Of these, {} are dead letters", number(counted.dead)) : ""));
    line(counted.over, "came back for a later attempt that is over, and are skipped");
    line(counted.in_doubt, "are parked or in doubt: see turnstile inbox inspect");
    line(counted.stay_dead, "stay dead letters, and do not run");
    line(counted.without_id, "have no id that can be read, and become dead letters (missing_id or unreadable)");
    line(counted.for_another, "were replayed for another handler, and are skipped");
  }

  bool json_;
  const RewindOptions& options_;
  Microseconds to_;
  const Config& config_;
  TopicSettings settings_{};
  std::string handler_;
  std::string group_name_;
  std::map<std::string, std::string> kafka_;
};

}  // namespace

void add_rewind(Verb app, Command& command) {
  const auto options = std::make_shared<RewindOptions>();
  const auto verb = app.add_verb("rewind", "move a consumer group back to a time; what took effect stays a duplicate");
  verb.add_option("TOPIC", options->topic, "the topic to read again").required();
  verb.add_option("--to", options->to, "\"2026-03-01 14:05:09\" (UTC unless a zone follows), 14:05 or \"2h ago\"")
      .type("TIME")
      .required();
  verb.add_option("--group", options->group, "the consumer group (default: that of the configuration)").type("NAME");
  verb.add_option("--handler", options->handler, "whose ids count (default: that of the topic in the configuration)")
      .type("NAME");
  verb.add_option("--message-id", options->message_id,
                  "where ids come from (default: as the configuration has it, else header:message-id)")
      .type("SOURCE");
  verb.add_flag("--dry-run", options->dry_run, "change nothing; print what would happen");
  verb.add_flag("--yes", options->yes, "move the group");
  verb.runs(command, [options](const Global& global) {
    const Config config = load_settings(global);
    return Rewinder(global, config, *options).run();
  });
}

}  // namespace turnstile::cli
