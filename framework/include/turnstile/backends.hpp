#pragma once
// What a Consumer or a PollLoop works with: the broker, the store and the limiters.

#include <functional>
#include <memory>
#include <vector>

#include "turnstile/config.hpp"
#include "turnstile/findings.hpp"

namespace spdlog {
class logger;
}

namespace turnstile::ports {
class Broker;
class Store;
class Limiters;
}  // namespace turnstile::ports

namespace turnstile {

class Observer;
class Tracer;
struct AdminView;

/// The outside parts of a Consumer or a PollLoop. Each may be replaced. They are shared, so they live as long as their
/// users.
struct Backends {
  std::shared_ptr<ports::Broker> broker;        ///< where messages come from and go to; not null
  std::shared_ptr<ports::Store> store{};        ///< null: no database, and all topics are in mode at_least_once
  std::shared_ptr<ports::Limiters> limiters{};  ///< null: limits apply within this process
  /// The logger of these parts. The Consumer or PollLoop uses it too, unless it has another logger. If connect() made
  /// this logger, the parts then use the other logger. Null: a Consumer makes one.
  std::shared_ptr<spdlog::logger> logger{};
  /// Examines the parts from outside, for Consumer::check(). May be empty.
  std::function<void(const Config&, Findings&)> look{};
  /// Observers of all topics. A Consumer and a PollLoop add them to their own.
  std::vector<std::shared_ptr<Observer>> observers{};
  /// Takes the spans of messages whose trace is recorded. Null: there are none.
  std::shared_ptr<Tracer> tracer{};
  /// Shows a running Consumer to the outside, for `[admin]`. Called at the start of run(); the result is destroyed at
  /// its end. May be empty.
  std::function<std::shared_ptr<void>(const AdminView&)> serve{};
};

/// Kafka and PostgreSQL, as the configuration names them. Link turnstile::turnstile, which contains both adapters.
Backends connect(const Config& config, std::shared_ptr<spdlog::logger> logger = nullptr);

}  // namespace turnstile
