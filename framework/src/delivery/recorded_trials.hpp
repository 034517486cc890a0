#pragma once
// The trials of a process, with the ends that could not be recorded. Such a trial looks as if its messages still ran
// alone, so the death of the process would count for a message that has ended. The ends are recorded when the store
// answers again.

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "turnstile/ports/trials.hpp"

namespace turnstile::detail {

/// Thread-safe.
class RecordedTrials {
 public:
  explicit RecordedTrials(std::shared_ptr<ports::Trials> trials) : trials_(std::move(trials)) {}

  /// As Trials::begin(). If it is not known whether a trial alone was recorded, its end is kept.
  void begin(const Fence& fence, std::span<const Offset> offsets, bool alone);
  /// As Trials::end(). If it fails, the end is kept.
  void end(const Fence& fence, std::span<const Offset> offsets, std::span<const Offset> settled);
  /// Records the ends that are kept, until the store is unavailable. Does nothing while another thread does it and,
  /// unless `at_once`, for a moment after a failure. Returns whether some are still kept. Does not throw.
  bool retry(bool at_once = false);
  [[nodiscard]] bool keeps_some() const { return count_ > 0; }
  /// `kept` is called each time after an end was kept. Empty: nothing is.
  void when_kept(std::function<void()> kept);

 private:
  struct End {
    Fence fence;
    std::vector<Offset> offsets, settled;
  };
  using Key = std::pair<Fence, Offset>;  ///< with the first offset
  void keep(End end);
  [[nodiscard]] bool keeps(const Key& key) const;
  void forget_unlocked(const Key& key);

  const std::shared_ptr<ports::Trials> trials_;
  std::mutex retrying_;  ///< during retry(), and a begin while an end of the same trial is kept; locked before mutex_
  std::chrono::steady_clock::time_point not_before_{};  ///< of the next retry(); protected by retrying_
  mutable std::mutex mutex_;
  std::set<Key> begun_;  ///< recorded, and not ended
  std::map<Key, End> kept_;
  std::atomic<std::size_t> count_{0};  ///< of kept_
  std::mutex telling_;                 ///< protects when_kept_, during its call too
  std::function<void()> when_kept_;
};

}  // namespace turnstile::detail
