#include "delivery/recorded_trials.hpp"

#include "turnstile/error.hpp"

namespace turnstile::detail {

namespace {

/// A new owner claims twice a second after an outage.
constexpr std::chrono::milliseconds kRetryAgain{200};

}  // namespace

void RecordedTrials::begin(const Fence& fence, std::span<const Offset> offsets, bool alone) {
  const Key key{fence, offsets.front()};
  // A retry of an end that is kept must not end the new trial instead of the earlier one.
  std::unique_lock retrying(retrying_, std::defer_lock);
  if (keeps(key)) retrying.lock();
  try {
    trials_->begin(fence, offsets, alone);
  } catch (const Fenced&) {
    throw;
  } catch (...) {
    if (alone) keep({fence, {offsets.begin(), offsets.end()}, {}});
    throw;
  }
  const std::lock_guard lock(mutex_);
  begun_.insert(key);
  forget_unlocked(key);
}

void RecordedTrials::end(const Fence& fence, std::span<const Offset> offsets, std::span<const Offset> settled) {
  const Key key{fence, offsets.front()};
  try {
    trials_->end(fence, offsets, settled);
  } catch (...) {
    bool may_be_recorded = false;
    {
      const std::lock_guard lock(mutex_);
      may_be_recorded = begun_.erase(key) > 0 || kept_.contains(key);
    }
    // In mode at_least_once, handlers run without a record while the store is unavailable. Those have nothing to end.
    if (may_be_recorded) keep({fence, {offsets.begin(), offsets.end()}, {settled.begin(), settled.end()}});
    throw;
  }
  const std::lock_guard lock(mutex_);
  begun_.erase(key);
  forget_unlocked(key);
}

bool RecordedTrials::retry(bool at_once) {
  if (!keeps_some()) return false;
  // Workers of a PollLoop retry, too, and must not wait for each other.
  const std::unique_lock retrying(retrying_, std::try_to_lock);
  if (!retrying || (!at_once && std::chrono::steady_clock::now() < not_before_)) return keeps_some();
  std::map<Key, End> all;
  {
    const std::lock_guard lock(mutex_);
    all = kept_;
  }
  for (const auto& [key, end] : all) {
    if (!keeps(key)) continue;  // ended meanwhile, and perhaps begun again
    try {
      trials_->end(end.fence, end.offsets, end.settled);
    } catch (const StoreBusy&) {
      not_before_ = std::chrono::steady_clock::now() + kRetryAgain;
      continue;
    } catch (const std::exception&) {
      not_before_ = std::chrono::steady_clock::now() + kRetryAgain;
      break;
    }
    const std::lock_guard lock(mutex_);
    const auto still = kept_.find(key);
    // Its handler may have run again meanwhile, without a record, and then settled it.
    if (still != kept_.end() && still->second.settled == end.settled) forget_unlocked(key);
  }
  return keeps_some();
}

void RecordedTrials::when_kept(std::function<void()> kept) {
  const std::lock_guard lock(telling_);
  when_kept_ = std::move(kept);
}

void RecordedTrials::keep(End end) {
  {
    const std::lock_guard lock(mutex_);
    const Key key{end.fence, end.offsets.front()};
    kept_.insert_or_assign(key, std::move(end));
    count_ = kept_.size();
  }
  const std::lock_guard lock(telling_);
  if (when_kept_) when_kept_();
}

bool RecordedTrials::keeps(const Key& key) const {
  const std::lock_guard lock(mutex_);
  return kept_.contains(key);
}

void RecordedTrials::forget_unlocked(const Key& key) {
  kept_.erase(key);
  count_ = kept_.size();
}

}  // namespace turnstile::detail
