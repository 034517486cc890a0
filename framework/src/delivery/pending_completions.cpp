#include "delivery/pending_completions.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "delivery/permanent.hpp"

namespace turnstile::detail {

namespace {

/// The pause between two calls during an outage.
constexpr std::chrono::milliseconds kEvery{250};
/// After this time without an answer a result waits, and how often the watch looks for such results.
constexpr std::chrono::milliseconds kSilence{1'000}, kLook{500};
/// A call that has taken longer is mentioned before the log says that no result waits.
constexpr std::chrono::milliseconds kMoment{100};
constexpr const char* kNoAnswer =
    "Handler finished, and PostgreSQL has not taken its result yet; waiting for its answer";

}  // namespace

PendingCompletions::Wait::All& PendingCompletions::Wait::all() {
  static All& all = *new All;  // never destroyed: workers that were left behind may use it while the process ends
  return all;
}

PendingCompletions::Wait::Wait(PendingCompletions& pending, TopicPartition at, std::string handler, Offset offset)
    : pending_(pending), at_(std::move(at)), handler_(std::move(handler)), offset_(offset) {
  pending_.watch_.start();
  const std::lock_guard lock(all().mutex);
  place_ = all().waits.insert(all().waits.end(), this);
}

PendingCompletions::Wait::~Wait() {
  const std::lock_guard lock(all().mutex);
  all().waits.erase(place_);
  if (!told_ || pending_.ending_) return;
  const auto& waits = all().waits;
  if (std::any_of(waits.begin(), waits.end(), [](const Wait* wait) { return wait->told_; })) return;
  // The next line would say that none waits. So it must not hide one that has waited for a moment.
  if (!tell_of_silent(kMoment, nullptr))
    pending_.run_log_->warn(Code::result_pending, "No result of this process waits for PostgreSQL any more");
}

bool PendingCompletions::Wait::tell_of_silent(std::chrono::milliseconds time, const PendingCompletions* of) {
  const auto since = Clock::now() - time;
  bool any = false;
  for (const Wait* const wait : all().waits) {
    if ((of != nullptr && of != &wait->pending_) || wait->told_ || wait->since_ > since) continue;
    wait->tell_unlocked(kNoAnswer);
    any = true;
  }
  return any;
}

void PendingCompletions::Wait::tell(const std::string& text) const {
  const std::lock_guard lock(all().mutex);
  tell_unlocked(text);
}

bool PendingCompletions::Wait::told() const {
  const std::lock_guard lock(all().mutex);
  return told_;
}

void PendingCompletions::Wait::tell_unlocked(const std::string& text) const {
  told_ = true;
  pending_.run_log_->warn(Code::result_pending, at_, handler_, offset_, text);
}

PeriodicThread::Time PendingCompletions::look_for_silence() {
  const std::lock_guard lock(Wait::all().mutex);
  Wait::tell_of_silent(kSilence, this);
  return PeriodicThread::after(kLook);
}

PendingCompletions::PendingCompletions(std::shared_ptr<ports::Claims> claims, std::shared_ptr<const RunLog> run_log)
    : claims_(std::move(claims)), run_log_(std::move(run_log)) {}

void PendingCompletions::end() {
  watch_.stop();
  thread_.stop();
  // The store may have become available since the last call.
  while (try_first() == PeriodicThread::kAtOnce) continue;
  const std::lock_guard lock(Wait::all().mutex);
  if (std::exchange(ending_, true)) return;
  for (const Wait* const wait : Wait::all().waits) {
    if (&wait->pending_ != this) continue;
    run_log_->error(
        Code::result_not_recorded, wait->at_, wait->handler_, wait->offset_,
        "The process ends before PostgreSQL has taken the results of messages that finished, from this "
        "offset on. They stay claimed; one that is delivered again after its lease is parked, or runs again "
        "if unknown is rerun");
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
