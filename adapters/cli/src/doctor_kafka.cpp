#include <fmt/format.h>

#include "doctor.hpp"
#include "settings.hpp"
#include "text.hpp"
#include "turnstile/error.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/kafka/version.hpp"

namespace turnstile::cli {

namespace {

using std::chrono::milliseconds;

std::string create_command(const std::string& topic, const std::string& brokers) {
  return fmt::format("kafka-topics.sh --bootstrap-server {} --create --topic {} --partitions N", brokers, topic);
}

/// Trap 40: an id that is forgotten before its message leaves the topic lets an offset reset run the message again.
void compare_retention(const Config& config, const std::string& topic, const TopicSettings& settings,
                       const TopicInfo& info, Findings& findings) {
  if (settings.mode == Mode::none || settings.mode == Mode::sequence) return;  // without ids, none are forgotten
  const std::string subject = "retention of " + topic;
  const auto stay = longest_stay(info.retention, info.segment);
  const auto enough = keep_ids_by_default(info.retention, info.segment);
  if (!settings.keep_ids_for) {
    if (!info.retention) {
      findings.warning(
          subject,
          fmt::format("the broker does not say how long {} keeps its records, so ids are kept for ever", topic),
          fmt::format("[topics.{}] keep_ids_for = \"…\", longer than that", topic));
    } else if (!enough) {
      findings.warning(
          subject, fmt::format("{} keeps its records for ever, and so ids are", topic),
          "give the topic a retention.ms (retention.bytes alone is no time, and compaction deletes by key)");
    } else {
      findings.ok(subject,
                  fmt::format("ids are kept {}, a record can stay for {}", duration(*enough), duration(*stay)));
    }
    return;
  }
  const milliseconds kept = *settings.keep_ids_for;
  const std::string setting = config.where("topics." + topic + ".keep_ids_for");
  const std::string remedy =
      enough ? fmt::format("leave it out, or [topics.{}] keep_ids_for = \"{}\"", topic, duration(*enough))
             : "leave keep_ids_for out: ids are then kept for ever; or give the topic a retention.ms";
  if (!info.retention) {
    findings.warning(subject, fmt::format("the broker does not say how long {} keeps its records", topic),
                     fmt::format("make sure that it is less than {} = {}", setting, duration(kept)));
  } else if (*info.retention == milliseconds::max()) {
    findings.problem(
        subject,
        fmt::format("{} keeps its records for ever, and {} = {}: a group that goes back further runs them again", topic,
                    setting, duration(kept)),
        remedy);
  } else if (kept <= *info.retention) {
    findings.problem(
        subject,
        fmt::format("{} = {} is not longer than the {} for which the topic keeps its records (retention.ms): after "
                    "an offset reset they would run again",
                    setting, duration(kept), duration(*info.retention)),
        remedy + ", or a shorter retention.ms");
  } else if (stay && kept < *stay) {
    findings.warning(
        subject,
        fmt::format(
            "{} = {}, and where few records are written one can stay for {} (retention.ms {}, segment.ms {}): older "
            "ones are not known any more if offsets are reset",
            setting, duration(kept), duration(*stay), duration(*info.retention),
            info.segment ? duration(*info.segment) : "unknown"),
        remedy + ", or a shorter segment.ms");
  } else {
    findings.ok(subject, fmt::format("ids are kept {}, records {}", duration(kept), duration(*info.retention)));
  }
}

/// A topic that another one needs; `otherwise`: what comes of it when it does not exist.
void look_at_needed(Broker& broker, const std::string& subject, const std::string& name, const std::string& otherwise,
                    const std::string& brokers, Findings& findings) {
  if (const auto info = broker.describe(name, kPatience)) {
    findings.ok(subject, fmt::format("{}, {}", name, count(info->partitions, "partition")));
  } else {
    findings.problem(subject, fmt::format("topic {} does not exist: {}", name, otherwise),
                     create_command(name, brokers));
  }
}

void look_at_topic(Broker& broker, const Config& config, const std::string& topic, const std::string& brokers,
                   Findings& findings) {
  const TopicSettings& settings = config.topics.at(topic);
  const auto info = broker.describe(topic, kPatience);
  if (!info) {
    findings.problem("topic " + topic, fmt::format("does not exist ({})", config.where("topics." + topic)),
                     create_command(topic, brokers));
  } else {
    findings.ok("topic " + topic, count(info->partitions, "partition"));
    compare_retention(config, topic, settings, *info, findings);
  }
  if (const auto dead_letter = dead_letter_name(topic, settings)) {
    look_at_needed(broker, "dead letters of " + topic, *dead_letter,
                   "the first message that fails for good would stop its partition", brokers, findings);
  }
  for (const std::string& name : reply_topic_names(settings))
    look_at_needed(broker, "replies of " + topic, name, "consumers refuse to start", brokers, findings);
}

}  // namespace

void look_at_kafka(const Config& config, Findings& findings) {
  findings.ok("librdkafka", kafka::library_version());
  const auto named = config.kafka.find("bootstrap.servers");
  if (named == config.kafka.end()) {
    findings.warning("broker", "none is named, so none is asked",
                     "write [kafka] \"bootstrap.servers\", or give --kafka HOST:PORT");
    return;
  }
  const std::string& brokers = named->second;
  try {
    const auto broker = kafka::open_broker(config.kafka, nullptr);
    // Any topic's name asks the same of the broker: that it answers, and lets us in. This one is never made by asking.
    broker->describe("__consumer_offsets", kPatience);
    findings.ok("broker", fmt::format("{} answers", brokers));
    for (const auto& [topic, settings] : config.topics) look_at_topic(*broker, config, topic, brokers, findings);
    if (config.topics.empty()) {
      findings.warning("topics", fmt::format("none is named ({}), so none is looked at", source_of(config)),
                       "write a [topics.NAME] section for each");
    }
  } catch (const ConfigError& error) {
    for (const auto& problem : error.problems) findings.problem("broker", problem);
  } catch (const std::exception& error) {
    findings.problem("broker", error.what());
  }
}

}  // namespace turnstile::cli
