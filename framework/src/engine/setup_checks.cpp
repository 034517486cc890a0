#include "engine/setup_checks.hpp"

#include "config/check.hpp"
#include "config/keys.hpp"
#include "turnstile/error.hpp"
#include "turnstile/ports/broker.hpp"

namespace turnstile {

namespace {

constexpr std::chrono::milliseconds kDescribeWait{10'000};

std::string hours_text(std::chrono::milliseconds time) {
  return std::to_string(std::chrono::ceil<std::chrono::hours>(time).count()) + " h";
}

/// A problem if ids would be deleted before the topic deletes its messages (hazard: ids-outlive-topic). Otherwise
/// absent.
std::optional<std::string> check_retention(const TopicInfo& info, std::chrono::seconds keep) {
  if (!info.retention || keep > *info.retention) return std::nullopt;
  const bool for_ever = *info.retention == std::chrono::milliseconds::max();
  const auto enough = keep_ids_by_default(info.retention, info.segment);
  return "ids are kept for " + std::to_string(keep.count() / 3600) + " h, but the topic keeps messages for " +
         (for_ever ? std::string("ever (retention.ms = -1, or it is compacted)") : hours_text(*info.retention)) +
         ": after a reset of offsets its messages would take effect again; raise it above the topic's retention.ms, or leave it out" +
         (enough ? " (then it is " + hours_text(*enough) + " here)" : " (then they are kept forever here)");
}

/// If few records are written, a record stays for longer than retention.ms: until its segment is full, or old enough.
std::optional<std::string> warn_of_retention(const TopicInfo& info, std::chrono::seconds keep) {
  const auto stay = longest_stay(info.retention, info.segment);
  if (!stay || keep >= *stay) return std::nullopt;
  return "keep_ids_for is " + hours_text(keep) + ", and a record can stay for " + hours_text(*stay) +
         " where few are written (retention.ms and segment.ms). After a reset of offsets, records older than their ids "
         "are not recognized as duplicates. Leave keep_ids_for out, raise it to " +
         hours_text(*keep_ids_by_default(info.retention, info.segment)) + ", or lower the topic's segment.ms";
}

}  // namespace

void check_counting_group(Store& store, HandlerId handler, const TopicPlan& plan, const std::string& group) {
  const std::string first = store.first_group(handler, group);
  if (first == group) return;
  throw ConfigError(
      {"topic '" + plan.topic + "': consumer group '" + first + "' counts records under the handler's name '" +
       plan.handler + "' in this schema. Mode " + std::string(word_of(plan.mode)) +
       " counts for each group by itself: in the group '" + group +
       "' all records would run again. For the same service keep group.id = \"" + first +
       "\"; for another service that runs all records too, give the handler a name of its own with handler_id(), or "
       "handler in [topics.\"" +
       plan.topic + "\"]"});
}

void check_first_group(Store& store, HandlerId handler, const std::string& topic, const std::string& group) {
  const std::string first = store.first_group(handler, group);
  if (first == group) return;
  throw ConfigError(
      {"topic '" + topic + "': consumer group '" + first +
       "' keeps ids in this schema under the topic's name already: a message that one of the two groups has handled "
       "would be a duplicate for the other, '" +
       group + "'. Give this handler a name of its own with handler_id(), or handler = \"" + group +
       "\" in [topics.\"" + topic + "\"]. If it is the same service under another group's name: handler = \"" + topic +
       "\""});
}

std::vector<std::optional<TopicInfo>> check_broker(const ConsumerSpec& spec, const std::vector<TopicPlan>& plans,
                                                   const std::vector<TopicSettings>& settings, const RunLog& run_log,
                                                   bool reads) {
  std::vector<std::optional<TopicInfo>> infos(plans.size());
  if (!spec.backends.broker) return infos;
  std::string missing;
  std::vector<std::string> problems;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const auto& info = infos[i] = spec.backends.broker->describe(plans[i].topic, kDescribeWait);
    const auto need = [&](const std::string& topic, const char* what) {
      missing += (missing.empty() ? "" : "\n") + std::string(what) + " '" + topic +
                 "' does not exist; create it: kafka-topics.sh --bootstrap-server BROKER --create --topic " + topic +
                 " --partitions N";
    };
    if (!info && reads) need(plans[i].topic, "topic");
    if (!info && !reads && !settings[i].keep_ids_for && keeps_ids(plans[i].mode))
      run_log.warn(
          Code::retention_mismatch,
          "topic " + plans[i].topic +
              " is not in the Kafka of [kafka], so its retention is unknown, and its ids are kept forever. Set "
              "keep_ids_for to more than its retention.ms");
    if (plans[i].dead_letter && !spec.backends.broker->describe(*plans[i].dead_letter, kDescribeWait)) {
      need(*plans[i].dead_letter, "dead letter topic");
    }
    for (const std::string& topic : plans[i].reply_topics) {
      if (!spec.backends.broker->describe(topic, kDescribeWait)) need(topic, "reply topic");
    }
    const auto keep = settings[i].keep_ids_for;
    if (!info || !keep || plans[i].mode == Mode::at_least_once) continue;
    if (const auto problem = check_retention(*info, *keep)) {
      problems.push_back(spec.config.where("topics." + plans[i].topic + ".keep_ids_for") + ": " + *problem);
    } else if (const auto warning = warn_of_retention(*info, *keep)) {
      run_log.warn(Code::retention_mismatch, "topic " + plans[i].topic + ": " + *warning);
    }
  }
  if (!missing.empty()) throw BrokerError(Code::topic_missing, missing);
  if (!problems.empty()) throw ConfigError(problems);
  return infos;
}

}  // namespace turnstile
