#include "delivery/unit_run.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "message/replay.hpp"
#include "support/failpoint.hpp"
#include "turnstile/error.hpp"

namespace turnstile {

namespace {

/// How often a range is split because of messages that are known to have failed, before each of it runs by itself.
constexpr int kMostSplits = 2;

bool is_lost(Standing standing) { return standing == Standing::lost || standing == Standing::lost_unseen; }

}  // namespace

UnitRun::UnitRun(TopicRunner& runner, std::span<const Work> works, const Place& place, InboxSession* session,
                 RunState& watch)
    : runner_(runner),
      plan_(runner.plan_),
      works_(works),
      place_(place),
      session_(session),
      watch_(watch),
      started_(std::chrono::steady_clock::now()) {
  result_.verdicts.resize(works.size());
  result_.counts.topic = plan_.topic;
  result_.counts.partition = place.at.partition;
  result_.counts.handler = plan_.handler;
}

UnitResult UnitRun::finish() {
  note_what_went_well();
  if (unclaimed_) result_.counts.unclaimed = result_.counts.done + result_.counts.skipped;
  result_.counts.took = std::chrono::steady_clock::now() - started_;
  runner_.services_.observers.tell(&Observer::on_batch, result_.counts);
  return std::move(result_);
}

// --- without a transaction -------------------------------------------------------------------------------------------

void UnitRun::run_plain() {
  Range all;
  all.reserve(works_.size());
  for (std::size_t i = 0; i < works_.size(); ++i) {
    if (!pass_over(i)) all.push_back(i);
  }
  run_plainly(all);
}

void UnitRun::run_unclaimed() {
  unclaimed_ = true;
  Range todo;
  identify(todo);
  Range ended;  // well, before the store went away: that has to be written down first
  std::erase_if(todo, [&](std::size_t at) {
    const bool late = runner_.services_.claims->late().has_done(runner_.handler_, *ids_[at]);
    if (late) ended.push_back(at);
    return late;
  });
  wait_for_store(ended);
  run_plainly(todo);
}

namespace {

/// What the handler says cannot be kept: it waits for the store after all.
class NoStoreOutgoing final : public Outgoing {
 public:
  void reply(const Message*, std::string_view) override { refuse("reply"); }
  void publish(const OwnedMessage&) override { refuse("message"); }

 private:
  static void refuse(const std::string& what) {
    throw StoreUnavailable("the handler runs without the database (store_down = \"run\"), where a " + what +
                           " would have been kept; it runs again when that answers");
  }
};

}  // namespace

void UnitRun::run_plainly(const Range& todo) {
  if (!plan_.fingerprint && !runner_.pipeline_.one_at_a_time) return settle(todo);
  NoStoreOutgoing nowhere;
  for (const std::size_t at : todo) {
    if (watch_.is_over()) return;
    if (!holding_.empty() && held(at)) continue;
    if (const auto death = runner_.pending_death(place_, message(at).offset())) {
      bury(at, *death);
      continue;
    }
    if (is_killer(at)) {
      bury(at, death_of_killer(at));
      continue;
    }
    Context context({.outgoing = unclaimed_ ? &nowhere : nullptr,
                     .stop = watch_.start(message(at)),
                     .attempt = works_[at].attempt,
                     .message_id = unclaimed_ ? std::optional(effect_key(plan_.handler, *ids_[at])) : std::nullopt,
                     .handler = plan_.handler,
                     .mode = plan_.mode});
    bool skipped = false;
    const auto result = handle({works_[at].message, 1}, context, 0, skipped);
    if (result.end == Attempt::End::committed) {
      result_.verdicts[at].kind = Verdict::Kind::settled;
      ++(skipped ? result_.counts.skipped : result_.counts.done);
    } else if (result.end == Attempt::End::away && unclaimed_) {
      wait_for_store({at});
    } else {
      failed_alone(at, result);
    }
  }
}

// --- mode transactional --------------------------------------------------------------------------------------------

void UnitRun::run_transactional() {
  Range todo;
  todo.reserve(works_.size());
  identify(todo);
  if (plan_.numbering == Numbering::requests && !verify(todo)) return;
  settle(std::move(todo));
}

/// Computes the ids, once, from the raw records; what has none is dead.
void UnitRun::identify(Range& todo) {
  ids_.resize(works_.size());
  if (plan_.numbering == Numbering::requests) requests_.resize(works_.size());
  std::vector<std::pair<std::size_t, Death>> deaths;
  for (std::size_t i = 0; i < works_.size(); ++i) {
    if (pass_over(i)) continue;
    auto id = id_of(i);
    if (const auto* missing = std::get_if<MissingId>(&id)) {
      deaths.emplace_back(i, Death{DeadReason::missing_id, missing->why, 0});
      continue;
    }
    ids_[i] = std::get<MessageId>(id);
    if (place_.is_dead(message(i).offset())) leave_dead(i);
    else if (const auto death = runner_.pending_death(place_, message(i).offset())) deaths.emplace_back(i, *death);
    else todo.push_back(i);
  }
  std::size_t next = 0;
  for (const auto& [at, death] : deaths) {
    if (at > next) runner_.streaks_.went_well(place_);  // what is between has an id
    next = at + 1;
    if (!held(at)) bury(at, death);
  }
}

/// A dead letter of another handler, which is the one that is to have it again: this one has had it.
bool UnitRun::pass_over(std::size_t at) {
  const auto whom = replayed_for(message(at));
  if (!whom || *whom == plan_.handler) return false;
  runner_.services_.run_log->info(place_.at, plan_.handler, message(at).offset(),
                                  "passed over: it is a dead letter again, of handler " + std::string(*whom));
  result_.verdicts[at].kind = Verdict::Kind::settled;
  ++result_.counts.duplicates;
  return true;
}

std::variant<MessageId, MissingId> UnitRun::id_of(std::size_t at) {
  if (plan_.numbering != Numbering::requests) return plan_.id_source.of(message(at), place_.incarnation);
  auto stamped = request_of(message(at));
  if (auto* missing = std::get_if<MissingId>(&stamped)) return std::move(*missing);
  requests_[at] = std::get<StampedRequest>(stamped);
  return message_id(requests_[at].request);
}

/// That each request was numbered by its producer. False: the store went away.
bool UnitRun::verify(Range& todo) {
  std::set<MessageId> producers;
  for (const std::size_t at : todo) producers.insert(requests_[at].request.producer);
  std::map<MessageId, std::string> secrets;
  const auto has_session = [&](std::size_t at) { return secrets.contains(requests_[at].request.producer); };
  const auto is_proved = [&](std::size_t at) {
    return requests_[at].is_proved(plan_.topic, secrets.at(requests_[at].request.producer));
  };
  std::set<std::size_t> forged;
  const Attempt asked = guarded(std::nullopt, [&] {
    ProducerSecrets& book = *runner_.services_.producers;
    secrets = book.secrets(producers);
    std::set<MessageId> doubted;
    for (const std::size_t at : todo) {
      if (!has_session(at) || is_proved(at)) continue;
      forged.insert(at);
      doubted.insert(requests_[at].request.producer);
    }
    if (doubted.empty()) return Attempt{};
    for (const MessageId& id : doubted) secrets.erase(id);
    secrets.merge(book.secrets(doubted, true));
    std::erase_if(forged, [&](std::size_t at) { return !has_session(at) || is_proved(at); });
    return Attempt{};
  });
  if (asked.end != Attempt::End::committed) {
    result_.end = UnitResult::End::store_away;
    result_.why = asked.why;
    return false;
  }
  std::erase_if(todo, [&](std::size_t at) {
    if (!has_session(at)) bury(at, death_of_session(at));
    else if (forged.contains(at)) bury(at, death_of_forgery(at));
    else return false;
    return true;
  });
  return true;
}

void UnitRun::settle(Range whole) {
  std::vector<Piece> stack;
  stack.push_back({std::move(whole)});
  while (!stack.empty()) {
    Piece piece = std::move(stack.back());
    stack.pop_back();
    Range& range = piece.range;
    std::erase_if(range, [&](std::size_t at) { return held(at); });
    if (range.empty()) continue;
    busy_tries_ = 0;
    Attempt result = watch_.is_over() ? Attempt{.end = Attempt::End::cancelled} : attempt(range);
    if (result.by_handler) result = busy(range, std::move(result));
    switch (result.end) {
      case Attempt::End::committed: committed(range); break;
      case Attempt::End::failed:
        if (range.size() == 1) failed_alone(range.front(), result);
        else look_for_culprit(stack, piece, result);
        break;
      case Attempt::End::busy: again_soon(range, result.why, busy_tries_); break;
      case Attempt::End::cancelled: return;
      case Attempt::End::broken:
        result_.end = UnitResult::End::broken;
        result_.why = describe(range) + ": " + result.why;
        return;
      case Attempt::End::away:
        if (unclaimed_) {
          wait_for_store(range);
          break;
        }
        [[fallthrough]];
      case Attempt::End::fenced:
        result_.end = result.end == Attempt::End::away ? UnitResult::End::store_away : UnitResult::End::fenced;
        result_.why = result.why;
        return;
    }
  }
}

/// Each message runs again because of others a few times at most: as often as the range can be halved, or kMostSplits times where it is
/// known who has failed, after which each runs by itself.
void UnitRun::look_for_culprit(std::vector<Piece>& stack, const Piece& piece, const Attempt& failed) {
  if (handled_ > 0) result_.counts.rerun += static_cast<std::int64_t>(handled_) - 1;
  const bool is_known = failed.culprit.has_value();
  std::vector<Range> parts;
  if (is_known && piece.splits == kMostSplits) {
    for (const std::size_t at : piece.range) parts.push_back({at});
  } else {
    parts = split(piece.range, failed.culprit);
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part)
    stack.push_back({std::move(*part), piece.splits + (is_known ? 1 : 0)});
}

std::string UnitRun::describe(const Range& range) const {
  const Offset first = message(range.front()).offset(), last = message(range.back()).offset();
  return to_string(place_.at) +
         (first == last ? " offset " + std::to_string(first)
                        : " offsets " + std::to_string(first) + " to " + std::to_string(last)) +
         ", handler " + plan_.handler;
}

/// Before the culprit, the culprit alone, after it; halves where nobody knows who it was.
std::vector<UnitRun::Range> UnitRun::split(const Range& range, std::optional<std::size_t> culprit) const {
  const auto piece = [&](std::size_t from, std::size_t to) {
    return Range(range.begin() + static_cast<std::ptrdiff_t>(from), range.begin() + static_cast<std::ptrdiff_t>(to));
  };
  const std::size_t n = range.size();
  if (!culprit || *culprit >= n) return {piece(0, n / 2), piece(n / 2, n)};
  return {piece(0, *culprit), piece(*culprit, *culprit + 1), piece(*culprit + 1, n)};
}

/// One transaction: ids in, handlers, commit.
UnitRun::Attempt UnitRun::attempt(const Range& range) {
  skipped_.assign(range.size(), 0);
  replied_.clear();
  published_ = handled_ = 0;
  overdue_.reset();
  if (session_ == nullptr) {
    std::vector<std::size_t> all(range.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    admissions_.assign(range.size(), Admission::fresh);
    if (is_killer(range.front())) return {.end = Attempt::End::failed, .death = death_of_killer(range.front())};
    return run_handlers(range, all);
  }
  const auto begun = guarded(std::nullopt, [&] {
    admissions_ = session_->begin(scope(), entries_of(range));
    return Attempt{};
  });
  if (begun.end != Attempt::End::committed) return begun;
  TURNSTILE_FAILPOINT("after-claim");

  std::vector<std::size_t> fresh;
  fresh.reserve(range.size());
  for (std::size_t k = 0; k < range.size(); ++k) {
    if (admissions_[k] == Admission::fresh) fresh.push_back(k);
  }
  const bool replays = plan_.duplicates == DuplicatePolicy::replay && fresh.size() < range.size();
  Attempt result = guarded(std::nullopt, [&] { return refuse(range, fresh); });
  if (result.end == Attempt::End::committed && fresh.empty() && !replays) {
    session_->rollback();
    return {};
  }
  if (result.end == Attempt::End::committed && !fresh.empty()) result = run_handlers(range, fresh);
  if (result.end == Attempt::End::committed && replays) {
    result = guarded(std::nullopt, [&] {
      replay(range);
      return Attempt{};
    });
  }
  if (result.end == Attempt::End::committed) result = commit(range, fresh);
  if (result.end != Attempt::End::committed) session_->rollback();
  // The server may end a transaction that was open for too long, and the next statement, of whatever message, finds that out.
  if (result.end == Attempt::End::failed && !result.death && overdue_) result.culprit = overdue_;
  return result;
}

std::vector<InboxEntry> UnitRun::entries_of(const Range& range) const {
  std::vector<InboxEntry> entries;
  entries.reserve(range.size());
  for (const std::size_t at : range) {
    InboxEntry& entry = entries.emplace_back(InboxEntry{*ids_[at], message(at).offset()});
    if (plan_.fingerprint) entry.fingerprint = fingerprint(message(at));
    if (plan_.numbering == Numbering::requests) entry.request = requests_[at].request;
  }
  return entries;
}

InboxScope UnitRun::scope() const {
  return {.handler = runner_.handler_,
          .fence = place_.fence,
          .lock_timeout = runner_.services_.lock_timeout,
          .idle_timeout = runner_.services_.idle_timeout,
          .numbering = plan_.numbering,
          .incarnation = place_.incarnation,
          .window = plan_.request_window};
}

/// The first that may not run is dead before what follows it is committed: with that the partition may have gone past it for good.
UnitRun::Attempt UnitRun::refuse(const Range& range, const std::vector<std::size_t>& fresh) {
  const auto dead = [](std::size_t culprit, Death death) {
    return Attempt{.end = Attempt::End::failed, .culprit = culprit, .death = std::move(death)};
  };
  const auto old = too_old(range, fresh);
  for (const std::size_t k : fresh) {
    if (is_killer(range[k])) return dead(k, death_of_killer(range[k]));
  }
  for (std::size_t k = 0; k < range.size(); ++k) {
    if (k == old) return dead(k, death_of_age(range[k]));
    if (admissions_[k] == Admission::outside) return dead(k, death_of_window(range[k]));
    if (admissions_[k] == Admission::no_session) return dead(k, death_of_session(range[k]));
  }
  return {};
}

/// To be asked once their ids are in the inbox, or claimed: whoever has deleted an older one has moved the horizon before.
std::optional<std::size_t> UnitRun::too_old(const Range& range, const std::vector<std::size_t>& fresh) {
  const auto& retention = runner_.services_.retention;
  if (!retention || plan_.too_old == HorizonPolicy::run) return std::nullopt;
  const Timestamp line = retention->horizon_estimate();
  bool asked = false;
  for (const std::size_t k : fresh) {
    const Timestamp time = message(range[k]).timestamp();
    if (time == Timestamp{} || time >= line) continue;  // of the first kind nobody knows when they were made
    if (!asked) retention->say(*runner_.services_.store);
    asked = true;
    if (time < retention->all_since()) return k;
  }
  return std::nullopt;
}

UnitRun::Attempt UnitRun::run_handlers(const Range& range, const std::vector<std::size_t>& fresh) {
  return runner_.pipeline_.one_at_a_time ? run_one_by_one(range, fresh) : run_as_batch(range, fresh);
}

UnitRun::Attempt UnitRun::run_one_by_one(const Range& range, const std::vector<std::size_t>& fresh) {
  for (const std::size_t k : fresh) {
    // By the clock: who has just woken in the midst of a unit has not been told yet.
    if (watch_.is_over()) return {.end = Attempt::End::cancelled};
    const Work& work = works_[range[k]];
    session_->at_message(k);
    Outlet outlet(*this, range, k);
    Context context({.tx = &session_->transaction(),
                     .outgoing = &outlet,
                     .stop = watch_.start(*work.message),
                     .attempt = work.attempt,
                     .fence = place_.fence,
                     .message_id = ids_[range[k]],
                     .handler = plan_.handler});
    bool skipped = false;
    ++handled_;
    const auto began = std::chrono::steady_clock::now();
    const auto result = handle({work.message, 1}, context, k, skipped);
    if (!overdue_ && std::chrono::steady_clock::now() - began >= plan_.handler_timeout) overdue_ = k;
    skipped_[k] = skipped;
    if (result.end != Attempt::End::committed) return result;
    TURNSTILE_FAILPOINT("after-handler");
  }
  return {};
}

UnitRun::Attempt UnitRun::run_as_batch(const Range& range, const std::vector<std::size_t>& fresh) {
  if (watch_.is_over()) return {.end = Attempt::End::cancelled};
  std::vector<Message> messages;
  messages.reserve(fresh.size());
  int attempt = 1;
  for (const std::size_t k : fresh) {
    messages.push_back(message(range[k]));
    attempt = std::max(attempt, works_[range[k]].attempt);
  }
  if (session_ != nullptr) session_->at_message(fresh.front());
  Outlet outlet(*this, range, std::nullopt);
  NoStoreOutgoing nowhere;
  Outgoing* const outgoing = session_ != nullptr ? &outlet : unclaimed_ ? static_cast<Outgoing*>(&nowhere) : nullptr;
  Context context({.tx = session_ == nullptr ? nullptr : &session_->transaction(),
                   .outgoing = outgoing,
                   .stop = watch_.start(messages.front()),
                   .attempt = attempt,
                   .fence = place_.fence,
                   .handler = plan_.handler,
                   .mode = plan_.mode});
  bool skipped = false;
  handled_ = messages.size();
  auto result = handle(messages, context, std::nullopt, skipped);
  for (const std::size_t k : fresh) skipped_[k] = skipped;
  result.culprit.reset();  // an error of a deferred statement names the batch, not a message in it
  TURNSTILE_FAILPOINT("after-handler");
  return result;
}

UnitRun::Attempt UnitRun::commit(const Range& range, const std::vector<std::size_t>& fresh) {
  TURNSTILE_FAILPOINT("before-commit");
  if (watch_.permit_is_lost()) {
    runner_.services_.run_log->warn(
        place_.at, plan_.handler, message(range.front()).offset(),
        "rolled back: the lease of its permit ended while it ran, so that others may have run "
        "beside it; it runs again");
    return {.end = Attempt::End::cancelled};
  }
  // A handler may have gone on past the end of its permit, or of its partition: what it did here is not made permanent.
  if (watch_.cancelled()) return {.end = Attempt::End::cancelled};
  std::optional<std::string> in_doubt;
  auto result = guarded(std::nullopt, [&] {
    try {
      session_->commit();
    } catch (const CommitInDoubt& e) {
      in_doubt = e.what();
    }
    return Attempt{};
  });
  if (in_doubt) return decide_doubt(range, fresh, *in_doubt);
  result.by_handler =
      result.end == Attempt::End::busy || (result.end == Attempt::End::away && is_lost(session_->standing()));
  if (published_ > 0 && runner_.services_.on_published) runner_.services_.on_published();
  TURNSTILE_FAILPOINT("after-commit");
  return result;
}

/// The answer to COMMIT was lost. The ids of the batch went in together or not at all: look for them (hazard: commit-in-doubt). What is not
/// there runs again, and the inbox settles what a transaction still in flight may yet bring.
UnitRun::Attempt UnitRun::decide_doubt(const Range& range, const std::vector<std::size_t>& fresh,
                                       const std::string& why) {
  runner_.services_.run_log->warn(place_.at, plan_.handler, message(range.front()).offset(),
                                  "commit in doubt, looking it up: " + why);
  // The next try is told: it waits for the row that the one in doubt may still have locked. What was only answered again has no id
  // to look for; a reply that goes out twice has the same one.
  const Attempt lost{.end = Attempt::End::busy, .why = why, .by_handler = true};
  if (plan_.mode == Mode::sequence || fresh.empty()) return lost;
  std::vector<MessageId> ids;
  for (const std::size_t k : fresh) ids.push_back(*ids_[range[k]]);
  return guarded(std::nullopt, [&] {
    const auto settled = session_->settled(runner_.handler_, place_.fence, ids);
    const bool all = std::all_of(settled.begin(), settled.end(), [](bool there) { return there; });
    runner_.services_.run_log->info(
        place_.at, plan_.handler, message(range.front()).offset(),
        all ? "commit in doubt: it was committed" : "commit in doubt: not there, running it again");
    return all ? Attempt{} : lost;
  });
}

UnitRun::Attempt UnitRun::handle(std::span<const Message> messages, Context& context,
                                 std::optional<std::size_t> culprit, bool& skipped) {
  auto result = guarded(culprit, [&] {
    const Outcome outcome = invoke(messages, context);
    skipped = outcome.kind() == Outcome::Kind::skip;
    if (outcome.settles()) return Attempt{};
    return Attempt{.end = Attempt::End::failed, .culprit = culprit, .why = outcome.why(), .outcome = outcome};
  });
  watch_.finish();
  if (result.end == Attempt::End::committed || result.outcome) return result;
  if (unclaimed_ && result.end == Attempt::End::away) return result;
  // Another store throws errors of the same types. Its errors leave our transaction sound, and are failures of the handler.
  const Standing now = standing();
  if (now == Standing::sound || result.end == Attempt::End::fenced) {
    result.end = Attempt::End::failed;
    result.culprit = culprit;
  }
  // libpqxx throws its own types for what exec() throws as StoreBusy and StoreUnavailable.
  if (result.end == Attempt::End::failed && now == Standing::busy) result.end = Attempt::End::busy;
  if (result.end == Attempt::End::failed && now == Standing::lost) result.end = Attempt::End::away;
  result.by_handler = result.end == Attempt::End::busy || (result.end == Attempt::End::away && is_lost(now));
  return result;
}

Outcome UnitRun::invoke(std::span<const Message> messages, Context& context) {
  const Observers& observers = runner_.services_.observers;
  if (observers.empty()) return runner_.pipeline_.invoke(messages, context);
  struct Running {
    const Observers& observers;
    const TopicPlan& plan;
    Running(const Observers& o, const TopicPlan& p) : observers(o), plan(p) {
      observers.tell(&Observer::on_handler_start, std::string_view(plan.topic), std::string_view(plan.limiter));
    }
    ~Running() {
      observers.tell(&Observer::on_handler_stop, std::string_view(plan.topic), std::string_view(plan.limiter));
    }
  } running(observers, plan_);
  return runner_.pipeline_.invoke(messages, context);
}

}  // namespace turnstile
