#include "turnstile/kafka/look.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "turnstile/error.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/kafka/limiters.hpp"
#include "turnstile/kafka/version.hpp"
#include "turnstile/shell.hpp"
#include "turnstile/text.hpp"
#include "turnstile/token_reader.hpp"

namespace turnstile::kafka {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using text::count;
using text::duration;

/// How long a person waits for an answer.
constexpr milliseconds kLookPatience{3'000};
/// A group that makes progress commits within this time; the default of consumer.commit_interval is 1 s.
constexpr milliseconds kWatch{2'500};
/// A topic whose handlers may run for longer than this can stand still without a problem.
constexpr milliseconds kLongHandler{30'000};

std::string create_command(const std::string& topic, const std::string& brokers) {
  return fmt::format("kafka-topics.sh --bootstrap-server {} --create --topic {} --partitions N", brokers, topic);
}

/// Hazard: ids-outlive-topic: if an id is deleted before its message leaves the topic, an offset reset runs the message
/// again.
void compare_retention(const Config& config, const std::string& topic, const TopicSettings& settings,
                       const ports::TopicInfo& info, Findings& findings) {
  if (settings.mode && !keeps_ids(*settings.mode)) return;
  const std::string subject = "retention of " + topic;
  const auto stay = longest_stay(info.retention, info.segment);
  const auto enough = keep_ids_by_default(info.retention, info.segment);
  const std::string why = info.why_unknown.empty() ? "" : ": " + info.why_unknown;
  if (!settings.keep_ids_for) {
    if (!info.retention) {
      findings.warning(
          subject,
          fmt::format("the broker does not report how long {} keeps its records, so ids are kept forever{}", topic,
                      why),
          fmt::format("make the broker report it, or set [topics.{}] keep_ids_for = \"…\" to more than that time",
                      topic));
    } else if (!enough) {
      findings.warning(
          subject, fmt::format("{} keeps its records forever, so its ids are kept forever", topic),
          "give the topic a retention.ms (retention.bytes alone sets no time, and compaction deletes by key)");
    } else {
      findings.ok(subject,
                  fmt::format("ids are kept for {}, and a record can stay for {}", duration(*enough), duration(*stay)));
    }
    return;
  }
  const milliseconds kept = *settings.keep_ids_for;
  const std::string setting = config.where("topics." + topic + ".keep_ids_for");
  const std::string remedy =
      enough ? fmt::format("remove it, or set [topics.{}] keep_ids_for = \"{}\"", topic, duration(*enough))
             : "remove keep_ids_for (ids are then kept forever), or give the topic a retention.ms";
  if (!info.retention) {
    findings.warning(subject, fmt::format("the broker does not report how long {} keeps its records{}", topic, why),
                     fmt::format("make sure that this time is less than {} = {}", setting, duration(kept)));
  } else if (*info.retention == milliseconds::max()) {
    findings.problem(
        subject,
        fmt::format(
            "{} keeps its records forever, but {} = {}: a group whose offsets are reset further back runs old records again",
            topic, setting, duration(kept)),
        remedy);
  } else if (kept <= *info.retention) {
    findings.problem(
        subject,
        fmt::format("{} = {} is not longer than the {} for which the topic keeps its records (retention.ms): after "
                    "an offset reset, old messages would run again",
                    setting, duration(kept), duration(*info.retention)),
        remedy + ", or shorten retention.ms");
  } else if (stay && kept < *stay) {
    findings.warning(
        subject,
        fmt::format(
            "{} = {}, but if few records are written, a record can stay for {} (retention.ms {}, segment.ms {}): after an "
            "offset reset, Turnstile does not recognize records without stored ids as duplicates",
            setting, duration(kept), duration(*stay), duration(*info.retention),
            info.segment ? duration(*info.segment) : "unknown"),
        remedy + ", or shorten segment.ms");
  } else {
    findings.ok(subject,
                fmt::format("ids are kept for {}, and records for {}", duration(kept), duration(*info.retention)));
  }
}

/// A topic that another topic needs. `otherwise` is the consequence if it does not exist.
void look_at_needed(ports::Broker& broker, const std::string& subject, const std::string& name,
                    const std::string& otherwise, const std::string& brokers, Findings& findings) {
  if (const auto info = broker.describe(name, kLookPatience)) {
    findings.ok(subject, fmt::format("{}, {}", name, count(info->partitions, "partition")));
  } else {
    findings.problem(subject, fmt::format("topic {} does not exist: {}", name, otherwise),
                     create_command(name, brokers));
  }
}

std::optional<ports::TopicInfo> look_at_topic(ports::Broker& broker, const Config& config, const std::string& topic,
                                              const std::string& brokers, Findings& findings) {
  const TopicSettings& settings = config.topics.at(topic);
  const auto info = broker.describe(topic, kLookPatience);
  if (!info) {
    findings.problem("topic " + topic, fmt::format("does not exist ({})", config.where("topics." + topic)),
                     create_command(topic, brokers));
  } else {
    findings.ok("topic " + topic, count(info->partitions, "partition"));
    compare_retention(config, topic, settings, *info, findings);
  }
  if (const auto dead_letter = dead_letter_name(topic, settings)) {
    look_at_needed(broker, "dead letters of " + topic, *dead_letter,
                   "the first message that fails permanently would stop its partition", brokers, findings);
  }
  for (const std::string& name : reply_topic_names(settings))
    look_at_needed(broker, "replies of " + topic, name, "consumers refuse to start", brokers, findings);
  return info;
}

// --- the lag of the group ---

struct Behind {
  std::vector<TopicPartition> partitions;
  std::vector<std::optional<ports::GroupOffset>> committed;
  std::vector<Offset> begins;
  std::vector<ports::PartitionEnd> ends;

  /// Without an offset of the group, nothing of the partition was read.
  [[nodiscard]] Offset next(std::size_t i) const { return committed[i] ? committed[i]->offset : begins[i]; }
  [[nodiscard]] std::int64_t lag(std::size_t i) const { return std::max<std::int64_t>(ends[i].last - next(i), 0); }
  /// Whether a producer's open transaction hides the rest from the group.
  [[nodiscard]] bool is_hidden(std::size_t i) const { return lag(i) > 0 && next(i) >= ends[i].readable; }
  [[nodiscard]] std::int64_t lag() const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < partitions.size(); ++i) sum += lag(i);
    return sum;
  }
};

/// The end of each topic's partitions, and the group's offsets.
class GroupLook {
 public:
  GroupLook(ports::Broker& broker, std::string brokers, std::string group)
      : brokers_(std::move(brokers)), group_(std::move(group)), consumer_(broker.open_consumer()) {}
  ~GroupLook() { consumer_->close(); }
  GroupLook(const GroupLook&) = delete;
  GroupLook& operator=(const GroupLook&) = delete;

  /// Throws BrokerError.
  void look(const std::string& topic, std::int32_t partitions) {
    Behind& behind = topics_[topic];
    for (std::int32_t p = 0; p < partitions; ++p) behind.partitions.push_back({topic, p});
    const auto all = consumer_->bounds(behind.partitions, kLookPatience);
    const auto log_ends = consumer_->log_ends(behind.partitions, kLookPatience);
    for (std::size_t p = 0; p < all.size(); ++p) {
      if (!all[p] || !log_ends[p])
        throw BrokerError(Code::kafka_unavailable,
                          fmt::format("the broker does not report where {}[{}] ends", topic, p));
      behind.begins.push_back(all[p]->first);
      behind.ends.push_back({all[p]->second, std::max(all[p]->second, *log_ends[p])});
    }
    behind.committed = consumer_->committed(behind.partitions, kLookPatience);
  }

  /// A lag that shrinks is only a busy time. A lag that stands still is a problem.
  void tell(const Config& config, Findings& findings) {
    const bool any = std::any_of(topics_.begin(), topics_.end(), [](const auto& t) { return t.second.lag() > 0; });
    if (any) std::this_thread::sleep_until(began_ + kWatch);
    for (auto& [topic, behind] : topics_) {
      const auto settings = config.topics.find(topic);
      tell(topic, behind, settings == config.topics.end() ? std::nullopt : settings->second.handler_timeout, findings);
    }
  }

 private:
  void tell(const std::string& topic, const Behind& before, std::optional<milliseconds> handler_timeout,
            Findings& findings) {
    const std::string subject = "lag of " + topic;
    if (std::none_of(before.committed.begin(), before.committed.end(), [](const auto& at) { return at.has_value(); })) {
      findings.ok(subject, fmt::format("group {} has committed nothing yet", group_));
      return;
    }
    if (before.lag() == 0) {
      findings.ok(subject, fmt::format("group {} has read all records", group_));
      return;
    }
    const auto now = consumer_->committed(before.partitions, kLookPatience);
    std::int64_t standing = 0, partitions = 0;
    std::vector<std::size_t> hidden;
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (before.lag(i) == 0 || now[i] != before.committed[i]) continue;
      if (before.is_hidden(i)) {
        hidden.push_back(i);
        continue;
      }
      standing += before.lag(i);
      ++partitions;
    }
    const std::string behind = fmt::format("group {} is {} behind", group_, count(before.lag(), "record"));
    if (!hidden.empty()) tell_of_transaction(before, hidden, findings);
    if (standing == 0 && !hidden.empty()) return;
    if (standing == 0) {
      findings.ok(subject, behind + ", and makes progress");
      return;
    }
    const auto still = fmt::format("{}; no progress with {} of them, in {}, for {}", behind, text::number(standing),
                                   count(partitions, "partition"), duration(kWatch));
    if (handler_timeout && *handler_timeout > kLongHandler) {
      findings.ok(subject,
                  fmt::format("{}: a handler of this topic may run for {}", still, duration(*handler_timeout)));
      return;
    }
    findings.warning(
        subject, still,
        "check that consumers run, and read their log lines about these partitions (no progress, paused, fenced)");
  }

  /// Kafka tells neither the producer nor whether it lives.
  void tell_of_transaction(const Behind& behind, const std::vector<std::size_t>& hidden, Findings& findings) const {
    const std::size_t i = hidden.front();
    const TopicPartition& at = behind.partitions[i];
    const Offset from = behind.ends[i].readable;
    const auto more = static_cast<std::int64_t>(hidden.size()) - 1;
    const auto command = [&](std::string_view verb) {
      return fmt::format("kafka-transactions.sh --bootstrap-server {} {} --topic {} --partition {}", brokers_, verb,
                         at.topic, at.partition);
    };
    findings.warning(
        "lag of " + at.topic,
        fmt::format("a producer's transaction that began at offset {} of {}[{}] is open and hides {}: group {} gets no "
                    "record from there on before it ends{}",
                    from, at.topic, at.partition, count(behind.lag(i), "offset"), group_,
                    more > 0 ? fmt::format(". The same in {}", count(more, "further partition")) : ""),
        fmt::format("if it stays open, find the producer, and let it commit or abort ({}). If it no longer runs, abort "
                    "its transaction ({} --start-offset {})",
                    command("describe-producers"), command("abort"), from));
  }

  const std::string brokers_, group_;
  const steady_clock::time_point began_ = steady_clock::now();
  std::unique_ptr<ports::BrokerConsumer> consumer_;
  std::map<std::string, Behind> topics_;
};

// --- the token log ---

bool has_limit(const Config& config) {
  return std::any_of(config.topics.begin(), config.topics.end(),
                     [](const auto& t) { return t.second.limit.has_value(); });
}

void look_at_members(const TokenReader& reader, const PermitsView& view, Findings& findings) {
  const auto now_ms = std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch());
  // In a divided log a process has a number of its own in each part. It counts once.
  std::map<std::string, std::pair<std::string, milliseconds>> silence;  // name, and for how long in any of its parts
  for (const auto& entry : view.limiters) {
    for (const auto& who : entry.holders) {
      const std::string name = process_name(who.client, who.host, who.pid);
      auto& known = silence[reader.parts() > 1 ? name : std::to_string(who.member)];
      known.first = name;
      const auto heard_ms = reader.time_of(who.heard_at, entry.part);
      const bool over = heard_ms != 0 && milliseconds(heard_ms) + who.lease < now_ms;
      if (over) known.second = std::max(known.second, now_ms - milliseconds(heard_ms));
    }
  }
  std::string silent;
  for (const auto& [key, of] : silence) {
    const auto& [name, time] = of;
    if (time > milliseconds{0}) silent += fmt::format("{}{} for {}", silent.empty() ? "" : ", ", name, text::age(time));
  }
  const auto members = count(static_cast<std::int64_t>(silence.size()), "member");
  if (silent.empty()) {
    findings.ok("token log", fmt::format("{}, {}", reader.name(), members));
  } else {
    findings.warning(
        "token log", fmt::format("{}, {}; silent for longer than their lease: {}", reader.name(), members, silent),
        "these members are dead, cut off or halted: read their logs. Their permits return once another member runs");
  }
  for (const auto& entry : view.limiters) {
    const std::string subject = "limiter " + entry.limiter;
    if (entry.set == 0) {
      findings.warning(subject,
                       fmt::format("is paused: no handler starts under it, and members wait for {}",
                                   count(entry.waiting(), "permit")),
                       fmt::format("turnstile limits set {0} N, or turnstile limits unset {0}",
                                   text::shell_operand(entry.limiter, "NAME")));
    } else if (entry.held() > entry.limit) {
      findings.warning(
          subject,
          fmt::format("members hold {} permits, more than the limit of {}: no handler starts until enough return",
                      text::number(entry.held()), text::number(entry.limit)));
    }
  }
}

void look_at_tokens(ports::Broker& broker, const Config& config, Findings& findings) {
  if (config.limits.over != "cluster") return;
  const std::string topic = config.limits.topic.empty() ? config.group() + ".tokens" : config.limits.topic;
  const auto log = broker.describe(topic, kLookPatience) ? find_token_log(config.kafka, topic, nullptr) : nullptr;
  if (!log) {
    const std::string snapshots = topic + ".snapshots";
    if (broker.describe(snapshots, kLookPatience)) {
      findings.problem(
          "token log",
          fmt::format("{} does not exist, but {} does: the token log was deleted. Consumers that used it have "
                      "halted, and run no handler under a limit",
                      topic, snapshots),
          "stop all members of the domain, then start them again: the first member creates the topic. The new topic does not have "
          "the limits that operators had set. The members' last error, and a warning at their start, name those limits; set them "
          "again (turnstile limits set)");
    } else if (has_limit(config)) {
      findings.ok("token log", fmt::format("{} does not exist yet: the first consumer with a limit creates it", topic));
    }
    return;
  }
  TokenReader reader(find_token_log(config.kafka, topic, nullptr), parts_of_token_log(config.kafka, topic));
  reader.start(reader.end());
  look_at_members(reader, reader.permits(), findings);
}

}  // namespace

void look_at(const Config& config, const std::vector<std::string>& others, Findings& findings) {
  findings.ok("librdkafka", library_version());
  const auto named = config.kafka.find("bootstrap.servers");
  if (named == config.kafka.end()) {
    findings.warning("broker", "no broker is named, so none is checked",
                     "set [kafka] \"bootstrap.servers\", or give --kafka HOST:PORT");
    return;
  }
  const std::string& brokers = named->second;
  try {
    check_connection(config.kafka, kLookPatience);
    const auto broker = open_broker(config.kafka, nullptr);
    findings.ok("broker", fmt::format("{} answers", brokers));
    GroupLook group(*broker, brokers, config.group());
    for (const auto& [topic, settings] : config.topics) {
      try {
        const auto info = look_at_topic(*broker, config, topic, brokers, findings);
        if (info) group.look(topic, info->partitions);
      } catch (const BrokerError& error) {
        if (error.code() != Code::kafka_permission_denied) throw;
        findings.problem("topic " + topic, error.what());  // the rights on the other topics may be there
      }
    }
    for (const std::string& topic : others) {
      if (config.topics.contains(topic)) continue;
      if (const auto info = broker->describe(topic, kLookPatience)) group.look(topic, info->partitions);
    }
    if (config.topics.empty()) {
      findings.warning(
          "topics",
          fmt::format("no topic is named ({}), so {}",
                      config.source.empty() ? "the command line and the environment" : config.source,
                      others.empty() ? "none is checked" : "of those that the database knows only the lag is checked"),
          "write a [topics.NAME] section for each topic, or call Consumer::check() in the program, which knows its topics");
    }
    look_at_tokens(*broker, config, findings);
    group.tell(config, findings);
  } catch (const ConfigError& error) {
    for (const auto& problem : error.problems) findings.problem("broker", problem);
  } catch (const TokenLogBroken& error) {
    findings.problem("token log", error.what());
  } catch (const std::exception& error) {
    findings.problem("broker", error.what());
  }
}

}  // namespace turnstile::kafka
