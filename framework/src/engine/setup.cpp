#include "engine/setup.hpp"

#include <algorithm>
#include <random>
#include <set>

#include "config/check.hpp"
#include "config/environment.hpp"
#include "config/keys.hpp"
#include "config/suggest.hpp"
#include "support/logging.hpp"
#include "support/process_name.hpp"
#include "turnstile/error.hpp"
#include "turnstile/log.hpp"
#include "turnstile/ports/broker.hpp"
#include "turnstile/text.hpp"

namespace turnstile {

namespace {

constexpr std::chrono::milliseconds kDescribeWait{10'000};
/// How many topics an error names.
constexpr std::size_t kMostTopics = 10;

/// Adds the environment's settings of topics that only the program names. Returns the variables that match none of
/// them.
std::vector<std::string> add_environment(ConsumerSpec& spec, std::vector<std::string>& problems) {
  std::set<std::string> topics;
  for (const auto& [name, pipeline] : spec.topics) topics.insert(name);
  const auto found = read_environment(topics, spec.config);
  problems.insert(problems.end(), found.begin(), found.end());
  return unread_variables(topics, spec.config);
}

/// Lists the program's topics, and those that this name may stand for.
std::string known_topics(const std::set<std::string>& topics, const std::string& name) {
  if (topics.empty()) return "known: none";
  std::string text = "known: ";
  std::size_t shown = 0;
  for (const auto& topic : topics) {
    if (shown == kMostTopics) break;
    text += (shown++ == 0 ? "" : ", ") + topic;
  }
  if (shown < topics.size()) text += " and " + std::to_string(topics.size() - shown) + " more";
  const auto near = suggest(name, std::vector<std::string_view>(topics.begin(), topics.end()));
  return text + (near ? "; did you mean '" + std::string(*near) + "'?" : "");
}

/// The settings of code and configuration together. It reports contradictions.
std::vector<TopicSettings> effective_settings(const ConsumerSpec& spec, bool caller_raises,
                                              std::vector<std::string>& problems) {
  std::vector<TopicSettings> all;
  std::set<std::string> names;
  std::map<std::string, std::string> handlers;  // handler id -> topic
  Config config = spec.config;
  if (spec.backends.store && !config.postgres) config.postgres.emplace();  // the program's own store is enough
  for (const auto& [name, pipeline] : spec.topics) {
    const auto configured = spec.config.topics.find(name);
    const TopicSettings settings =
        configured == spec.config.topics.end() ? pipeline.settings : merge(pipeline.settings, configured->second);
    if (!names.insert(name).second) problems.push_back("topic '" + name + "': given twice; a topic has one handler");
    const std::string handler = settings.handler.value_or(name);
    const auto [other, is_new] = handlers.emplace(handler, name);
    if (!is_new && other->second != name) {
      problems.push_back(
          "topic '" + name + "': handler id '" + handler + "' is used by topic '" + other->second +
          "' too, so the ids of the two topics could not be distinguished; give each a name of its own with handler_id()");
    }
    const auto found = check_topic(config, name, settings, caller_raises ? RunBy::poll_loop : RunBy::consumer);
    problems.insert(problems.end(), found.begin(), found.end());
    all.push_back(settings);
  }
  std::map<std::string, std::string> dead_letters;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (auto to = dead_letter_name(spec.topics[i].first, all[i])) dead_letters.emplace(spec.topics[i].first, *to);
  }
  for (auto& problem : check_dead_letters(dead_letters)) problems.push_back(std::move(problem));
  for (const auto& [name, ignored] : spec.config.topics) {
    if (names.contains(name)) continue;
    problems.push_back(spec.config.where("topics." + name) + ": the program has no handler for this topic; " +
                       known_topics(names, name));
  }
  return all;
}

/// Each group counts offsets and producers' numbers by itself.
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

/// The handler has no name of its own.
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

/// Missing topics are a problem, and so are ids that are kept too briefly. Returns the broker's description of each
/// topic, absent without a broker. `reads`: the records come from this broker; a poll loop may read them from anywhere.
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

/// One line for each topic, so that the log shows the result of code, file and environment.
void tell_of_topic(const TopicPlan& plan, const TopicSettings& settings, const RunLog& run_log) {
  run_log.info("topic " + plan.topic + ": " + describe(plan));
  if (!settings.retry || plan.dead_letter) return;
  run_log.warn(Code::retry_without_dead_letter,
               "topic " + plan.topic + ": retry is set to " + std::to_string(plan.retry.attempts) +
                   " attempts, but without a dead_letter a message that fails is retried forever" +
                   (plan.order == Order::none  ? ""
                    : plan.order == Order::key ? " and blocks the messages of its key"
                                               : " and blocks its partition") +
                   ". Add dead_letter(), or dead_letter = \"\" (that is " + plan.topic + ".dlq) in [topics." +
                   plan.topic + "]");
}

/// How long a handler's ids are needed: as configured, or as long as the topic keeps its records.
std::shared_ptr<HandlerRetention> retain(Store& store, HandlerId handler, const std::string& name,
                                         const TopicSettings& settings, const std::optional<TopicInfo>& info) {
  const auto by_default = info ? keep_ids_by_default(info->retention, info->segment) : std::nullopt;
  return std::make_shared<HandlerRetention>(store.retention(), handler, name,
                                            settings.keep_ids_for ? settings.keep_ids_for : by_default);
}

}  // namespace

namespace {

/// Two consumers in one process are two relays.
std::string random_name() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::random_device random;
  std::string id;
  for (int i = 0; i < 8; ++i) id += kDigits[random() % 16];
  return id;
}

}  // namespace

std::shared_ptr<const RunLog> open_run_log(const ConsumerSpec& spec) {
  const auto& given = spec.logger ? spec.logger : spec.backends.logger;
  return std::make_shared<RunLog>(given ? given : make_logger(spec.config.log), own_name(spec.config.client()));
}

void log_through(ConsumerSpec& spec, std::shared_ptr<spdlog::logger> logger) {
  if (spec.backends.logger && logger) redirect(*spec.backends.logger, logger);
  spec.logger = std::move(logger);
}

std::shared_ptr<Relay> make_relay(const ConsumerSpec& spec, const std::shared_ptr<const RunLog>& run_log) {
  const auto& broker = spec.backends.broker;
  const auto& store = spec.backends.store;
  if (!store || !broker) return nullptr;
  return std::make_shared<Relay>(
      Relay::Settings{.owner = run_log->member() + " " + random_name()}, store->outbox(),
      [broker = broker] { return broker->open_sender(); }, run_log);
}

std::vector<std::unique_ptr<TopicState>> build_topics(ConsumerSpec spec, std::shared_ptr<const RunLog> run_log,
                                                      bool caller_raises, std::function<void()> on_published) {
  std::vector<std::string> problems;
  if (spec.topics.empty()) problems.emplace_back("no topic was given: call topic(name, handler) before running");
  for (const auto& unread : add_environment(spec, problems)) run_log->warn(Code::environment_unknown, unread);
  const auto settings = effective_settings(spec, caller_raises, problems);
  if (!problems.empty()) throw ConfigError(problems);

  std::vector<TopicPlan> plans;
  for (std::size_t i = 0; i < settings.size(); ++i) plans.push_back(plan_topic(spec.topics[i].first, settings[i]));
  for (std::size_t i = 0; i < settings.size(); ++i) tell_of_topic(plans[i], settings[i], *run_log);
  const bool stores =
      std::any_of(plans.begin(), plans.end(), [](const auto& p) { return p.mode != Mode::at_least_once; });
  const auto store = stores ? spec.backends.store : nullptr;
  if (stores && !store) throw ConfigError({"a topic whose mode is not none needs a database: set [postgres] url"});
  if (store) store->check_schema();

  const auto infos = check_broker(spec, plans, settings, *run_log, !caller_raises);
  const bool dies = std::any_of(plans.begin(), plans.end(), [](const auto& p) { return p.dead_letter.has_value(); });
  const auto producer = dies && spec.backends.broker ? spec.backends.broker->open_producer() : nullptr;
  const auto dead_letters = std::make_shared<DeadLetters>(
      producer, store ? std::shared_ptr<DeadLetterStore>(store, &store->dead_letters()) : nullptr);
  const auto trials = spec.backends.store ? spec.backends.store->trials() : nullptr;

  const bool leases = std::any_of(plans.begin(), plans.end(), [](const auto& p) { return p.mode == Mode::leased; });
  const auto claims = leases ? std::make_shared<LeaseRenewer>(store->claims(), run_log) : nullptr;

  const bool numbered = std::any_of(plans.begin(), plans.end(), [](const auto& p) { return p.mode == Mode::numbered; });
  const auto producers = numbered ? std::make_shared<ProducerSecrets>(store->producers()) : nullptr;

  std::vector<std::unique_ptr<TopicState>> topics;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const TopicPlan& plan = plans[i];
    TopicRunner::Services services{.store = plan.mode == Mode::at_least_once ? nullptr : store,
                                   .claims = plan.mode == Mode::leased ? claims : nullptr,
                                   .producers = plan.mode == Mode::numbered ? producers : nullptr,
                                   .trials = trials,
                                   .dead_letters = dead_letters,
                                   .run_log = run_log,
                                   .observers = spec.observers,
                                   .idle_timeout = plan.handler_timeout,
                                   .on_published = on_published,
                                   .caller_raises = caller_raises};
    if (spec.config.postgres) services.lock_timeout = spec.config.postgres->lock_timeout;
    const HandlerId handler = services.store ? store->register_handler(plan.handler) : HandlerId{};
    if (numbers_records(plan.mode)) check_counting_group(*store, handler, plan, spec.config.group());
    else if (services.store) {
      if (!settings[i].handler) check_first_group(*store, handler, plan.topic, spec.config.group());
      services.retention = retain(*store, handler, plan.handler, settings[i], infos[i]);
    }
    std::shared_ptr<Limiter> limiter;
    if (!plan.limiter.empty()) {
      Limiters& limiters = *spec.backends.limiters;
      // The partitions of a poll loop's caller are not claimed from the limiters.
      limiter = caller_raises ? limiters.open(plan.limiter, plan.limit)
                              : limiters.open_for_partitions(plan.limiter, plan.limit);
    }
    topics.push_back(
        std::make_unique<TopicState>(plan, spec.topics[i].second, handler, std::move(services), std::move(limiter)));
  }
  return topics;
}

std::vector<ExplainedSetting> explain_spec(ConsumerSpec spec, std::string_view key) {
  std::vector<std::string> problems;
  add_environment(spec, problems);
  if (!problems.empty()) throw ConfigError(std::move(problems));
  SettingsInCode in_code;
  for (const auto& [name, pipeline] : spec.topics) in_code.try_emplace(name, pipeline.settings);
  return key.empty() ? explain(spec.config, &in_code) : explain(spec.config, key, &in_code);
}

void check_spec(ConsumerSpec spec, Findings& findings) {
  std::vector<std::string> problems;
  for (const auto& unread : add_environment(spec, problems)) findings.warning("configuration", unread);
  const auto settings = effective_settings(spec, false, problems);
  for (const std::string& problem : problems) findings.problem("configuration", problem);
  if (problems.empty())
    findings.ok("configuration",
                text::count(static_cast<std::int64_t>(settings.size()), "topic") + " with a handler for each");
  if (!spec.backends.look) return;
  Config config = spec.config;
  for (std::size_t i = 0; i < settings.size(); ++i) config.topics[spec.topics[i].first] = settings[i];
  spec.backends.look(config, findings);
}

bool need_store(const std::vector<std::unique_ptr<TopicState>>& topics) {
  return std::any_of(topics.begin(), topics.end(), [](const auto& topic) { return topic->needs_store(); });
}

std::vector<std::shared_ptr<HandlerRetention>> retained(const std::vector<std::unique_ptr<TopicState>>& topics) {
  std::vector<std::shared_ptr<HandlerRetention>> all;
  for (const auto& topic : topics) {
    if (const auto& retention = topic->runner.services().retention) all.push_back(retention);
  }
  return all;
}

std::shared_ptr<Producers> numbering_producers(const std::vector<std::unique_ptr<TopicState>>& topics) {
  for (const auto& topic : topics) {
    if (const auto& book = topic->runner.services().producers) return book->producers();
  }
  return nullptr;
}

int worker_count(const Config& config, const std::vector<std::unique_ptr<TopicState>>& topics) {
  if (config.consumer.workers > 0) return config.consumer.workers;
  constexpr std::int64_t kWithoutLimit = 8;
  std::set<std::string> seen;
  std::int64_t sum = 0;
  for (const auto& topic : topics) {
    const auto& plan = topic->runner.plan();
    if (plan.limiter.empty()) sum += kWithoutLimit;
    else if (seen.insert(plan.limiter).second) sum += plan.limit;
  }
  return static_cast<int>(std::clamp<std::int64_t>(sum, 4, 64));
}

}  // namespace turnstile
