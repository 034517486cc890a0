#include "inbox/purger.hpp"

#include <algorithm>

#include "turnstile/error.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// After a step it rests for three times as long as the step took. A server that has become slow is therefore not
/// overloaded.
constexpr int kRestFactor = 3;
constexpr milliseconds kShortestRest{20};
/// The longest rest, even if the next ids are due later: a consumer may declare a shorter duration.
constexpr milliseconds kLongestRest{600'000};

std::string seconds_text(const std::optional<std::chrono::seconds>& time) {
  if (!time) return "ever";
  const auto s = time->count();
  if (s % 86'400 == 0) return std::to_string(s / 86'400) + " d";
  if (s % 3'600 == 0) return std::to_string(s / 3'600) + " h";
  return std::to_string(s) + " s";
}

}  // namespace

Purger::Purger(Settings settings, std::vector<std::shared_ptr<HandlerRetention>> handlers,
               std::shared_ptr<ports::Retention> store, std::shared_ptr<const RunLog> run_log)
    : settings_(std::move(settings)),
      handlers_(std::move(handlers)),
      store_(std::move(store)),
      run_log_(std::move(run_log)),
      random_(std::random_device{}()) {
  for (const auto& handler : handlers_) {
    if (handler->kept_for() == handler->keep_for()) continue;
    run_log_->info("ids of handler " + handler->name() + " are kept for " + seconds_text(handler->kept_for()) +
                   ", as other or earlier consumers have declared; this process needs them for " +
                   seconds_text(handler->keep_for()) +
                   (handler->kept_for() ? "" : ". A declaration of forever ends 8 days after it was last made"));
  }
  const auto now = steady_clock::now();
  next_say_ = now + some(settings_.say_every);
  next_clean_ = settings_.purge ? now + any_up_to(settings_.look_first) : PeriodicThread::kWhenWoken;
  next_expire_ = settings_.producers ? now + some(settings_.expire_every) : PeriodicThread::kWhenWoken;
  thread_.start(std::min({next_say_, next_clean_, next_expire_}));
}

/// A random duration, so that processes that started together do not continue together.
milliseconds Purger::any_up_to(milliseconds most) {
  return milliseconds(std::uniform_int_distribution<milliseconds::rep>(0, most.count())(random_));
}

steady_clock::time_point Purger::step() {
  const auto now = steady_clock::now();
  if (now >= next_say_) {
    say();
    next_say_ = now + some(settings_.say_every);
  }
  if (now >= next_clean_) {
    const milliseconds rest = clean();
    next_clean_ = steady_clock::now() + rest;
  }
  if (now >= next_expire_) {
    expire();
    next_expire_ = now + some(settings_.expire_every);
  }
  return std::min({next_say_, next_clean_, next_expire_});
}

/// Logs a line at the second consecutive failure. The engine reports longer outages of the database.
template <class Work>
bool Purger::attempt(int& failures, Work work) {
  try {
    work();
    failures = 0;
    return true;
  } catch (const StoreBusy&) {
    return false;  // another transaction uses the old rows: next time
  } catch (const std::exception& e) {
    if (++failures == 2) {
      run_log_->warn(Code::ids_not_deleted,
                     std::string("old ids are not deleted until this works again; retrying: ") + e.what());
    }
    return false;
  }
}

/// If Kafka does not answer about a handler's topic, it is not asked about the others now.
void Purger::learn() try {
  for (const auto& handler : handlers_) {
    if (!handler->learn()) continue;
    run_log_->info("the retention of the topic of handler " + handler->name() +
                   " is known now: its ids are needed for " + seconds_text(handler->keep_for()) +
                   ". Until now they were declared to be needed forever. Such a declaration ends 8 days after it was "
                   "last made");
  }
} catch (const std::exception&) {  // the next declaration asks again
}

void Purger::say() {
  attempt(say_failures_, [this] {
    learn();
    for (const auto& handler : handlers_) handler->declare(*store_);
  });
}

void Purger::expire() {
  attempt(expire_failures_, [this] {
    if (const auto expired = settings_.producers->expire(); expired > 0)
      run_log_->info(std::to_string(expired) + " producer sessions have expired: no heartbeat came for their time");
  });
}

milliseconds Purger::clean() {
  ports::PurgeStep step;
  const auto began = steady_clock::now();
  if (!attempt(clean_failures_, [&] { step = store_->purge_step(settings_.most); })) return some(settings_.look_every);
  const auto took = std::chrono::ceil<milliseconds>(steady_clock::now() - began);
  deleted_ += step.deleted;
  if (step.deleted > 0) settings_.observers.tell(&Observer::on_purge, PurgeReport{step.deleted, took});
  if (!step.rivalled && step.wait.count() == 0) return std::max(kShortestRest, kRestFactor * took);
  if (deleted_ > 0) run_log_->info("deleted " + std::to_string(deleted_) + " ids that are no longer needed");
  deleted_ = 0;
  return some(std::clamp(step.wait, settings_.look_every, std::max(settings_.look_every, kLongestRest)));
}

}  // namespace turnstile::detail
