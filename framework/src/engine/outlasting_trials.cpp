#include "engine/outlasting_trials.hpp"

#include <algorithm>

namespace turnstile::detail {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// How long a trial lasts that nobody renews: handler_timeout, within these bounds. The next owners learn of a death
/// that late.
constexpr milliseconds kShortestTrial{1'000}, kLongestTrial{30'000};
/// How soon the end of a handler is seen.
constexpr milliseconds kTrialTick{100};
/// How soon a renewal, or an end, that failed is tried again. A new owner claims twice a second after an outage.
constexpr milliseconds kTrialRetry{200};

}  // namespace

OutlastingTrials::OutlastingTrials(Scheduler& scheduler, std::shared_ptr<ports::Trials> trials,
                                   std::shared_ptr<RecordedTrials> recorded, std::shared_ptr<const RunLog> run_log)
    : scheduler_(scheduler),
      trials_(std::move(trials)),
      recorded_(std::move(recorded)),
      run_log_(std::move(run_log)),
      thread_([this] { return renew(); }),
      retries_(
          [this] { return recorded_->retry() ? PeriodicThread::after(kTrialRetry) : PeriodicThread::kWhenWoken; }) {
  if (recorded_) recorded_->when_kept([this] { retries_.wake(); });
}

OutlastingTrials::~OutlastingTrials() {
  if (recorded_) recorded_->when_kept({});  // workers may outlive the engine
}

milliseconds OutlastingTrials::add(const LanePtr& lane, const Fence& fence) {
  const auto runs_for = std::clamp(lane->topic.runner.plan().handler_timeout, kShortestTrial, kLongestTrial);
  {
    const std::lock_guard lock(mutex_);
    outlasting_.push_back({lane, fence, runs_for});
  }
  thread_.wake();
  return runs_for;
}

PeriodicThread::Time OutlastingTrials::renew() {
  const std::lock_guard releasing(releasing_);
  const auto now = steady_clock::now();
  std::vector<ports::Trials::Release> due;
  const bool any = scheduler_.locked([&] {
    const std::lock_guard lock(mutex_);
    for (Outlasting& one : outlasting_) {
      if (now < one.renew_at && (one.has_ended || one.lane->lane.running() > 0)) continue;
      one.has_ended = one.lane->lane.running() == 0;
      one.renew_at = now + kTrialRetry;
      // Also if it has ended: its end() may have failed, or have met a renewal.
      auto& release = due.emplace_back(ports::Trials::Release{.fence = one.fence, .is_proved = false});
      if (!one.has_ended) release.runs_for = one.runs_for;
    }
    return !outlasting_.empty();
  });
  if (!any) return PeriodicThread::kWhenWoken;
  if (!due.empty() && release(due)) {
    const std::lock_guard lock(mutex_);
    const auto was_due = [&](const Outlasting& one) {
      return std::ranges::any_of(due, [&](const auto& release) { return release.fence == one.fence; });
    };
    // What has ended, but is not due, waits to be tried again.
    std::erase_if(outlasting_, [&](const Outlasting& one) { return one.has_ended && was_due(one); });
    for (Outlasting& one : outlasting_) {
      if (was_due(one)) one.renew_at = now + one.runs_for / 3;
    }
  }
  return PeriodicThread::after(kTrialTick);
}

void OutlastingTrials::end(const std::vector<LanePtr>& lanes) {
  thread_.request_stop();
  const std::lock_guard releasing(releasing_);
  std::vector<ports::Trials::Release> all;
  scheduler_.locked([&] {
    for (const auto& lane : lanes) {
      if (lane->place.guard && lane->lane.running() > 0)
        all.push_back({.fence = *lane->place.guard, .is_proved = false});
    }
    const std::lock_guard lock(mutex_);
    for (const Outlasting& one : outlasting_) all.push_back({.fence = one.fence, .is_proved = false});
    outlasting_.clear();
  });
  if (!all.empty()) release(all);
}

void OutlastingTrials::retry_ends() {
  if (recorded_) recorded_->retry(true);
}

bool OutlastingTrials::release(const std::vector<ports::Trials::Release>& trials) {
  try {
    trials_->release(trials);
    failed_ = false;
  } catch (const std::exception& e) {
    if (!std::exchange(failed_, true))
      run_log_->info(std::string("what the handlers of released partitions run was not recorded, so it may count as if "
                                 "this process had died: ") +
                     e.what());
  }
  return !failed_;
}

}  // namespace turnstile::detail
