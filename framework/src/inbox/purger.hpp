#pragma once
// Declares at intervals how long this process needs the ids of its handlers, and takes part in deleting ids that no
// process needs. It has a thread of its own, so that a slow step delays nothing else. Which ids are old enough is
// decided by the database: migrations/0004_retention.up.sql.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "inbox/handler_retention.hpp"
#include "support/observers.hpp"
#include "support/periodic_thread.hpp"
#include "support/run_log.hpp"
#include "turnstile/ports/producers.hpp"
#include "turnstile/ports/retention.hpp"

namespace turnstile::detail {

class Purger {
 public:
  struct Settings {
    bool purge = true;                             ///< false: only declares durations; other processes delete
    std::int64_t most = 1'000;                     ///< in one transaction: a few milliseconds of the server's time
    std::chrono::milliseconds say_every{600'000};  ///< the store keeps a declaration for at least an hour
    /// The longest delay of the first step, so that a process that runs only for a minute also takes part.
    std::chrono::milliseconds look_first{5'000};
    std::chrono::milliseconds look_every{60'000};   ///< how often to check for due ids if there were none
    std::shared_ptr<ports::Producers> producers{};  ///< producers with sessions that may expire; null: none
    Observers observers{};
    std::chrono::milliseconds expire_every{10'000};  ///< as in "Patterns of Distributed Systems" (Idempotent Receiver)
  };
  Purger(Settings settings, std::vector<std::shared_ptr<HandlerRetention>> handlers,
         std::shared_ptr<ports::Retention> store, std::shared_ptr<const RunLog> run_log);
  /// Waits for the current step.
  ~Purger() = default;
  Purger(const Purger&) = delete;
  Purger& operator=(const Purger&) = delete;

 private:
  /// Runs the work that is due. Returns the time at which more work is due.
  std::chrono::steady_clock::time_point step();
  void learn();
  void say();
  void expire();
  /// Deletes old ids. Returns how long to rest.
  std::chrono::milliseconds clean();
  std::chrono::milliseconds any_up_to(std::chrono::milliseconds most);
  std::chrono::milliseconds some(std::chrono::milliseconds about) { return about - any_up_to(about / 2); }
  template <class Work>
  bool attempt(int& failures, Work work);

  const Settings settings_;
  const std::vector<std::shared_ptr<HandlerRetention>> handlers_;
  const std::shared_ptr<ports::Retention> store_;
  const std::shared_ptr<const RunLog> run_log_;
  // Used only by the thread:
  std::minstd_rand random_;
  std::chrono::steady_clock::time_point next_say_, next_clean_, next_expire_;
  int say_failures_ = 0, clean_failures_ = 0, expire_failures_ = 0;  ///< in a row
  std::int64_t deleted_ = 0;                                         ///< since the last report
  PeriodicThread thread_{[this] { return step(); }};
};

}  // namespace turnstile::detail
