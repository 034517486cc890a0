#include "delivery/pending_completions.hpp"

#include <algorithm>
#include <string>

#include "delivery/permanent.hpp"

namespace turnstile::detail {

namespace {

/// The pause between two calls during an outage.
constexpr std::chrono::milliseconds kEvery{250};

}  // namespace

PendingCompletions::Wait::Count& PendingCompletions::Wait::of_process() {
  static Count count;
  return count;
}

PendingCompletions::Wait::Wait(PendingCompletions& pending, const std::function<void()>& report) : pending_(pending) {
  Count& count = of_process();
  const std::lock_guard lock(count.mutex);
  ++count.waits;
  report();
}

PendingCompletions::Wait::~Wait() {
  Count& count = of_process();
  const std::lock_guard lock(count.mutex);
  if (--count.waits > 0 || pending_.ending_) return;
  pending_.run_log_->warn(Code::result_pending, "No result of this process waits for PostgreSQL any more");
}

PendingCompletions::PendingCompletions(std::shared_ptr<ports::Claims> claims, std::shared_ptr<const RunLog> run_log)
    : claims_(std::move(claims)), run_log_(std::move(run_log)) {}

PendingCompletions::~PendingCompletions() {
  thread_.stop();
  // The store may have become available since the last call.
  while (!late_.empty() && say(late_.front())) late_.pop_front();
  ending_ = !late_.empty();
  for (const Late& late : late_) {
    run_log_->error(Code::result_not_recorded, late.at,
                    "Shutting down with " + std::to_string(late.ends.size()) +
                        " finished messages not recorded (PostgreSQL unavailable). They stay claimed; one that is "
                        "delivered again after its lease is parked, or runs again if unknown is rerun");
  }
}

void PendingCompletions::add(Late late) {
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = late_.empty();
    late_.push_back(std::move(late));
  }
  if (is_first) thread_.wake();  // later results do not shorten the pause between two calls
}

bool PendingCompletions::any(HandlerId handler, const MessageId& id, bool (*which)(const ports::ClaimEnd&)) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(late_.begin(), late_.end(), [&](const Late& late) {
    return late.handler == handler && std::any_of(late.ends.begin(), late.ends.end(), [&](const ports::ClaimEnd& end) {
             return end.claim.id == id && which(end);
           });
  });
}

PeriodicThread::Time PendingCompletions::try_first() {
  std::unique_lock lock(mutex_);
  if (late_.empty()) return PeriodicThread::kWhenWoken;
  const auto first = late_.begin();
  lock.unlock();
  if (!say(*first)) return PeriodicThread::after(kEvery);
  lock.lock();
  late_.erase(first);
  return PeriodicThread::kAtOnce;
}

/// False: the store did not answer; call it again.
bool PendingCompletions::say(const Late& late) {
  try {
    told(late, claims_->end(late.handler, late.owner, late.ends));
    return true;
  } catch (const std::exception& e) {
    if (!is_permanent(e)) return false;
    if (late.ends.size() == 1) {
      run_log_->error(
          Code::result_not_recorded, late.at,
          std::string("A message finished while PostgreSQL was unavailable, and PostgreSQL now rejects its "
                      "result: ") +
              e.what() + ". If it is delivered again after its lease, it is parked, or runs again if unknown is rerun");
      return true;
    }
  }
  // Records each result by itself, so that a refused result does not affect the others.
  const std::lock_guard lock(mutex_);
  for (const ports::ClaimEnd& end : late.ends) late_.push_back({late.handler, late.owner, late.at, {end}, late.wait});
  return true;
}

void PendingCompletions::told(const Late& late, const std::vector<bool>& held) const {
  const auto ours = std::count(held.begin(), held.end(), true);
  const std::string what = std::to_string(late.ends.size()) + " messages finished while PostgreSQL was unavailable: ";
  if (ours == static_cast<std::ptrdiff_t>(held.size())) {
    run_log_->info(late.at, what + "their results are recorded now");
  } else {
    run_log_->warn(Code::claim_lost, late.at,
                   what + std::to_string(ours) +
                       " results are recorded now; the others were recorded before, or an operator or another process "
                       "has decided about them");
  }
}

}  // namespace turnstile::detail
