#include "engine/pause_keeper.hpp"

#include <algorithm>
#include <utility>

#include "turnstile/error.hpp"
#include "turnstile/shell.hpp"
#include "turnstile/text.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAgainSoon{100};

std::string how_to_resume(const ports::PausedPart& part) {
  if (part.key) return "turnstile topics list shows the key, and turnstile topics resume ends the pause";
  return "turnstile topics resume " + text::shell_word(part.topic).value_or("TOPIC") +
         (part.partition ? " --partition " + std::to_string(*part.partition) : "") + " ends the pause";
}

std::string text_of(const ports::Pause& pause) {
  return name_of(pause.part) + " is paused by " + pause.by + " since " + text::utc(pause.since) +
         (pause.until ? " until " + text::utc(*pause.until) : "") + (pause.why.empty() ? "" : " (" + pause.why + ")") +
         ": no handler starts for its messages, and they wait; " + how_to_resume(pause.part);
}

}  // namespace

PauseKeeper::PauseKeeper(Settings settings, Scheduler& scheduler, const std::shared_ptr<ports::Store>& store,
                         std::shared_ptr<const RunLog> run_log)
    : settings_(std::move(settings)),
      scheduler_(scheduler),
      pauses_(store->pauses()),
      run_log_(std::move(run_log)),
      thread_([this] { return look(); }) {
  thread_.start(look());
}

PeriodicThread::Time PauseKeeper::look() {
  const bool was_unknown = unknown_;
  if (auto answer = ask()) {
    if (std::exchange(fails_, false)) run_log_->info("PostgreSQL tells again what is paused");
    unknown_ = false;
    tell(std::move(*answer));
  } else {
    std::vector<Known> left = known_;
    std::erase_if(left, [](const Known& one) { return one.ends_at && *one.ends_at <= steady_clock::now(); });
    tell(std::move(left));
  }
  if (has_no_tables_) return PeriodicThread::kWhenWoken;
  // A lost connection is often no outage, and messages wait meanwhile.
  auto next = PeriodicThread::after(unknown_ && !was_unknown ? kAgainSoon : settings_.every);
  for (const Known& one : known_) {
    if (one.ends_at) next = std::min(next, *one.ends_at);
  }
  return next;
}

/// Absent if the store does not tell.
std::optional<std::vector<PauseKeeper::Known>> PauseKeeper::ask() {
  // A pause may have begun since the last answer, so the next message must not start before it is known.
  const auto wait = [this](const std::string& why) {
    unknown_ = true;
    // The scheduler has reported the outage, if it knows of it.
    if (scheduler_.store_available()) fail(why);
  };
  try {
    std::vector<Known> answer;
    tell_others();
    std::vector<ports::Pause> all = pauses_->active();
    hear(all);
    for (ports::Pause& pause : all) {
      const auto& topics = settings_.topics;
      if (!pause.part.breaker_of.empty()) continue;
      if (std::find(topics.begin(), topics.end(), pause.part.topic) == topics.end()) continue;
      const auto ends_at =
          pause.left ? std::optional<SteadyTime>(PeriodicThread::after(*pause.left)) : std::optional<SteadyTime>();
      answer.push_back({std::move(pause), ends_at});
    }
    return answer;
  } catch (const StoreUnavailable& e) {
    wait(e.what());
  } catch (const StoreBusy& e) {  // as while another session locks the table
    wait(e.what());
  } catch (const std::exception& e) {
    // Perhaps a right is missing. Messages that need the store need other rights too, so they do not wait for this one.
    unknown_ = false;
    has_no_tables_ = !settings_.needs_store && dynamic_cast<const SchemaError*>(&e) != nullptr;
    if (has_no_tables_) run_log_->info("no topic needs PostgreSQL, and it has no table `pause`: nothing can be paused");
    else fail(e.what());
  }
  return std::nullopt;
}

void PauseKeeper::tell_others() {
  for (const auto& [topic, breaker] : settings_.breakers) {
    const auto news = breaker->take_news(steady_clock::now());
    if (!news) continue;
    const ports::PausedPart part{topic, {}, {}, settings_.group};
    try {
      if (news->left) pauses_->begin({.part = part, .by = run_log_->member(), .why = news->why, .left = news->left});
      else pauses_->end(part);
    } catch (...) {
      breaker->again();
      throw;
    }
  }
}

void PauseKeeper::hear(const std::vector<ports::Pause>& all) {
  for (const auto& [topic, breaker] : settings_.breakers) {
    const ports::PausedPart part{topic, {}, {}, settings_.group};
    const auto stored = std::find_if(all.begin(), all.end(), [&](const ports::Pause& p) { return p.part == part; });
    const bool is_open = stored != all.end();
    switch (breaker->hear(is_open ? stored->left : std::nullopt, steady_clock::now())) {
      case HandlerBreaker::Change::none: continue;
      case HandlerBreaker::Change::opened:
        run_log_->warn(Code::breaker_open, "the circuit breaker of topic " + topic + " is open, because " + stored->by +
                                               " has opened it (" + stored->why +
                                               "): no handler of it starts until probes succeed");
        break;
      case HandlerBreaker::Change::closed:
        run_log_->info("the circuit breaker of topic " + topic +
                       " was closed by another process or an operator: its handlers start again");
        break;
    }
    breaks_ = true;
  }
}

void PauseKeeper::fail(const std::string& why) {
  if (std::exchange(fails_, true)) return;
  run_log_->warn(
      Code::pauses_unknown,
      "PostgreSQL does not tell what is paused, so this process does not see new pauses, nor that an operator "
      "ends one: " +
          why + ". Known pauses stay in effect" +
          (unknown_ ? ", and messages that need PostgreSQL wait until it answers" : "") +
          "; it asks again every second");
}

void PauseKeeper::tell(std::vector<Known> now_known) {
  const auto is_in = [](const Known& one, const std::vector<Known>& all) {
    return std::any_of(all.begin(), all.end(), [&](const Known& other) { return other.pause.part == one.pause.part; });
  };
  for (const Known& one : now_known) {
    if (!is_in(one, known_)) run_log_->warn(Code::topic_paused, text_of(one.pause));
  }
  for (const Known& one : known_) {
    if (!is_in(one, now_known))
      run_log_->info(name_of(one.pause.part) + " is no longer paused: its handlers start again");
  }
  known_ = std::move(now_known);
  Pauses pauses{.all = {}, .unknown = unknown_};
  for (const Known& one : known_) pauses.all.push_back(one.pause);
  scheduler_.set_pauses(std::move(pauses), std::exchange(breaks_, false));
}

}  // namespace turnstile::detail
