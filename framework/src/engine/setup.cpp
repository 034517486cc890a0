#include "engine/setup.hpp"

#include <algorithm>
#include <random>
#include <set>

#include "config/check.hpp"
#include "config/environment.hpp"
#include "config/settings_table.hpp"
#include "config/suggest.hpp"
#include "delivery/recorded_trials.hpp"
#include "engine/setup_checks.hpp"
#include "support/logging.hpp"
#include "support/process_name.hpp"
#include "turnstile/error.hpp"
#include "turnstile/log.hpp"
#include "turnstile/ports/broker.hpp"
#include "turnstile/text.hpp"

namespace turnstile::detail {

namespace {

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
    if (!names.insert(name).second)
      problems.push_back("topic '" + name + "': the program declares it twice; give a topic exactly one handler");
    const std::string handler = settings.handler.value_or(name);
    const auto [other, is_new] = handlers.emplace(handler, name);
    if (!is_new && other->second != name) {
      problems.push_back(
          "topic '" + name + "': handler id '" + handler + "' also belongs to topic '" + other->second +
          "', so the ids of the two topics could not be distinguished; give each topic its own with handler_id()");
    }
    const auto found = check_topic(config, name, settings, caller_raises ? RunBy::poll_loop : RunBy::consumer);
    problems.insert(problems.end(), found.begin(), found.end());
    all.push_back(settings);
    if (caller_raises && pipeline.breaks_on) {
      problems.push_back(
          "topic '" + name +
          "': break_on() works in a Consumer only, because a PollLoop cannot hold messages back; remove it");
    }
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

/// One line for each topic, so that the log shows the result of code, file and environment.
void tell_of_topic(const TopicPlan& plan, const TopicSettings& settings, bool breaks, const RunLog& run_log) {
  run_log.info("topic " + plan.topic + ": " + describe(plan) + (breaks ? ", " + describe(plan.breaks) : ""));
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

/// How long the ids of a topic's handler are needed by default. It waits for a second only, because the end of a
/// consumer waits for it. Throws BrokerError.
std::optional<HandlerRetention::Needed> ask_needed(ports::Broker& broker, const std::string& topic) {
  const auto info = broker.describe(topic, std::chrono::seconds(1));
  if (!info || !info->retention) return std::nullopt;
  return HandlerRetention::Needed{keep_ids_by_default(info->retention, info->segment)};
}

/// How long a handler's ids are needed: as configured, or as long as the topic keeps its records.
/// While the broker does not report that time, it is asked again.
std::shared_ptr<HandlerRetention> retain(ports::Store& store, HandlerId handler, const TopicPlan& plan,
                                         const TopicSettings& settings, const std::optional<ports::TopicInfo>& info,
                                         const std::shared_ptr<ports::Broker>& broker) {
  if (settings.keep_ids_for)
    return std::make_shared<HandlerRetention>(store.retention(), handler, plan.handler, settings.keep_ids_for);
  const auto needed = info ? keep_ids_by_default(info->retention, info->segment) : std::nullopt;
  HandlerRetention::Ask ask;
  if (info && !info->why_unknown.empty()) ask = [broker, topic = plan.topic] { return ask_needed(*broker, topic); };
  return std::make_shared<HandlerRetention>(store.retention(), handler, plan.handler, needed, std::move(ask));
}

/// What the topics of a consumer share.
struct SharedServices {
  std::shared_ptr<ports::Store> store;  ///< null if no topic needs it, like the parts that follow
  std::shared_ptr<LeaseRenewer> claims;
  std::shared_ptr<ProducerSecrets> producers;
  std::shared_ptr<RecordedTrials> trials;  ///< null without a store
  std::shared_ptr<DeadLetters> dead_letters;
  std::shared_ptr<const RunLog> run_log;
};

bool any_has_mode(const std::vector<TopicPlan>& plans, Mode mode) {
  return std::any_of(plans.begin(), plans.end(), [&](const auto& plan) { return plan.mode == mode; });
}

/// The store, with its schema checked. Null if no topic needs it.
std::shared_ptr<ports::Store> store_for(const ConsumerSpec& spec, const std::vector<TopicPlan>& plans) {
  if (std::all_of(plans.begin(), plans.end(), [](const auto& p) { return p.mode == Mode::at_least_once; }))
    return nullptr;
  if (!spec.backends.store)
    throw ConfigError({"a topic whose mode is not at_least_once needs a database; set [postgres] url"});
  spec.backends.store->check_schema();
  return spec.backends.store;
}

SharedServices open_services(const ConsumerSpec& spec, const std::vector<TopicPlan>& plans,
                             std::shared_ptr<ports::Store> store, const std::shared_ptr<const RunLog>& run_log) {
  const bool dies = std::any_of(plans.begin(), plans.end(), [](const auto& p) { return p.dead_letter.has_value(); });
  const auto producer = dies && spec.backends.broker ? spec.backends.broker->open_producer() : nullptr;
  SharedServices shared;
  shared.run_log = run_log;
  shared.store = std::move(store);
  shared.dead_letters = std::make_shared<DeadLetters>(
      producer,
      shared.store ? std::shared_ptr<ports::DeadLetterStore>(shared.store, &shared.store->dead_letters()) : nullptr);
  if (spec.backends.store) shared.trials = std::make_shared<RecordedTrials>(spec.backends.store->trials());
  if (any_has_mode(plans, Mode::leased))
    shared.claims = std::make_shared<LeaseRenewer>(shared.store->claims(), run_log);
  if (any_has_mode(plans, Mode::numbered))
    shared.producers = std::make_shared<ProducerSecrets>(shared.store->producers());
  return shared;
}

/// The services that the plan's mode needs.
TopicRunner::Services services_of(const TopicPlan& plan, const SharedServices& shared, const ConsumerSpec& spec) {
  TopicRunner::Services services{.store = plan.mode == Mode::at_least_once ? nullptr : shared.store,
                                 .claims = plan.mode == Mode::leased ? shared.claims : nullptr,
                                 .producers = plan.mode == Mode::numbered ? shared.producers : nullptr,
                                 .trials = shared.trials,
                                 .dead_letters = shared.dead_letters,
                                 .run_log = shared.run_log,
                                 .observers = spec.observers,
                                 .tracer = spec.tracer,
                                 .idle_timeout = plan.handler_timeout};
  if (spec.config.postgres) services.lock_timeout = spec.config.postgres->lock_timeout;
  return services;
}

/// The handler's number in the store. Throws ConfigError if what the store has of the handler does not fit.
HandlerId register_handler(TopicRunner::Services& services, const TopicPlan& plan, const TopicSettings& settings,
                           const std::optional<ports::TopicInfo>& info, const ConsumerSpec& spec) {
  if (!services.store) return {};
  ports::Store& store = *services.store;
  const HandlerId handler = store.register_handler(plan.handler);
  check_no_claims(store, handler, plan);
  if (numbers_records(plan.mode)) {
    check_counting_group(store, handler, plan, spec.config.group());
    return handler;
  }
  if (!settings.handler) check_first_group(store, handler, plan.topic, spec.config.group());
  services.retention = retain(store, handler, plan, settings, info, spec.backends.broker);
  return handler;
}

/// Null for a topic without a limit. The partitions of a poll loop's caller are not claimed from the limiters. Without a
/// transaction nothing rejects what a handler goes on to do after another process has claimed its partition, so only the
/// end of the lease returns its permits.
std::shared_ptr<ports::Limiter> limiter_of(const TopicPlan& plan, const ConsumerSpec& spec, bool caller_raises) {
  if (plan.limiter.empty()) return nullptr;
  ports::Limiters& limiters = *spec.backends.limiters;
  return has_transaction(plan.mode) && !caller_raises ? limiters.open_for_partitions(plan.limiter, plan.limit)
                                                      : limiters.open(plan.limiter, plan.limit);
}

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

RelayBell bell_of(const std::shared_ptr<Relay>& relay) {
  if (!relay) return {};
  return {.published = [relay] { relay->ring(); },
          .stored = [relay](std::chrono::milliseconds after) { relay->ring_when_due(after); }};
}

std::vector<std::unique_ptr<TopicState>> build_topics(ConsumerSpec spec, std::shared_ptr<const RunLog> run_log,
                                                      bool caller_raises, RelayBell bell) {
  std::vector<std::string> problems;
  if (spec.topics.empty())
    problems.emplace_back("the program declares no topic; call topic(name, handler) before running");
  for (const auto& unread : add_environment(spec, problems)) run_log->warn(Code::environment_unknown, unread);
  const auto settings = effective_settings(spec, caller_raises, problems);
  if (!problems.empty()) throw ConfigError(problems);

  std::vector<TopicPlan> plans;
  for (std::size_t i = 0; i < settings.size(); ++i)
    plans.push_back(plan_topic(spec.topics[i].first, settings[i], spec.config.group()));
  for (std::size_t i = 0; i < settings.size(); ++i)
    tell_of_topic(plans[i], settings[i], spec.topics[i].second.breaks_on != nullptr, *run_log);
  auto store = store_for(spec, plans);
  const auto infos = check_broker(spec, plans, settings, *run_log, !caller_raises);
  const SharedServices shared = open_services(spec, plans, std::move(store), run_log);

  std::vector<std::unique_ptr<TopicState>> topics;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const TopicPlan& plan = plans[i];
    auto services = services_of(plan, shared, spec);
    services.bell = bell;
    services.caller_raises = caller_raises;
    const HandlerId handler = register_handler(services, plan, settings[i], infos[i], spec);
    auto limiter = limiter_of(plan, spec, caller_raises);
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

bool uses(const std::vector<std::unique_ptr<TopicState>>& topics, Mode mode) {
  return std::any_of(topics.begin(), topics.end(),
                     [&](const auto& topic) { return topic->runner.plan().mode == mode; });
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

std::vector<std::pair<std::string, HandlerBreaker*>> breakers_of(
    const std::vector<std::unique_ptr<TopicState>>& topics) {
  std::vector<std::pair<std::string, HandlerBreaker*>> all;
  for (const auto& topic : topics) {
    if (HandlerBreaker* const breaker = topic->runner.breaker()) all.emplace_back(topic->runner.plan().topic, breaker);
  }
  return all;
}

std::shared_ptr<ports::Producers> numbering_producers(const std::vector<std::unique_ptr<TopicState>>& topics) {
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

}  // namespace turnstile::detail
