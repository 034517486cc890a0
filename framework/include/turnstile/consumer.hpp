#pragma once
// The Consumer: reads topics as a member of a consumer group, and runs each message through its handler, once.

#include <memory>
#include <string>

#include "turnstile/config.hpp"
#include "turnstile/handler.hpp"

namespace spdlog {
class logger;
}

namespace turnstile {

class Broker;
class InboxStore;
class Limiters;

/// The outside things that a Consumer or a PollLoop works with. Each may be replaced; shared, so they outlive it.
struct Backends {
  std::shared_ptr<Broker> broker;
  std::shared_ptr<InboxStore> store{};   ///< null: no database, all topics in mode none
  std::shared_ptr<Limiters> limiters{};  ///< null: counted within this process
};

/// Kafka and PostgreSQL as the configuration says. Link turnstile::turnstile, which brings both adapters.
Backends connect(const Config& config, std::shared_ptr<spdlog::logger> logger = nullptr);

class Consumer {
 public:
  /// Over Kafka and PostgreSQL: connect(config). Link turnstile::turnstile.
  explicit Consumer(Config config);
  Consumer(Config config, Backends backends);
  ~Consumer();
  Consumer(const Consumer&) = delete;
  Consumer& operator=(const Consumer&) = delete;

  /// One handler for one topic, each topic once. What the configuration says of the topic overrides the pipeline's.
  Consumer& topic(const std::string& name, Pipeline pipeline);
  /// Told of everything, in all topics.
  Consumer& observe(std::shared_ptr<Observer> observer);
  /// Log through this; otherwise to stderr, as [log] says.
  Consumer& logger(std::shared_ptr<spdlog::logger> logger);

  /// Runs until stop(), SIGTERM or SIGINT; then stops starting handlers, lets the running ones finish within
  /// drain_timeout and 2 s more for those that heed their stop_token, commits, and leaves the group. A second signal ends the drain.
  /// Throws ConfigError (wrong or contradicting settings, all at once), SchemaError, BrokerError, StoreUnavailable when it
  /// cannot start. Once it runs it throws only BrokerError for what no waiting mends.
  void run();
  /// From any thread, and from a signal handler. Safe before run(): it then returns at once.
  void stop() noexcept;
  /// Leave SIGTERM and SIGINT to the program. Default: handled while run() runs.
  Consumer& handle_signals(bool on);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace turnstile
