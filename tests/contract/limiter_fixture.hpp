#pragma once
// Where the suites of the Limiter port run. A backend adds a row to limiter_backends() and writes no tests.

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "turnstile/ports/limiter.hpp"

namespace turnstile::test {

/// What the processes of one cluster share: a database, say. A Limiters object stands for a process.
class LimiterFixture {
 public:
  virtual ~LimiterFixture() = default;
  virtual std::shared_ptr<Limiters> join() = 0;
  /// What is not there after this time was not granted.
  [[nodiscard]] virtual std::chrono::milliseconds settles_in() const = 0;

  // --- where the limit holds over all that join ---
  [[nodiscard]] virtual std::chrono::milliseconds lease() const { return {}; }
  /// A process that can be cut off: from then on nothing reaches it and nothing leaves it, without a word, as if its host had
  /// vanished, until it is mended.
  virtual std::shared_ptr<Limiters> join_by_a_cable() { return nullptr; }
  virtual void cut(bool /*off*/) {}
  /// As an operator does.
  virtual void set_limit(const std::string& /*name*/, std::int64_t /*limit*/) {}
};

struct LimiterBackend {
  const char* name;
  bool cluster_wide;
  /// Why it cannot run here; nothing when it can.
  std::optional<std::string> (*missing)();
  std::unique_ptr<LimiterFixture> (*make)();
};
inline void PrintTo(const LimiterBackend& backend, std::ostream* out) { *out << backend.name; }

std::span<const LimiterBackend> limiter_backends();

/// Waits for it in line, as a program would; empty when none came within `patience`.
Permit acquire(const std::shared_ptr<Limiter>& limiter, std::chrono::milliseconds patience = std::chrono::seconds(20));

/// Counts calls, and lets a test wait for them.
class Calls {
 public:
  std::function<void()> counter();
  bool wait_for(int least, std::chrono::milliseconds patience = std::chrono::seconds(20));
  int count();

 private:
  struct State;
  std::shared_ptr<State> state_ = make();  ///< shared: the limiter may call after the test has gone on
  static std::shared_ptr<State> make();
};

}  // namespace turnstile::test
