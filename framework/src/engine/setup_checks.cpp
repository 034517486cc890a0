#include "engine/setup_checks.hpp"

#include "config/check.hpp"
#include "config/settings_table.hpp"
#include "turnstile/error.hpp"
#include "turnstile/ports/broker.hpp"

namespace turnstile::detail {

namespace {

constexpr std::chrono::milliseconds kDescribeWait{10'000};

std::string hours_text(std::chrono::milliseconds time) {
  return std::to_string(std::chrono::ceil<std::chrono::hours>(time).count()) + " h";
}

/// A problem if ids would be deleted before the topic deletes its messages (hazard: ids-outlive-topic). Otherwise
/// absent.
std::optional<std::string> check_retention(const ports::TopicInfo& info, std::chrono::seconds keep) {
  if (!info.retention || keep > *info.retention) return std::nullopt;
  const bool for_ever = *info.retention == std::chrono::milliseconds::max();
  const auto enough = keep_ids_by_default(info.retention, info.segment);
  return "ids are kept for " + std::to_string(keep.count() / 3600) + " h, but the topic keeps messages for " +
         (for_ever ? std::string("ever (retention.ms = -1, or it is compacted)") : hours_text(*info.retention)) +
         ": after an offset reset, old messages would take effect again; raise keep_ids_for above the topic's "
         "retention.ms, or remove it" +
         (enough ? " (then ids are kept for " + hours_text(*enough) + " here)" : " (then ids are kept forever here)");
}

/// If few records are written, a record stays for longer than retention.ms: until its segment is full, or old enough.
std::optional<std::string> warn_of_retention(const ports::TopicInfo& info, std::chrono::seconds keep) {
  const auto stay = longest_stay(info.retention, info.segment);
  if (!stay || keep >= *stay) return std::nullopt;
  return "keep_ids_for is " + hours_text(keep) + ", but a record can stay for " + hours_text(*stay) +
         " if few are written (retention.ms and segment.ms). After an offset reset, Turnstile does not recognize "
         "records older than keep_ids_for as duplicates. Remove keep_ids_for, raise it to " +
         hours_text(*keep_ids_by_default(info.retention, info.segment)) + ", or lower the topic's segment.ms";
}

/// Nothing tells whether ids are kept for long enough, or why they are kept forever.
void warn_of_unknown(const std::string& topic, const std::string& why, const std::optional<std::chrono::seconds>& keep,
                     const RunLog& run_log) {
  run_log.warn(
      Code::retention_unknown,
      "topic " + topic + ": how long it keeps its records is unknown: " + why + ". " +
          (keep
               ? "keep_ids_for is " + hours_text(*keep) +
                     ". If records stay in the topic for longer, an offset reset makes old messages take effect again"
               : "Until the broker tells, the topic's ids are kept forever. This process asks again every 10 minutes"));
}

}  // namespace

void check_counting_group(ports::Store& store, HandlerId handler, const TopicPlan& plan, const std::string& group) {
  const std::string first = store.first_group(handler, group);
  if (first == group) return;
  throw ConfigError(
      {"topic '" + plan.topic + "': consumer group '" + first + "' already uses the handler name '" + plan.handler +
       "' in this schema. Mode " + std::string(word_of(plan.mode)) +
       " counts the records of each group separately, so group '" + group +
       "' would run all records again. If this is the same service, keep group.id = \"" + first +
       "\". If it is another service, give its handler another name: handler_id(), or handler in [topics.\"" +
       plan.topic + "\"]"});
}

void check_first_group(ports::Store& store, HandlerId handler, const std::string& topic, const std::string& group) {
  const std::string first = store.first_group(handler, group);
  if (first == group) return;
  throw ConfigError(
      {"topic '" + topic + "': consumer group '" + first +
       "' already stores ids under the topic's name in this schema. A message that either group handles would be a "
       "duplicate for the other group, '" +
       group + "'. If this is another service, give its handler another name: handler_id(), or handler = \"" + group +
       "\" in [topics.\"" + topic + "\"]. If it is the same service with a new group.id, set handler = \"" + topic +
       "\""});
}

void check_no_claims(ports::Store& store, HandlerId handler, const TopicPlan& plan) {
  if (plan.mode == Mode::leased) return;
  const ports::ClaimCounts claims = store.claims()->count(handler);
  if (claims.running + claims.in_doubt + claims.parked == 0) return;
  throw ConfigError(
      {"topic '" + plan.topic + "': handler '" + plan.handler +
       "' has claims of mode leased: " + std::to_string(claims.running) + " running, " +
       std::to_string(claims.in_doubt) + " in doubt, " + std::to_string(claims.parked) +
       " parked. Their messages run, or may have taken effect, and mode " + std::string(word_of(plan.mode)) +
       " would run them without asking. To change the mode to leased, stop all consumers with another mode before the "
       "first one starts with leased. To change it from leased, set it to leased again, stop the producers, and let the "
       "consumers run until their lag is 0. Decide about what is in doubt or parked (turnstile inbox unpark ID "
       "--handler " +
       plan.handler + " --done, or --rerun), stop all consumers, and then change the mode"});
}

std::vector<std::optional<ports::TopicInfo>> check_broker(const ConsumerSpec& spec, const std::vector<TopicPlan>& plans,
                                                          const std::vector<TopicSettings>& settings,
                                                          const RunLog& run_log, bool reads) {
  std::vector<std::optional<ports::TopicInfo>> infos(plans.size());
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
          Code::retention_unknown,
          "topic " + plans[i].topic +
              " is not in the Kafka cluster of [kafka], so its retention is unknown and its ids are kept forever. Set "
              "keep_ids_for to more than its retention.ms");
    if (plans[i].dead_letter && !spec.backends.broker->describe(*plans[i].dead_letter, kDescribeWait)) {
      need(*plans[i].dead_letter, "dead letter topic");
    }
    for (const std::string& topic : plans[i].reply_topics) {
      if (!spec.backends.broker->describe(topic, kDescribeWait)) need(topic, "reply topic");
    }
    const auto keep = settings[i].keep_ids_for;
    if (info && !info->retention && !info->why_unknown.empty() && keeps_ids(plans[i].mode))
      warn_of_unknown(plans[i].topic, info->why_unknown, keep, run_log);
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

}  // namespace turnstile::detail
