#pragma once
// Makes runnable topics of a configuration and pipelines; Consumer and PollLoop share it. It reports all errors at
// once.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/scheduler.hpp"
#include "outbox/relay.hpp"
#include "support/run_log.hpp"
#include "turnstile/backends.hpp"
#include "turnstile/config.hpp"
#include "turnstile/explain.hpp"

namespace turnstile::detail {

/// The program's calls, before any check.
struct ConsumerSpec {
  Config config;
  Backends backends;
  std::vector<std::pair<std::string, Pipeline>> topics;  ///< in the order of the calls; names may repeat
  Observers observers;
  std::shared_ptr<Tracer> tracer;  ///< may be null
  std::shared_ptr<spdlog::logger> logger;
};

/// The program's logger, or the backends', or one as [log] configures it. Its lines have the name of the process.
std::shared_ptr<const RunLog> open_run_log(const ConsumerSpec& spec);

/// Implements Consumer::logger() and PollLoop::logger().
void log_through(ConsumerSpec& spec, std::shared_ptr<spdlog::logger> logger);

/// Sends the messages that handlers have published. Null without an outbox or a broker.
std::shared_ptr<Relay> make_relay(const ConsumerSpec& spec, const std::shared_ptr<const RunLog>& run_log);

/// Of this relay, which may be null.
RelayBell bell_of(const std::shared_ptr<Relay>& relay);

/// Checks settings, schema and topics, registers handlers, and opens limiters. Throws ConfigError, SchemaError,
/// StoreUnavailable, BrokerError.
/// `spec` is a copy, because the environment's settings of the program's topics are added to it. For `caller_raises`
/// and `bell` see TopicServices.
std::vector<std::unique_ptr<TopicState>> build_topics(ConsumerSpec spec, std::shared_ptr<const RunLog> run_log,
                                                      bool caller_raises, RelayBell bell = {});

/// Checks the settings and topics of the program, and reports the findings of the backends. What it finds is not
/// thrown.
void check_spec(ConsumerSpec spec, Findings& findings);

/// The settings in effect, including those of topics that only the program names.
std::vector<ExplainedSetting> explain_spec(ConsumerSpec spec, std::string_view key);

/// Whether any of them has this mode.
bool uses(const std::vector<std::unique_ptr<TopicState>>& topics, Mode mode);

/// Whether any of them uses the store.
bool need_store(const std::vector<std::unique_ptr<TopicState>>& topics);

/// The retentions of the handlers that store ids.
std::vector<std::shared_ptr<HandlerRetention>> retained(const std::vector<std::unique_ptr<TopicState>>& topics);

/// The circuit breakers of the handlers, by topic.
std::vector<std::pair<std::string, HandlerBreaker*>> breakers_of(
    const std::vector<std::unique_ptr<TopicState>>& topics);

/// Null unless producers number their requests to one of the topics.
std::shared_ptr<ports::Producers> numbering_producers(const std::vector<std::unique_ptr<TopicState>>& topics);

/// The number of threads that run handlers: as configured, or as many as the limits allow.
int worker_count(const Config& config, const std::vector<std::unique_ptr<TopicState>>& topics);

}  // namespace turnstile::detail
