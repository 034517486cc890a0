#include "delivery/lease_renewer.hpp"

#include <algorithm>

#include "turnstile/error.hpp"

namespace turnstile::detail {

namespace {

/// A claim is renewed when 1/kRenewals of its lease has passed. If a renewal fails, it is repeated until shortly before
/// the lease ends.
constexpr int kRenewals = 3;
/// The longest wait before the thread looks at the clock again while there are claims.
constexpr std::chrono::milliseconds kLookAtLeases{500};
/// The pause after a failed renewal: lease / kPausesInLease, up to kLongestRenewalPause.
constexpr int kPausesInLease = 20;
constexpr std::chrono::milliseconds kLongestRenewalPause{500};
/// How many owners of failed calls are remembered. Each outage adds one, and some probes do.
constexpr std::size_t kMostAbandoned = 256;

}  // namespace

LeaseRenewer::LeaseRenewer(std::shared_ptr<ports::Claims> claims, std::shared_ptr<const RunLog> run_log)
    : claims_(std::move(claims)), run_log_(std::move(run_log)), pending_(claims_, run_log_) {}

LeaseRenewer::Hold::Hold(LeaseRenewer& renewer, Held held) : renewer_(renewer) {
  const auto due = held.since + held.lease / kRenewals;
  bool sooner = false;
  {
    const std::lock_guard lock(renewer_.mutex_);
    place_ = renewer_.held_.insert(renewer_.held_.end(), std::move(held));
    sooner = due < renewer_.wakes_at_;
  }
  if (sooner) renewer_.thread_.wake();
}

LeaseRenewer::Hold::~Hold() {
  const std::lock_guard lock(renewer_.mutex_);
  if (renewer_.renewing_ == &*place_) renewer_.gone_ = true;
  renewer_.held_.erase(place_);
}

void LeaseRenewer::Hold::let_go(std::span<const ports::ClaimEnd> ends) {
  std::vector<MessageId> ended;
  ended.reserve(ends.size());
  for (const ports::ClaimEnd& end : ends) ended.push_back(end.claim.id);
  std::sort(ended.begin(), ended.end());
  const std::lock_guard lock(renewer_.mutex_);
  std::erase_if(place_->claims, [&](const ports::HeldClaim& claim) {
    return std::binary_search(ended.begin(), ended.end(), claim.id);
  });
}

bool LeaseRenewer::Hold::is_over() const {
  const std::lock_guard lock(renewer_.mutex_);
  return Clock::now() >= end_of(*place_);
}

void LeaseRenewer::abandon(const MessageId& owner) {
  const std::lock_guard lock(mutex_);
  if (abandoned_.size() == kMostAbandoned) abandoned_.erase(abandoned_.begin());
  abandoned_.push_back(owner);
}

std::vector<MessageId> LeaseRenewer::abandoned() const {
  const std::lock_guard lock(mutex_);
  return abandoned_;
}

LeaseRenewer::Clock::time_point LeaseRenewer::next_due() const {
  auto due = Clock::time_point::max();
  for (const Held& held : held_) {
    if (!held.claims.empty()) due = std::min(due, held.since + held.lease / kRenewals);
  }
  return due;
}

PeriodicThread::Time LeaseRenewer::look() {
  std::unique_lock lock(mutex_);
  wakes_at_ = next_due();
  if (wakes_at_ == Clock::time_point::max()) return PeriodicThread::kWhenWoken;
  // The wait does not count the time for which the machine is suspended.
  if (const auto now = Clock::now(); now < wakes_at_)
    return std::chrono::steady_clock::now() + std::min<Clock::duration>(wakes_at_ - now, kLookAtLeases);
  const auto due = std::find_if(held_.begin(), held_.end(), [&](const Held& held) {
    return !held.claims.empty() && held.since + held.lease / kRenewals <= wakes_at_;
  });
  return renew(lock, due);
}

PeriodicThread::Time LeaseRenewer::renew(std::unique_lock<std::mutex>& lock, std::list<Held>::iterator place) {
  const Held asked = *place;
  renewing_ = &*place;
  gone_ = false;
  lock.unlock();
  const auto sent = Clock::now();
  std::vector<bool> still;
  std::string failure;
  try {
    still = claims_->renew(asked.handler, asked.owner, asked.lease, asked.claims);
  } catch (const std::exception& e) {
    failure = e.what();
  }
  lock.lock();
  renewing_ = nullptr;
  if (gone_) return PeriodicThread::kAtOnce;
  if (still.empty()) {
    if (sent < end_of(asked)) {
      wakes_at_ = Clock::time_point::min();
      return PeriodicThread::after(std::min(asked.lease / kPausesInLease, kLongestRenewalPause));
    }
    lose(lock, *place, "its lease ended before PostgreSQL renewed it: " + failure);
    return PeriodicThread::kAtOnce;
  }
  place->since = sent;
  for (std::size_t i = 0; i < still.size(); ++i) {
    const auto same = [&](const ports::HeldClaim& claim) { return claim.id == asked.claims[i].id; };
    if (still[i] || std::none_of(place->claims.begin(), place->claims.end(), same)) continue;
    lose(lock, *place,
         "another process has it, an operator has decided about the message, or the database has lost the claim");
    break;
  }
  return PeriodicThread::kAtOnce;
}

/// Cancels the running handlers of the unit. No further handler of the unit starts.
/// Unlocks: a handler's callbacks may call anything.
void LeaseRenewer::lose(std::unique_lock<std::mutex>& lock, Held& held, const std::string& why) {
  held.claims.clear();
  std::stop_source stop = held.watch->cancel();
  const TopicPartition at = held.at;
  lock.unlock();
  run_log_->error(Code::claim_lost, at,
                  "The claim of a running message was lost, and its handler is asked to stop: " + why);
  stop.request_stop();
}

}  // namespace turnstile::detail
