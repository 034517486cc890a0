#pragma once
// The circuit breaker of a topic's handler, for the service that it calls: see break_on(). Closed: messages run, and
// calls are counted. Open, when too many of them failed: nothing starts until its time is over. Then half open: one
// message after the other runs as a probe. Some that succeed close it, and one that fails opens it again. The pause
// keeper tells the other processes of the group, and hears from them.

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "turnstile/topic_settings.hpp"

namespace turnstile::detail {

/// Thread-safe; it never calls out.
class HandlerBreaker {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit HandlerBreaker(const BreakPolicy& policy) : policy_(policy) {}

  // --- the scheduler
  /// Whether nothing may start now: it is open, or a probe runs.
  [[nodiscard]] bool waits(Time now) const;
  /// Half open: takes the turn of the probe, until leave(). False: it is not half open.
  bool begin_probe(Time now);
  void leave();
  /// When a probe may start. Absent: it is closed, or a probe runs.
  [[nodiscard]] std::optional<Time> next_probe() const;

  // --- workers
  /// Whether no handler may be called now. False while it is half open: the scheduler starts only probes then.
  [[nodiscard]] bool is_open(Time now) const;
  [[nodiscard]] bool is_closed() const;
  /// A change of the state. `none` also if a failure opens it again.
  enum class Change : std::uint8_t { none, opened, closed };
  /// A handler returned, or failed in a way that says nothing about the service.
  Change succeeded(Time now);
  /// A handler failed because of the service.
  struct Caught {
    bool caught = false;  ///< it is not closed: the failure does not count as an attempt
    Change change = Change::none;
  };
  Caught failed(Time now, const std::string& why);
  /// "12 of 20 calls failed within 10s"
  [[nodiscard]] std::string why() const;

  // --- the pause keeper
  /// What other processes must learn: it is open for `left`, or closed (absent).
  struct News {
    std::optional<std::chrono::milliseconds> left;
    std::string why;
  };
  /// News since the last call. The caller repeats it with again() if it could not tell.
  [[nodiscard]] std::optional<News> take_news(Time now);
  void again();
  /// What the store has: the group's breaker is open for `left`, half open (0), or closed (absent).
  Change hear(std::optional<std::chrono::milliseconds> left, Time now);
  /// Until when it is open. Absent: it is closed.
  [[nodiscard]] std::optional<Time> open_until() const;

 private:
  static constexpr std::size_t kSlots = 10;
  static constexpr int kProbes = 3;  ///< so many in a row close it
  struct Slot {
    std::int64_t number = -1, calls = 0, failures = 0;
  };
  Slot& slot(Time now);
  void open(Time now);
  void close();

  const BreakPolicy policy_;
  mutable std::mutex mutex_;
  std::array<Slot, kSlots> slots_{};  ///< of the sliding window
  bool open_ = false;
  Time until_{};                     ///< open: until then nothing starts
  std::optional<Time> probe_since_;  ///< a probe runs
  int good_ = 0;                     ///< probes that succeeded since it was half open
  bool news_ = false;                ///< others must learn the state
  bool is_stored_ = false;           ///< the store has had it as open
  std::string why_;
};

}  // namespace turnstile::detail
