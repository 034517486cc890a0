#pragma once
// The messages that a PollLoop runs at the same time. A suspect runs alone: it waits until all others have ended, or
// have not ended in time, and nothing starts while it waits or runs. The scheduler of a Consumer does the same.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>

#include "delivery/run_state.hpp"
#include "engine/overdue.hpp"

namespace turnstile::detail {

/// Thread-safe.
class QuietRoom {
  struct Inside {
    const RunState& watch;
    std::chrono::milliseconds time;
    bool counts = false;  ///< a suspect that began while nothing else ran
    [[nodiscard]] bool is_left_behind() const { return ignores_stop(watch, time, std::chrono::steady_clock::now()); }
  };

 public:
  /// A message that runs, from the constructor to the destructor.
  class Stay {
   public:
    /// Waits until the message may run. `watch`: its run. `time`: its handler_timeout.
    Stay(QuietRoom& room, const RunState& watch, std::chrono::milliseconds time, bool is_suspect) : room_(room) {
      const std::lock_guard queue(room.door_);  // while a suspect waits, no other message begins
      std::unique_lock lock(room.mutex_);
      // Nothing tells that a handler has not ended in time.
      while (!room.may_begin(is_suspect)) room.left_.wait_for(lock, std::chrono::milliseconds(100));
      mine_ = room.all_.insert(room.all_.end(), {watch, time, is_suspect && room.all_.empty()});
      if (is_suspect) room.lone_ = &*mine_;
    }
    ~Stay() {
      {
        const std::lock_guard lock(room_.mutex_);
        if (room_.lone_ == &*mine_) room_.lone_ = nullptr;
        room_.all_.erase(mine_);
      }
      room_.left_.notify_all();
    }
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;
    /// Whether nothing else runs: if the process dies, this message has killed it.
    [[nodiscard]] bool counts() const noexcept { return mine_->counts; }

   private:
    QuietRoom& room_;
    std::list<Inside>::iterator mine_;
  };

 private:
  [[nodiscard]] bool may_begin(bool alone) const {
    if (lone_ != nullptr && (lone_->counts || !lone_->is_left_behind())) return false;
    return !alone || std::all_of(all_.begin(), all_.end(), [](const Inside& one) { return one.is_left_behind(); });
  }

  std::mutex door_;  ///< in the order of arrival
  std::mutex mutex_;
  std::condition_variable left_;  ///< a message has ended
  std::list<Inside> all_;
  const Inside* lone_ = nullptr;  ///< a suspect that runs; may be null
};

}  // namespace turnstile::detail
