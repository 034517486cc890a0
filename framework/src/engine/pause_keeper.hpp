#pragma once
// Asks the store once a second what is paused, and tells the scheduler. While the store is unavailable, the last known
// pauses stay in effect, and end when they should. It also tells the other processes of the group when the circuit breaker
// of a handler opens or closes, and tells it what they report.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/scheduler.hpp"
#include "support/periodic_thread.hpp"
#include "turnstile/ports/store.hpp"

namespace turnstile::detail {

class PauseKeeper {
 public:
  struct Settings {
    std::vector<std::string> topics{};  ///< of this consumer
    /// False: no topic needs the store, so it may have no tables. Then nothing is ever paused.
    bool needs_store = true;
    std::chrono::milliseconds every{1'000};
    std::string group{};
    std::vector<std::pair<std::string, HandlerBreaker*>> breakers{};  ///< by topic
  };
  /// Asks for the first time before it returns, so that nothing starts that is paused.
  PauseKeeper(Settings settings, Scheduler& scheduler, const std::shared_ptr<ports::Store>& store,
              std::shared_ptr<const RunLog> run_log);
  PauseKeeper(const PauseKeeper&) = delete;
  PauseKeeper& operator=(const PauseKeeper&) = delete;

  void request_stop() { thread_.request_stop(); }
  /// Waits for the store's answer.
  void stop() { thread_.stop(); }

 private:
  /// When it ends by itself, by this process's clock.
  struct Known {
    ports::Pause pause;
    std::optional<SteadyTime> ends_at;
  };
  PeriodicThread::Time look();
  [[nodiscard]] std::optional<std::vector<Known>> ask();
  void tell(std::vector<Known> now_known);
  void fail(const std::string& why);
  void tell_others();
  void hear(const std::vector<ports::Pause>& all);

  const Settings settings_;
  Scheduler& scheduler_;
  const std::shared_ptr<ports::Pauses> pauses_;
  std::shared_ptr<const RunLog> run_log_;
  std::vector<Known> known_;
  bool unknown_ = false;  ///< see Pauses::unknown
  bool fails_ = false;    ///< it did not answer the last question
  bool has_no_tables_ = false;
  bool breaks_ = false;  ///< a circuit breaker has changed since the scheduler was told
  PeriodicThread thread_;
};

}  // namespace turnstile::detail
