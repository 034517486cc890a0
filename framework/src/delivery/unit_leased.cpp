// Mode leased: claimed in one transaction, run outside of any, and written down as done in another.

#include <algorithm>
#include <map>
#include <thread>

#include "delivery/end_trouble.hpp"
#include "delivery/unit_run.hpp"
#include "message/message_id.hpp"
#include "support/failpoint.hpp"
#include "support/published_id.hpp"
#include "turnstile/error.hpp"
#include "turnstile/ids.hpp"

namespace turnstile {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// How long what is done may wait to be written down while other handlers of its unit run.
constexpr milliseconds kWriteDownAfter{50};
/// While the store does not answer: between two tries to write down what is done, and for how long where somebody waits for the unit to
/// end: it was cancelled, or runs on its caller's thread.
constexpr milliseconds kFirstPause{50}, kLongestPause{1'000}, kLastWord{3'000};
/// The same in a topic that goes on without the store: one connection that broke is no outage.
constexpr milliseconds kFirstWord{500};
/// A message whose duplicate is running is looked at again so often: that one may end long before its lease does.
constexpr milliseconds kLookAgain{500};

}  // namespace

/// What the unit has claimed, and how it ended.
struct UnitRun::Leases {
  MessageId owner = new_message_id();
  std::vector<Claim> claims;  ///< by place in works_
  bool begun = true;          ///< by the claim itself
  Range begun_so_far;         ///< otherwise: whose handlers may have begun, as far as the store knows
  std::unique_ptr<LeaseRenewer::Hold> hold;
  std::vector<ClaimEnd> ends;         ///< not written down yet
  std::vector<std::size_t> ended;     ///< whose: places in works_
  std::vector<std::uint8_t> skipped;  ///< by place in `ended`
  Clock::time_point oldest_end;
  Range done;                                ///< written down
  Range repeats;                             ///< whose ids earlier messages of the unit have
  Range duplicates;                          ///< that are to be answered
  bool over = false;                         ///< nothing more of the unit starts
  bool unwritten = false;                    ///< the store did not answer for too long
  std::map<MessageId, std::string> refused;  ///< whose end the store does not take, and why

  ClaimEnd& end(std::size_t at, const MessageId& id, ClaimEnd::Kind kind) {
    if (ends.empty()) oldest_end = Clock::now();
    ended.push_back(at);
    skipped.push_back(0);
    return ends.emplace_back(ClaimEnd{.kind = kind, .claim = {id, claims[at].fence}});
  }
};

/// What handlers say while no transaction is open: kept until it is written down that they are done.
class UnitRun::Notes final : public Outgoing {
 public:
  struct Of {
    std::optional<std::string> response;
    std::vector<std::pair<OwnedMessage, MessageId>> messages;
  };

  /// `range`: the messages that the handler was called with.
  Notes(UnitRun& run, const Range& range) : run_(run), range_(range), of_(range.size()) {}

  void reply(const Message* to, std::string_view body) override {
    const std::size_t k = place_of(to);
    run_.check_response(body);
    if (of_[k].response) {
      throw std::logic_error("handler '" + run_.plan_.handler + "' replied twice to " + where(run_.message(range_[k])));
    }
    of_[k].response = body;
    if (auto reply = run_.reply_record(range_[k], body)) of_[k].messages.push_back(std::move(*reply));
  }
  void publish(const OwnedMessage& message) override {
    of_.front().messages.emplace_back(message, published_id(message));
  }
  Of take(std::size_t k) { return std::move(of_[k]); }

 private:
  [[nodiscard]] std::size_t place_of(const Message* to) const {
    if (to == nullptr) {
      if (range_.size() == 1) return 0;
      throw std::logic_error("handler '" + run_.plan_.handler +
                             "' takes several messages at once: say which one it replies to, ctx.reply(message, body)");
    }
    for (std::size_t k = 0; k < range_.size(); ++k) {
      if (run_.message(range_[k]).offset() == to->offset()) return k;
    }
    throw std::logic_error("handler '" + run_.plan_.handler + "' replied to " + where(*to) +
                           ", which is none of the messages that it was called with");
  }

  UnitRun& run_;
  const Range& range_;
  std::vector<Of> of_;
};

void UnitRun::run_leased() {
  Range todo;
  identify(todo);
  if (todo.empty() || watch_.is_over()) return;
  Leases leases;
  if (!claim(leases, todo)) return;
  TURNSTILE_FAILPOINT("after-claim");
  run_claimed(leases, todo);
  write_down(leases);
  settle_repeats(leases);
  leases.hold.reset();
  if (!leases.duplicates.empty()) answer_duplicates(leases.duplicates);
}

bool UnitRun::claim(Leases& leases, const Range& range) {
  LeaseRenewer& renewer = *runner_.services_.claims;
  // Where the first handler takes all of them, or what is unknown runs again anyway, there is nothing to tell apart.
  leases.begun = range.size() == 1 || !runner_.pipeline_.one_at_a_time || plan_.unknown == UnknownPolicy::rerun;
  const ClaimScope scope{.handler = runner_.handler_,
                         .fence = place_.fence,
                         .owner = leases.owner,
                         .abandoned = renewer.abandoned(),
                         .lease = plan_.lease,
                         .rerun_unknown = plan_.unknown == UnknownPolicy::rerun,
                         .begins = leases.begun,
                         .lock_timeout = runner_.services_.lock_timeout};
  const auto sent = LeaseRenewer::Clock::now();
  std::vector<Claim> claims;
  const Attempt claimed = guarded(std::nullopt, [&] {
    claims = renewer.claims().claim(scope, entries_to_claim(range));
    return Attempt{};
  });
  switch (claimed.end) {
    case Attempt::End::committed: break;
    case Attempt::End::fenced:
      result_.end = UnitResult::End::fenced;
      result_.why = claimed.why;
      return false;
    case Attempt::End::busy: again_soon(range, claimed.why); return false;
    default:
      // It may have claimed them all the same. Nothing has run, so that whoever is next in this process takes them over.
      renewer.abandon(leases.owner);
      result_.end = UnitResult::End::store_away;
      result_.why = claimed.why;
      return false;
  }
  leases.claims.resize(works_.size());
  std::vector<HeldClaim> held;
  std::size_t again = 0;
  for (std::size_t k = 0; k < range.size(); ++k) {
    leases.claims[range[k]] = claims[k];
    if (claims[k].state != Claim::State::claimed) continue;
    held.push_back({*ids_[range[k]], claims[k].fence});
    if (is_in_doubt(range[k])) ++again;
  }
  if (again > 0) {
    runner_.services_.run_log->warn(
        place_.at, plan_.handler, message(range.front()).offset(),
        std::to_string(again) +
            " messages from here on may have taken effect before the database went back to an "
            "earlier time; they run again (unknown is rerun, or they had failed)");
  }
  leases.hold = std::make_unique<LeaseRenewer::Hold>(
      renewer,
      LeaseRenewer::Held{runner_.handler_, leases.owner, plan_.lease, sent, place_.at, &watch_, std::move(held)});
  return true;
}

/// It was settled before the database went back to an earlier time, or its claim was gone when it had taken effect.
bool UnitRun::is_in_doubt(std::size_t at) const {
  return place_.is_in_doubt(message(at).offset()) || runner_.is_unrecorded(*ids_[at]);
}

std::vector<InboxEntry> UnitRun::entries_to_claim(const Range& range) const {
  auto entries = entries_of(range);
  std::vector<InboxEntry*> doubted;
  for (std::size_t k = 0; k < range.size(); ++k) {
    entries[k].in_doubt = is_in_doubt(range[k]);
    if (entries[k].in_doubt) doubted.push_back(&entries[k]);
  }
  if (doubted.empty()) return entries;
  // Of the dead it is known that they did not take effect.
  const auto dead = runner_.services_.store->dead_between(runner_.handler_, *place_.fence, doubted.front()->offset,
                                                          doubted.back()->offset);
  for (InboxEntry* entry : doubted) entry->in_doubt = !dead.contains(entry->offset);
  return entries;
}

void UnitRun::run_claimed(Leases& leases, const Range& range) {
  Range together;
  for (std::size_t k = 0; k < range.size(); ++k) {
    const std::size_t at = range[k];
    const bool claimed = leases.claims[at].state == Claim::State::claimed;
    if (is_over(leases) || held(at)) {
      if (claimed) give_back(leases, at);
    } else if (!claimed) {
      not_claimed(leases, at);
    } else if (is_killer(at)) {
      give_back(leases, at);
      bury(at, death_of_killer(at));
    } else if (const auto old = is_too_old(at); old.value_or(true)) {
      give_back(leases, at);
      if (old) bury(at, death_of_age(at));
      else again_soon({at}, "whether its id may have been forgotten could not be asked");
    } else if (!runner_.pipeline_.one_at_a_time) {
      together.push_back(at);
    } else if (!begin(leases, range, k)) {
      give_back(leases, at);
    } else {
      run_handler(leases, {at});
      if (!leases.ends.empty() && Clock::now() - leases.oldest_end > kWriteDownAfter) write_down(leases);
    }
  }
  if (!together.empty()) run_handler(leases, together);
}

/// The record that the handler of the k-th begins, and perhaps those of the next ones. False: it could not be made, or the claim is lost.
bool UnitRun::begin(Leases& leases, const Range& range, std::size_t k) {
  const auto is_begun = [&](std::size_t at) {
    return leases.begun ||
           std::find(leases.begun_so_far.begin(), leases.begun_so_far.end(), at) != leases.begun_so_far.end();
  };
  if (is_begun(range[k])) return true;
  std::vector<HeldClaim> held;
  Range next;
  for (; k < range.size() && next.size() < runner_.begun_together(); ++k) {
    if (leases.claims[range[k]].state != Claim::State::claimed) continue;
    next.push_back(range[k]);
    held.push_back({*ids_[range[k]], leases.claims[range[k]].fence});
  }
  const Attempt begun = guarded(std::nullopt, [&] {
    const auto still = runner_.services_.claims->claims().begin(runner_.handler_, leases.owner, held);
    for (std::size_t i = 0; i < still.size(); ++i) {
      if (still[i]) leases.begun_so_far.push_back(next[i]);
    }
    return Attempt{};
  });
  if (begun.end == Attempt::End::committed && is_begun(next.front())) return true;
  leases.over = true;  // nothing may overtake it
  if (begun.end == Attempt::End::away) {
    result_.end = UnitResult::End::store_away;
    result_.why = begun.why;
  }
  return false;
}

/// Asked before each handler. Once it is, it stays so: what comes later in the unit must not overtake what was given back.
bool UnitRun::is_over(Leases& leases) {
  leases.over = leases.over || watch_.is_over() || leases.hold->is_over();
  return leases.over;
}

void UnitRun::give_back(Leases& leases, std::size_t at) { leases.end(at, *ids_[at], ClaimEnd::Kind::given_back); }

/// Nothing: nobody can say at the moment.
std::optional<bool> UnitRun::is_too_old(std::size_t at) {
  std::optional<bool> old;
  guarded(std::nullopt, [&] {
    old = too_old({at}, {0}).has_value();
    return Attempt{};
  });
  return old;
}

/// Where several fail together, halves find who it was: what runs again is still claimed by us.
void UnitRun::run_handler(Leases& leases, const Range& range) {
  if (is_over(leases)) {
    for (const std::size_t at : range) give_back(leases, at);
    return;
  }
  const bool alone = range.size() == 1;
  std::vector<Message> messages;
  int attempt = 1;
  for (const std::size_t at : range) {
    messages.push_back(message(at));
    attempt = std::max(attempt, works_[at].attempt);
  }
  Notes notes(*this, range);
  Context context({.outgoing = &notes,
                   .stop = watch_.start(messages.front()),
                   .attempt = attempt,
                   .fence = place_.fence,
                   .message_id = alone ? std::optional(effect_key(plan_.handler, *ids_[range.front()])) : std::nullopt,
                   .handler = plan_.handler,
                   .mode = Mode::leased,
                   .claim_fence = alone ? leases.claims[range.front()].fence : 0});
  bool skipped = false;
  const auto began = Clock::now();
  const Attempt result = handle(messages, context, std::nullopt, skipped);
  if (alone) runner_.note_handler_time(Clock::now() - began);
  TURNSTILE_FAILPOINT("after-handler");
  if (result.end == Attempt::End::committed) {
    for (std::size_t k = 0; k < range.size(); ++k) {
      ClaimEnd& end = leases.end(range[k], *ids_[range[k]], ClaimEnd::Kind::done);
      auto said = notes.take(k);
      end.response = std::move(said.response);
      end.messages = std::move(said.messages);
      leases.skipped.back() = skipped;
    }
  } else if (alone) {
    leases.end(range.front(), *ids_[range.front()], ClaimEnd::Kind::failed).error = result.why;
    failed_alone(range.front(), result);
  } else {
    result_.counts.rerun += static_cast<std::int64_t>(range.size()) - 1;
    for (const Range& half : split(range, std::nullopt)) {
      Range left;
      for (const std::size_t at : half) {
        if (is_over(leases) || held(at)) give_back(leases, at);
        else left.push_back(at);
      }
      if (!left.empty()) run_handler(leases, left);
    }
  }
}

void UnitRun::not_claimed(Leases& leases, std::size_t at) {
  const Claim& claim = leases.claims[at];
  switch (claim.state) {
    case Claim::State::claimed: break;
    case Claim::State::done:
      runner_.drop_unrecorded(*ids_[at]);
      settle_duplicate(at);
      if (plan_.duplicates == DuplicatePolicy::replay) leases.duplicates.push_back(at);
      break;
    case Claim::State::mismatch:
      bury(at, {DeadReason::mismatch, "the id was seen before with another payload", 0});
      break;
    case Claim::State::parked:
      bury(at, {DeadReason::unknown,
                std::string(is_in_doubt(at) ? "the database went back to an earlier time and has no record of it"
                                            : "its lease ended while it was claimed") +
                    ": whether it took effect is not known; look, and then: turnstile inbox unpark " +
                    ids_[at]->text() + " --handler " + plan_.handler + " --done | --rerun",
                works_[at].attempt});
      runner_.drop_unrecorded(*ids_[at]);
      break;
    case Claim::State::repeated: leases.repeats.push_back(at); break;
    case Claim::State::running:
      // A policy is for copies. This very record, running under its last owner, or one of which this process has yet to write down how
      // it ended, may still fail.
      switch (claim.is_copy && !runner_.services_.claims->late().holds(runner_.handler_, *ids_[at])
                  ? plan_.while_running
                  : RunningPolicy::wait) {
        case RunningPolicy::skip: settle_duplicate(at); break;
        case RunningPolicy::retry:
          failed_alone(at, {.end = Attempt::End::failed, .why = "another one with its id is being handled"});
          break;
        case RunningPolicy::wait:
          result_.verdicts[at] = {Verdict::Kind::retry, std::clamp(claim.left, milliseconds(20), kLookAgain),
                                  works_[at].attempt};
          hold(at);
          break;
      }
      break;
  }
}

/// What repeats a message of its own unit is a duplicate of it, once that one is done.
void UnitRun::settle_repeats(Leases& leases) {
  for (const std::size_t at : leases.repeats) {
    const auto first = static_cast<std::size_t>(std::find(ids_.begin(), ids_.end(), ids_[at]) - ids_.begin());
    const bool done = std::find(leases.done.begin(), leases.done.end(), first) != leases.done.end();
    // Whether it has the same body, the next claim tells.
    if (done && !plan_.fingerprint) {
      settle_duplicate(at);
      if (plan_.duplicates == DuplicatePolicy::replay) leases.duplicates.push_back(at);
    } else if (!held(at)) {
      again_soon({at}, "an earlier message of its batch has the same id");
    }
  }
}

/// What has ended is made known. Only then are its messages settled.
void UnitRun::write_down(Leases& leases) {
  if (leases.ends.empty()) return;
  TURNSTILE_FAILPOINT("before-complete");
  leases.hold->let_go(leases.ends);
  const auto held = end_claims(leases, leases.ends);
  TURNSTILE_FAILPOINT("after-complete");
  // In a topic that goes on without the store, what is done is done; otherwise nothing is, until it is written down.
  const bool goes_on = !held && may_be_late(leases.ends);
  if (!held) write_down_later(leases, goes_on);
  bool published = false;
  for (std::size_t i = 0; i < leases.ends.size(); ++i) {
    const ClaimEnd& end = leases.ends[i];
    if (end.kind != ClaimEnd::Kind::done) {
      tell_of_refusal(leases, i);
      continue;
    }
    if (!goes_on && (!held || !(*held)[i])) {
      settle_lost(leases, i);
      continue;
    }
    published = published || !end.messages.empty();
    runner_.drop_unrecorded(end.claim.id);
    result_.verdicts[leases.ended[i]].kind = Verdict::Kind::settled;
    leases.done.push_back(leases.ended[i]);
    ++(leases.skipped[i] ? result_.counts.skipped : result_.counts.done);
  }
  if (published && runner_.services_.on_published) runner_.services_.on_published();
  leases.ends.clear();
  leases.ended.clear();
  leases.skipped.clear();
}

/// What goes out with an end exists nowhere else until that is written down.
bool UnitRun::may_be_late(std::span<const ClaimEnd> ends) const {
  return plan_.store_down == StoreDownPolicy::run && std::none_of(ends.begin(), ends.end(), [](const ClaimEnd& end) {
           return end.response.has_value() || !end.messages.empty();
         });
}

/// Which were still ours; nothing when the store did not answer in time.
std::optional<std::vector<bool>> UnitRun::end_claims(Leases& leases, std::span<const ClaimEnd> ends) {
  auto pause = kFirstPause;
  std::optional<Clock::time_point> awaited_since;
  for (bool told = false;; told = true) {
    std::vector<bool> held;
    const auto trouble = trouble_with([&] {
      held = runner_.services_.claims->claims().end(runner_.handler_, leases.owner, ends);
      // An answer that was lost: said again, it is not ours any more because it is done.
      for (std::size_t i = 0; i < held.size(); ++i) {
        if (!held[i] && ends[i].kind == ClaimEnd::Kind::done)
          held[i] = runner_.services_.store->find(runner_.handler_, ends[i].claim.id).has_value();
      }
    });
    if (!trouble) return held;
    if (trouble->for_good) return end_what_is_taken(leases, ends, trouble->why);
    const bool goes_on = may_be_late(leases.ends);
    const bool awaited = goes_on || runner_.services_.caller_raises || watch_.cancelled();
    if (awaited && !awaited_since) awaited_since = Clock::now();
    if (leases.unwritten || (awaited_since && Clock::now() - *awaited_since > (goes_on ? kFirstWord : kLastWord))) {
      leases.unwritten = true;
      result_.end = UnitResult::End::store_away;
      result_.why = trouble->why;
      return std::nullopt;
    }
    if (!told) {
      runner_.services_.run_log->warn(place_.at, plan_.handler, message(leases.ended.front()).offset(),
                                      "has ended, which cannot be written down; trying again: " + trouble->why);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

/// The store does not take them together, and never will: each by itself, so that it is known which.
std::optional<std::vector<bool>> UnitRun::end_what_is_taken(Leases& leases, std::span<const ClaimEnd> ends,
                                                            const std::string& why) {
  if (ends.size() == 1) {
    leases.refused[ends.front().claim.id] = why;
    return std::vector<bool>{false};
  }
  std::vector<bool> held;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const auto one = end_claims(leases, ends.subspan(i, 1));
    if (!one) return std::nullopt;
    held.push_back(one->front());
  }
  return held;
}

void UnitRun::tell_of_refusal(const Leases& leases, std::size_t i) const {
  const std::size_t at = leases.ended[i];
  const auto refused = leases.refused.find(*ids_[at]);
  if (refused == leases.refused.end()) return;
  runner_.services_.run_log->error(place_.at, plan_.handler, message(at).offset(),
                                   "has ended, which the database refused to write down: " + refused->second);
}

void UnitRun::write_down_later(const Leases& leases, bool goes_on) {
  runner_.services_.claims->late().add({runner_.handler_, leases.owner, place_.at, leases.ends});
  if (!goes_on) return;
  runner_.services_.run_log->warn(
      place_.at, plan_.handler, message(leases.ended.front()).offset(),
      "has ended, and is written down as soon as the database answers (store_down is run): " + result_.why);
}

/// It took effect, and that could not be written down.
void UnitRun::settle_lost(const Leases& leases, std::size_t i) {
  const std::size_t at = leases.ended[i];
  // Where the claim has no row any more (the database went back to an earlier time), this is all that is known of it.
  runner_.note_unrecorded(*ids_[at]);
  const std::string what =
      plan_.unknown == UnknownPolicy::rerun
          ? "it may run again"
          : "once its lease is over it is parked, for somebody to look at (at once, if the database has lost "
            "its claim)";
  const auto refused = leases.refused.find(*ids_[at]);
  runner_.services_.run_log->error(
      place_.at, plan_.handler, message(at).offset(),
      (refused != leases.refused.end() ? "done, but the database refused to write that down (" + refused->second + "): "
       : leases.unwritten ? "done, but the store went away before it was written down (" + result_.why + "): "
                          : std::string("done, but its claim was lost meanwhile: ")) +
          what);
  hold(at);
}

/// As the first ones were answered.
void UnitRun::answer_duplicates(const Range& duplicates) {
  if (plan_.reply_topics.empty()) return;
  admissions_.assign(duplicates.size(), Admission::duplicate);
  const Attempt answered = guarded(std::nullopt, [&] {
    session_->begin(scope(), {});
    replay(duplicates);
    session_->commit();  // in doubt: said again; a reply that goes out twice has the same id
    return Attempt{};
  });
  if (answered.end == Attempt::End::committed) {
    if (published_ > 0 && runner_.services_.on_published) runner_.services_.on_published();
    return;
  }
  session_->rollback();
  result_.counts.duplicates -= duplicates.size();
  again_soon(duplicates, answered.why);
}

}  // namespace turnstile
