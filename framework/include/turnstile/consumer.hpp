#pragma once
// The Consumer: reads topics as a member of a consumer group, and runs each message through its handler, once.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "turnstile/config.hpp"
#include "turnstile/explain.hpp"
#include "turnstile/findings.hpp"
#include "turnstile/handler.hpp"
#include "turnstile/health.hpp"

namespace spdlog {
class logger;
}

namespace turnstile {

class Broker;
class Store;
class Limiters;

/// The outside things that a Consumer or a PollLoop works with. Each may be replaced; shared, so they outlive it.
struct Backends {
  std::shared_ptr<Broker> broker;        ///< where messages come from and go to; not null
  std::shared_ptr<Store> store{};        ///< null: no database, all topics in mode at_least_once
  std::shared_ptr<Limiters> limiters{};  ///< null: counted within this process
  /// What they log through; the Consumer or PollLoop logs through it too unless it is given another logger, and then, if connect() has
  /// made this one, they log through that. Null: a Consumer makes one.
  std::shared_ptr<spdlog::logger> logger{};
  /// Looks at them from outside, for Consumer::check(); may be empty.
  std::function<void(const Config&, Findings&)> look{};
};

/// Kafka and PostgreSQL as the configuration says. Link turnstile::turnstile, which brings both adapters.
Backends connect(const Config& config, std::shared_ptr<spdlog::logger> logger = nullptr);

/// Reads topics of Kafka and runs their handlers, until it is stopped.
class Consumer {
 public:
  /// Over Kafka and PostgreSQL: connect(config). Link turnstile::turnstile.
  explicit Consumer(Config config);
  /// Over other parts than those of connect(), as in tests.
  Consumer(Config config, Backends backends);
  ~Consumer();
  Consumer(const Consumer&) = delete;
  Consumer& operator=(const Consumer&) = delete;

  /// One handler for one topic, each topic once. What the configuration says of the topic overrides the pipeline's.
  Consumer& topic(const std::string& name, Pipeline pipeline);
  /// Told of everything, in all topics.
  Consumer& observe(std::shared_ptr<Observer> observer);
  /// Log through this, the limiters and the Kafka client included; otherwise to stderr, as [log] says.
  Consumer& logger(std::shared_ptr<spdlog::logger> logger);

  /// Runs until stop(), SIGTERM or SIGINT; then stops starting handlers, lets the running ones finish within
  /// drain_timeout and 2 s more for those that heed their stop_token, commits, and leaves the group. A second signal ends the drain.
  /// A handler that has not returned by then goes on in its thread after run() has returned, and its commits are refused. What handlers use
  /// must therefore live until the process ends: let them own it (captured by value, or as a shared_ptr).
  /// Throws ConfigError (wrong or contradicting settings, all at once), SchemaError, BrokerError, StoreUnavailable when it
  /// cannot start. Once it runs it throws only for what no waiting mends: BrokerError, and Halted (unless consumer.when_halted is release),
  /// both after it has let the running handlers end and left the group.
  void run();
  /// From any thread, and from a signal handler. Safe before run(): it then returns at once.
  void stop() noexcept;
  /// How it is now. From any thread, before, while and after run() runs, but not from within an Observer. Takes the locks that the workers
  /// take, for some microseconds a partition: ask a few times a second, not more.
  [[nodiscard]] Health health() const;
  /// What `turnstile doctor` checks, with the topics and handlers that this program has given, and what holds up its partitions. From any
  /// thread, also before run(); waits some seconds for servers that do not answer.
  [[nodiscard]] std::vector<Finding> check() const;
  /// The settings in effect, and where each comes from: the default, the code, the file or the environment. `key` chooses one
  /// ("topics.payments.limit") or a section ("consumer"). Throws ConfigError for a key that does not exist. Also before run().
  [[nodiscard]] std::vector<ExplainedSetting> explain(std::string_view key = {}) const;
  /// Leave SIGTERM and SIGINT to the program. Default: handled while run() runs.
  Consumer& handle_signals(bool on);

 private:
  void run_until_stopped();

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace turnstile
