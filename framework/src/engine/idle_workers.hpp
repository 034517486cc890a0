#pragma once
// The workers that have found no unit. They wait for records in place of the polling thread: the first one that is woken
// feeds the scheduler, and runs what has come. A hand-over from the polling thread would take about 50 µs more. While all
// workers are busy, the polling thread waits for records.
// The lock of the scheduler protects all of it.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "engine/lane.hpp"
#include "turnstile/ports/broker.hpp"

namespace turnstile::detail {

class IdleWorkers {
 public:
  /// Without this call, only the polling thread receives records. `feed` takes what has come. It is called
  /// without the lock.
  void receive(std::shared_ptr<ports::Arrivals> arrivals, std::function<void()> feed);
  /// How many wait.
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// Changes with each call of a function that wakes. If it has changed since a worker looked for a unit, the worker
  /// must look again.
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }
  /// A worker may find more than before.
  void wake_one() noexcept;
  void wake_all() noexcept;
  /// Records of a partition were fed. The first go to the worker that feeds, if one does.
  void wake_for_records() noexcept;
  /// The calling worker has found nothing. It waits until it is woken, or until records have come and are fed.
  void wait(std::unique_lock<std::mutex>& lock, SteadyTime until);
  /// The calling worker has found a unit, and `more` tells whether another one may find one, too. False: no worker waits
  /// any more, and the polling thread must be woken to wait for records.
  [[nodiscard]] bool leave(bool more) noexcept;

 private:
  void wake(std::size_t how_many) noexcept;

  std::size_t count_ = 0;
  std::uint64_t changes_ = 0;
  std::condition_variable work_;  ///< without `arrivals_`
  std::shared_ptr<ports::Arrivals> arrivals_;
  std::function<void()> feed_;
  bool one_expects_records_ = false;  ///< a worker feeds what has come, and nothing was fed yet
  bool polling_thread_ = true;        ///< it waits for records, too
};

}  // namespace turnstile::detail
