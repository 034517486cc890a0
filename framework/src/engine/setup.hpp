#pragma once
// From a configuration and pipelines to topics that can run: what Consumer and PollLoop share. All that is wrong is
// reported at once.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/scheduler.hpp"
#include "outbox/relay.hpp"
#include "support/run_log.hpp"
#include "turnstile/config.hpp"
#include "turnstile/consumer.hpp"
#include "turnstile/explain.hpp"

namespace turnstile {

/// What the program has asked for, before anything was checked.
struct ConsumerSpec {
  Config config;
  Backends backends;
  std::vector<std::pair<std::string, Pipeline>> topics;  ///< in the order of asking, names may repeat
  Observers observers;
  std::shared_ptr<spdlog::logger> logger;
};

/// The logger that was given, or the backends', or one as [log] says. Its lines carry the process's name.
std::shared_ptr<const RunLog> open_run_log(const ConsumerSpec& spec);

/// Consumer::logger(), PollLoop::logger().
void log_through(ConsumerSpec& spec, std::shared_ptr<spdlog::logger> logger);

/// Sends what handlers have published. Null where there is no outbox, or no broker.
std::shared_ptr<Relay> make_relay(const ConsumerSpec& spec, const std::shared_ptr<const RunLog>& run_log);

/// Checks settings, schema and topics, registers handlers, opens limiters. Throws ConfigError, SchemaError,
/// StoreUnavailable, BrokerError.
/// `spec`: a copy, to which the environment's settings of the program's topics are added.
/// `caller_raises`, `on_published`: see TopicRunner::Services.
std::vector<std::unique_ptr<TopicState>> build_topics(ConsumerSpec spec, std::shared_ptr<const RunLog> run_log,
                                                      bool caller_raises, std::function<void()> on_published = {});

/// What is wrong with the settings and topics of the program, and what the backends find. Throws nothing of what it finds.
void check_spec(ConsumerSpec spec, Findings& findings);

/// The settings in effect, of the topics that the program has given too.
std::vector<ExplainedSetting> explain_spec(ConsumerSpec spec, std::string_view key);

/// Whether any of them keeps something in the store.
bool need_store(const std::vector<std::unique_ptr<TopicState>>& topics);

/// Of the handlers that keep ids.
std::vector<std::shared_ptr<Retention>> retained(const std::vector<std::unique_ptr<TopicState>>& topics);

/// Null unless producers number their requests to one of the topics.
std::shared_ptr<Producers> numbering_producers(const std::vector<std::unique_ptr<TopicState>>& topics);

/// Threads that run handlers: as configured, or as many as the limits allow.
int worker_count(const Config& config, const std::vector<std::unique_ptr<TopicState>>& topics);

}  // namespace turnstile
