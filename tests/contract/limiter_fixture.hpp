#pragma once
// The backends for the suites of the port Limiter. A new backend adds a row to limiter_backends(), and needs no tests
// of its own.

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "turnstile/ports/limiter.hpp"

namespace turnstile::test {

/// The common resource of a cluster's processes, for example a database. A Limiters object stands for a process.
class LimiterFixture {
 public:
  virtual ~LimiterFixture() = default;
  virtual std::shared_ptr<ports::Limiters> join() = 0;
  /// A permit that does not arrive within this time was not granted.
  [[nodiscard]] virtual std::chrono::milliseconds settles_in() const = 0;

  // --- for limits over all processes ---
  [[nodiscard]] virtual std::chrono::milliseconds lease() const { return {}; }
  /// A process that can be disconnected: from then on nothing reaches it and nothing leaves it, as if its host had
  /// vanished, until it is reconnected.
  virtual std::shared_ptr<ports::Limiters> join_by_a_cable() { return nullptr; }
  virtual void cut(bool /*off*/) {}
  /// Sets the limit as an operator does.
  virtual void set_limit(const std::string& /*name*/, std::int64_t /*limit*/) {}
};

struct LimiterBackend {
  const char* name;
  bool cluster_wide;
  /// Why it cannot run here. Absent: it can.
  std::optional<std::string> (*missing)();
  std::unique_ptr<LimiterFixture> (*make)();
};
inline void PrintTo(const LimiterBackend& backend, std::ostream* out) { *out << backend.name; }

std::span<const LimiterBackend> limiter_backends();

/// Waits for a permit in line, as a program would. Empty if there was none within `patience`.
Permit acquire(const std::shared_ptr<ports::Limiter>& limiter,
               std::chrono::milliseconds patience = std::chrono::seconds(20));

/// Counts calls, and lets a test wait for them.
class Calls {
 public:
  std::function<void()> counter();
  bool wait_for(int least, std::chrono::milliseconds patience = std::chrono::seconds(20));
  int count();

 private:
  struct State;
  std::shared_ptr<State> state_ = make();  ///< shared, because the limiter may call after the test has continued
  static std::shared_ptr<State> make();
};

}  // namespace turnstile::test
