// What is said of each message once its transaction has ended.

#include <fmt/chrono.h>

#include <algorithm>

#include "delivery/backoff.hpp"
#include "delivery/unit_run.hpp"
#include "turnstile/error.hpp"

namespace turnstile {

namespace {

/// A rival's transaction is short; what collided with it comes again after this, with jitter (hazard: blocked-insert, insert-order).
constexpr std::chrono::milliseconds kBusyDelay{20};
/// From so many times in a row on, a database that is busy, or ends the connection, when the handler's statements run counts as a failure
/// of the message: of a handler that locks against itself, or crashes the server's process, no waiting makes an end. In an outage begin()
/// fails, which is not counted.
constexpr int kMostBusy = 10;
/// Up to it kBusyDelay doubles with each time: locks that are held for seconds do not make a dead letter.
constexpr std::chrono::milliseconds kMostBusyDelay{2'000};
/// A handler that cannot do without the store, in a topic that goes on without it, is tried again so often.
constexpr std::chrono::milliseconds kWithoutStoreDelay{500};
/// Between two tries to put a message into a dead letter topic that refuses it.
constexpr std::chrono::milliseconds kRefusedDelay{2'000};
/// A partition that has stopped for dead letters goes on when another message went well, which in its own order none does.
constexpr std::chrono::milliseconds kStoppedDelay{30'000};

std::string text_of(DeadLetters::Buried buried, const TopicPlan& plan) {
  switch (buried) {
    case DeadLetters::Buried::sent: return "dead letter to '" + plan.dead_letter.value_or("") + "'";
    case DeadLetters::Buried::parked: return "parked";
    case DeadLetters::Buried::went_round:
      return "parked, and not sent to '" + plan.dead_letter.value_or("") +
             "': it has been a dead letter 16 times (header turnstile-deaths). Do dead letter topics lead in a circle, "
             "or is it replayed again and again?";
    case DeadLetters::Buried::before: return "has died again: it was buried before, and is not sent a second time";
  }
  return {};
}

}  // namespace

void UnitRun::committed(const Range& range) {
  for (std::size_t k = 0; k < range.size(); ++k) {
    const std::size_t at = range[k];
    runner_.forget_busy(place_, message(at).offset());
    switch (admissions_[k]) {
      case Admission::fresh:
        result_.verdicts[at].kind = Verdict::Kind::settled;
        ++(skipped_[k] ? result_.counts.skipped : result_.counts.done);
        break;
      case Admission::mismatch:
        bury(at, {DeadReason::mismatch, "the id was seen before with another payload", 0});
        break;
      case Admission::duplicate: settle_duplicate(at); break;
      case Admission::outside:
      case Admission::no_session: break;  // refused, so that their transaction was rolled back
    }
  }
}

bool UnitRun::is_killer(std::size_t at) const {
  return place_.suspicion && place_.suspicion->deaths(message(at).offset()) >= plan_.retry.attempts;
}

/// Where no row is kept, `turnstile dlq replay` has nothing to take.
std::string UnitRun::how_to_publish_again() const {
  if (runner_.services_.dead_letters->keeps_rows(place_)) return "publish it again: turnstile dlq replay";
  const std::string to = " to '" + plan_.topic + "' again";
  return plan_.dead_letter ? "publish its record in the topic '" + *plan_.dead_letter + "'" + to : "publish it" + to;
}

Death UnitRun::death_of_killer(std::size_t at) const {
  const int deaths = place_.suspicion->deaths(message(at).offset());
  return {
      DeadReason::killed_process,
      std::to_string(deaths) +
          " processes died while they ran only this message. Find out of what (their logs, core dumps, the kernel's log of "
          "processes killed for lack of memory), mend the handler, then " +
          how_to_publish_again(),
      deaths};
}

Death UnitRun::death_of_age(std::size_t at) const {
  const auto text = [](Timestamp time) {
    return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
  };
  return {DeadReason::too_old,
          "it is from " + text(message(at).timestamp()) + ", and ids are all remembered since " +
              text(runner_.services_.retention->all_since()) +
              ": whether it has taken effect is not known. If it has not, " + how_to_publish_again() +
              "; if old times are no sign of old deliveries, set too_old = \"run\"",
          0};
}

Death UnitRun::death_of_session(std::size_t at) const {
  return {
      DeadReason::no_session,
      "its producer session " + requests_[at].request.producer.text() +
          " is not known, or had expired when it was sent, so that nobody can tell whether it was sent before. If it has not taken "
          "effect, " +
          how_to_publish_again(),
      0};
}

Death UnitRun::death_of_forgery(std::size_t at) const {
  return {DeadReason::forged,
          "its header request-proof was not made with the secret of producer session " +
              requests_[at].request.producer.text() + " for this topic: somebody else has numbered it",
          0};
}

Death UnitRun::death_of_window(std::size_t at) const {
  return {
      DeadReason::outside_window,
      "its number " + std::to_string(requests_[at].request.number) +
          " is outside the window of its producer's last numbers: too far behind them, or further ahead than any producer counts. "
          "Whether it took effect is not known. If it has not, " +
          how_to_publish_again() + "; if this happens often, raise request_window (" +
          std::to_string(plan_.request_window) + ")",
      0};
}

void UnitRun::settle_duplicate(std::size_t at) {
  if (plan_.duplicates == DuplicatePolicy::raise) {
    if (!runner_.services_.caller_raises) {
      bury(at, {DeadReason::duplicate, "the id was seen before, and this topic raises duplicates", 0});
      return;
    }
    result_.raises = true;
  }
  result_.verdicts[at].kind = Verdict::Kind::settled;
  ++result_.counts.duplicates;
}

void UnitRun::failed_alone(std::size_t at, const Attempt& attempt) {
  const Work& work = works_[at];
  runner_.forget_busy(place_, message(at).offset());
  if (attempt.death) return bury(at, *attempt.death);
  const std::string why = attempt.why.empty() ? "the handler gave no reason" : attempt.why;
  if (attempt.outcome && attempt.outcome->kind() == Outcome::Kind::dead_letter) {
    bury(at, {DeadReason::rejected, why, work.attempt});
    return;
  }
  if (work.attempt >= plan_.retry.attempts && plan_.dead_letter) {
    bury(at, {DeadReason::failed, why, work.attempt});
    return;
  }
  const bool asked = attempt.outcome && attempt.outcome->kind() == Outcome::Kind::retry_after;
  retry(at, asked ? attempt.outcome->delay() : backoff(plan_.retry, work.attempt, chance()), work.attempt + 1, why);
}

void UnitRun::retry(std::size_t at, std::chrono::milliseconds delay, int attempt, const std::string& why) {
  result_.verdicts[at] = {Verdict::Kind::retry, delay, attempt};
  ++result_.counts.retried;
  hold(at);
  const auto& services = runner_.services_;
  const std::string text =
      "attempt " + std::to_string(attempt - 1) + " failed, again in " + std::to_string(delay.count()) + " ms: " + why;
  services.run_log->warn(place_.at, plan_.handler, message(at).offset(), text);
  services.observers.tell(&Observer::on_retry, MessageReport{plan_.topic, place_.at.partition, message(at).offset(),
                                                             plan_.handler, attempt - 1, why, delay});
}

void UnitRun::bury(std::size_t at, const Death& death) {
  const auto& services = runner_.services_;
  const Offset offset = message(at).offset();
  const std::string reason(to_text(death.reason));
  if (stops_for(at, death)) return;
  std::string refused;
  try {
    if (services.dead_letters->possible(plan_, place_)) {
      const auto buried = services.dead_letters->bury(message(at), ids_.empty() ? std::nullopt : ids_[at], place_,
                                                      plan_, runner_.handler_, death);
      runner_.drop_pending(place_, offset);
      result_.verdicts[at].kind = Verdict::Kind::settled;
      ++result_.counts.dead;
      services.run_log->warn(place_.at, plan_.handler, offset,
                             text_of(buried, plan_) + " (" + reason + " after " + std::to_string(death.attempts) +
                                 " attempts): " + death.error);
      services.observers.tell(
          &Observer::on_dead_letter,
          MessageReport{plan_.topic, place_.at.partition, offset, plan_.handler, death.attempts, death.error, {}});
      return;
    }
    refused = "there is no place for it; give the topic a dead_letter";
  } catch (const Fenced& e) {  // its next owner runs it
    runner_.streaks_.take_back(place_, death.reason);
    result_.end = UnitResult::End::fenced;
    result_.why = e.what();
    return hold(at);
  } catch (const StoreUnavailable& e) {
    result_.row_waits = true;
    refused = e.what();
  } catch (const std::exception& e) {
    refused = e.what();
  }
  runner_.streaks_.take_back(place_, death.reason);
  const bool first = !runner_.pending_death(place_, offset);
  wait_to_bury(at, death, refused, kRefusedDelay);
  if (first) {
    services.run_log->error(place_.at, plan_.handler, offset,
                            "stopped: the message is dead (" + reason + ": " + death.error +
                                ") and its dead letter was refused: " + refused + "; going on as soon as it is taken");
  }
}

/// Nothing may pass it, and nothing is lost.
void UnitRun::wait_to_bury(std::size_t at, const Death& death, const std::string& why,
                           std::chrono::milliseconds delay) {
  runner_.keep_pending(place_, message(at).offset(), death, why);
  result_.verdicts[at] = {Verdict::Kind::retry, delay, works_[at].attempt};
  hold(at);
  result_.refused = true;
  result_.why = why;
}

/// The messages before it died of the same.
bool UnitRun::stops_for(std::size_t at, const Death& death) {
  note_what_went_well();
  const auto count = runner_.streaks_.count(place_, death.reason);
  if (!count) return false;
  const std::string why =
      std::to_string(*count) + " messages in a row became dead letters for the same reason, " +
      std::string(to_text(death.reason)) +
      ", and nothing went well between them (stop_after_dead = " + std::to_string(plan_.stop_after_dead) + "). " +
      remedy_for(death.reason, plan_, runner_.services_.dead_letters->keeps_rows(place_)) +
      ". Then restart the consumer";
  wait_to_bury(at, death, why, kStoppedDelay);
  result_.stopped = true;
  if (runner_.streaks_.tell_of(place_)) {
    runner_.services_.run_log->error(place_.at, plan_.handler, message(at).offset(),
                                     "partition stopped: " + why + ". The last one: " + death.error);
  }
  return true;
}

/// Ends the partition's row of dead letters when a message took effect since this was last called.
void UnitRun::note_what_went_well() {
  const std::int64_t well = result_.counts.done + result_.counts.skipped + result_.counts.duplicates;
  if (well > went_well_) runner_.streaks_.went_well(place_);
  went_well_ = well;
}

/// It died under an earlier owner, whose offset was not committed.
void UnitRun::leave_dead(std::size_t at) {
  result_.verdicts[at].kind = Verdict::Kind::settled;
  ++result_.counts.dead;
  runner_.services_.run_log->info(place_.at, plan_.handler, message(at).offset(),
                                  "is a dead letter already: not run (turnstile dlq replay runs it)");
}

UnitRun::Attempt UnitRun::busy(const Range& range, Attempt attempt) {
  const bool is_known = attempt.culprit && *attempt.culprit < range.size();
  for (const std::size_t at : is_known ? Range{range[*attempt.culprit]} : range)
    busy_tries_ = std::max(busy_tries_, runner_.count_busy(place_, message(at).offset()));
  if (busy_tries_ < kMostBusy) {
    // Where the store answers, it is no outage: nothing but this message waits.
    if (attempt.end == Attempt::End::away && store_answers()) {
      runner_.services_.run_log->warn(
          place_.at, plan_.handler, message(range.front()).offset(),
          "the connection to the database was lost while statements of the handler ran; the "
          "database answers, and they run again: " +
              attempt.why);
      attempt.end = Attempt::End::busy;
    }
    return attempt;
  }
  return {
      .end = Attempt::End::failed,
      .culprit = attempt.culprit,
      .why =
          "the database was busy (a lock that was not free in time, a deadlock or a serialization failure, see the SQLSTATE), or "
          "ended the connection, " +
          std::to_string(busy_tries_) +
          " times in a row while the handler's statements ran, which counts as one attempt: " + attempt.why};
}

bool UnitRun::store_answers() const {
  try {
    static_cast<void>(runner_.services_.store->history());
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

/// Not a failure of the messages: no attempt is counted.
void UnitRun::again_soon(const Range& range, const std::string& why, int tries) {
  runner_.services_.run_log->debug(place_.at, plan_.handler, message(range.front()).offset(),
                                   "busy, again soon: " + why);
  const auto most = std::min(kBusyDelay * (1 << std::clamp(tries - 1, 0, kMostBusy)), kMostBusyDelay);
  for (const std::size_t at : range) {
    const auto delay = std::chrono::milliseconds(1 + static_cast<int>(chance() * static_cast<double>(most.count())));
    result_.verdicts[at] = {Verdict::Kind::retry, delay, works_[at].attempt};
    hold(at);
  }
}

/// Unclaimed, and their handler needs the store after all. No attempt is counted.
void UnitRun::wait_for_store(const Range& range) {
  for (const std::size_t at : range) {
    result_.verdicts[at] = {Verdict::Kind::retry, kWithoutStoreDelay, works_[at].attempt};
    hold(at);
  }
}

bool UnitRun::held(std::size_t at) const {
  if (plan_.order == Order::none) return false;
  return std::any_of(holding_.begin(), holding_.end(), [&](std::size_t holder) {
    if (holder >= at) return false;
    return plan_.order == Order::partition || (message(at).key() && message(at).key() == message(holder).key());
  });
}

double UnitRun::chance() {
  thread_local std::minstd_rand generator{std::random_device{}()};
  return std::uniform_real_distribution<double>(0.0, 1.0)(generator);
}

}  // namespace turnstile
