#pragma once
// The Consumer: reads topics as a member of a consumer group, and runs each message through its handler, once.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/backends.hpp"
#include "turnstile/config.hpp"
#include "turnstile/explain.hpp"
#include "turnstile/findings.hpp"
#include "turnstile/handler.hpp"
#include "turnstile/health.hpp"
#include "turnstile/status.hpp"
#include "turnstile/tracer.hpp"

namespace turnstile {

/// Reads topics of Kafka and runs their handlers, until it is stopped.
class Consumer {
 public:
  /// With Kafka and PostgreSQL: connect(config). Link turnstile::turnstile.
  explicit Consumer(Config config);
  /// With other parts than those of connect(), as in tests.
  Consumer(Config config, Backends backends);
  ~Consumer();
  Consumer(const Consumer&) = delete;
  Consumer& operator=(const Consumer&) = delete;

  /// Adds a topic with its handler, each topic once. Settings of the configuration override those of the pipeline.
  Consumer& topic(const std::string& name, Pipeline pipeline);
  /// Adds an observer for all topics.
  Consumer& observe(std::shared_ptr<Observer> observer);
  /// Sets the tracer of all topics. Null: none.
  Consumer& trace(std::shared_ptr<Tracer> tracer);
  /// Sets the logger, also of the limiters and the Kafka client. Default: a logger to stderr, as [log] configures it.
  Consumer& logger(std::shared_ptr<spdlog::logger> logger);

  /// Runs until stop(), SIGTERM or SIGINT. Then it starts no handler, and running handlers may finish within
  /// drain_timeout. After that their stop_token is set, and they have 2 s more. It commits and leaves the group. A
  /// second signal ends the drain.
  /// A handler that has not returned by then continues in its thread after run() has returned, and its commits are
  /// refused. The objects that handlers use must therefore live until the process ends: let handlers own them (captured
  /// by value, or as a shared_ptr).
  /// If it cannot start, it throws ConfigError (wrong or contradictory settings, all at once), SchemaError,
  /// BrokerError, StoreUnavailable, or StoreBusy (a table is locked). A running Consumer throws only if waiting does
  /// not help: BrokerError, Halted (unless consumer.when_halted is release), and ConfigError (another member of the group
  /// has the handler in mode leased, and this one in another mode). Before it throws, it has let running
  /// handlers end and has left the group.
  void run();
  /// Ends run(). Any thread and a signal handler may call it. Before run(), it makes run() return at once.
  void stop() noexcept;
  /// The current state. Any thread may call it, before, during and after run(), but not from within an Observer. Call
  /// it only a few times a second, because it takes the workers' locks for some microseconds for each partition.
  [[nodiscard]] Health health() const;
  /// As health(), with the numbers of its partitions, handlers and limits. The first call begins to ask Kafka and
  /// PostgreSQL for what only they know; see turnstile/status.hpp. Also no call from within an Observer, and only a few
  /// times a second.
  [[nodiscard]] Status status() const;
  /// Runs the checks of `turnstile doctor` for the topics and handlers of this program, and reports why a partition
  /// stalls. Any thread may call it, also before run(). It waits some seconds for servers that do not answer.
  [[nodiscard]] std::vector<Finding> check() const;
  /// The settings in effect, and the source of each: default, code, file or environment. `key` chooses a setting
  /// ("topics.payments.limit") or a section ("consumer"). Throws ConfigError for a key that does not exist. May be
  /// called before run().
  [[nodiscard]] std::vector<ExplainedSetting> explain(std::string_view key = {}) const;
  /// False: the program handles SIGTERM and SIGINT itself. Default: run() handles them.
  Consumer& handle_signals(bool on);

 private:
  void run_until_stopped();

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace turnstile
