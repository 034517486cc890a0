#pragma once
// Results of leased messages that could not be recorded because the store was unavailable. A background thread records
// them when the store is available again. The thread starts with the first result.

#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "support/periodic_thread.hpp"
#include "support/run_log.hpp"
#include "turnstile/ports/claims.hpp"

namespace turnstile::detail {

/// Thread-safe.
class PendingCompletions {
 public:
  /// A result that the store does not have, as long as this object lives. The log's last line `result_pending` tells
  /// whether the process has one: such a line is written when a call for it fails or has no answer for a second, and
  /// after the last of them has ended.
  class Wait {
   public:
    /// `offset`: of the first message. No line is written yet.
    Wait(PendingCompletions& pending, TopicPartition at, std::string handler, Offset offset);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

    /// Writes such a line.
    void tell(const std::string& text) const;
    [[nodiscard]] bool told() const;

   private:
    friend class PendingCompletions;
    using Clock = std::chrono::steady_clock;
    /// Those of all consumers of the process.
    struct All {
      std::mutex mutex;
      std::list<const Wait*> waits;
    };
    static All& all();
    void tell_unlocked(const std::string& text) const;
    /// Tells of those that have waited for this time, and were not told of. `of`: null for all. Returns whether there
    /// is one. The caller holds All::mutex.
    static bool tell_of_silent(std::chrono::milliseconds time, const PendingCompletions* of);

    PendingCompletions& pending_;
    const TopicPartition at_;
    const std::string handler_;
    const Offset offset_;
    const Clock::time_point since_ = Clock::now();
    mutable bool told_ = false;  ///< guarded by All::mutex, as is the place in All::waits
    std::list<const Wait*>::iterator place_;
  };
  struct Late {
    HandlerId handler;
    MessageId owner;
    TopicPartition at;
    std::vector<ports::ClaimEnd> ends;
    std::shared_ptr<const Wait> wait;
  };

  PendingCompletions(std::shared_ptr<ports::Claims> claims, std::shared_ptr<const RunLog> run_log);
  ~PendingCompletions() { end(); }
  PendingCompletions(const PendingCompletions&) = delete;
  PendingCompletions& operator=(const PendingCompletions&) = delete;

  void add(Late late);
  /// The consumer ends: calls the store once more, and logs the results that are lost. Their messages stay claimed.
  void end();
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
  /// Tells of calls that have no answer. Returns the time of the next look.
  PeriodicThread::Time look_for_silence();
  bool say(const Late& late);
  void told(const Late& late, const std::vector<bool>& held) const;

  const std::shared_ptr<ports::Claims> claims_;
  const std::shared_ptr<const RunLog> run_log_;
  bool ending_ = false;  ///< guarded by Wait::All::mutex
  mutable std::mutex mutex_;
  std::list<Late> late_;  ///< only the thread, and end() after it, remove elements
  PeriodicThread thread_{[this] { return try_first(); }};
  PeriodicThread watch_{[this] { return look_for_silence(); }};
};

}  // namespace turnstile::detail
