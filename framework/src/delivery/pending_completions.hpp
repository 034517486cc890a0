#pragma once
// Results of leased messages that could not be recorded because the store was unavailable. A background thread records
// them when the store is available again. The thread starts with the first result.

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "support/periodic_thread.hpp"
#include "support/run_log.hpp"
#include "turnstile/ports/claims.hpp"

namespace turnstile::detail {

/// Thread-safe.
class PendingCompletions {
 public:
  /// As long as it lives, this process has a result that the store does not have. The log's last line `result_pending`
  /// tells whether there is one: after the last of all consumers has ended, that line says so.
  class Wait {
   public:
    Wait(PendingCompletions& pending, const std::function<void()>& report);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    struct Count {
      std::mutex mutex;
      std::size_t waits = 0;
    };
    static Count& of_process();

    PendingCompletions& pending_;
  };
  struct Late {
    HandlerId handler;
    MessageId owner;
    TopicPartition at;
    std::vector<ports::ClaimEnd> ends;
    std::shared_ptr<const Wait> wait;
  };

  PendingCompletions(std::shared_ptr<ports::Claims> claims, std::shared_ptr<const RunLog> run_log);
  /// Calls the store once more. Logs the results that remain; their messages stay claimed.
  ~PendingCompletions();
  PendingCompletions(const PendingCompletions&) = delete;
  PendingCompletions& operator=(const PendingCompletions&) = delete;

  void add(Late late);
  /// Whether a result of this message waits here.
  [[nodiscard]] bool holds(HandlerId handler, const MessageId& id) const {
    return any(handler, id, [](const ports::ClaimEnd&) { return true; });
  }
  /// Whether this message has taken effect. Then it must not run before its result is recorded.
  [[nodiscard]] bool has_done(HandlerId handler, const MessageId& id) const {
    return any(handler, id, [](const ports::ClaimEnd& end) { return end.kind == ports::ClaimEnd::Kind::done; });
  }

 private:
  [[nodiscard]] bool any(HandlerId handler, const MessageId& id, bool (*which)(const ports::ClaimEnd&)) const;
  /// Records the first element. Returns the time of the next call.
  PeriodicThread::Time try_first();
  bool say(const Late& late);
  void told(const Late& late, const std::vector<bool>& held) const;

  const std::shared_ptr<ports::Claims> claims_;
  const std::shared_ptr<const RunLog> run_log_;
  std::atomic<bool> ending_ = false;
  mutable std::mutex mutex_;
  std::list<Late> late_;  ///< only the thread and the destructor remove elements
  PeriodicThread thread_{[this] { return try_first(); }};
};

}  // namespace turnstile::detail
