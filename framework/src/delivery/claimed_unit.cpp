#include "delivery/claimed_unit.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "delivery/failure.hpp"
#include "delivery/permanent.hpp"
#include "delivery/timed.hpp"
#include "support/failpoint.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::milliseconds;

/// A result that is older than this is recorded before the next handler of its unit runs.
constexpr milliseconds kRecordAfter{50};
/// The first and the longest pause between two calls to record results while the store does not answer.
constexpr milliseconds kFirstPause{50}, kLongestPause{1'000};
/// How often a pause looks whether the unit was cancelled, and the pause after that.
constexpr milliseconds kCancelLook{100};
/// How long the calls are repeated on a caller's thread.
constexpr milliseconds kCallersTries{3'000};
/// The same after the unit was cancelled: less than the time that the engine waits for it then, so that the results that
/// are lost with the process are reported.
constexpr milliseconds kLastTries{1'500};
/// The same if the results can be recorded later, see may_be_recorded_later(). One broken connection is not an outage.
constexpr milliseconds kFirstTries{500};

}  // namespace

bool is_in_doubt(const Unit& unit, const UnitItem& item) {
  return unit.place().is_in_doubt(item.offset()) || unit.memory().is_unrecorded(*item.id);
}

bool ClaimedUnit::claim(const Items& items) {
  LeaseRenewer& renewer = *unit_.services().claims;
  const TopicPlan& plan = unit_.plan();
  // The claim also records that the handlers begin, unless it matters which of them have begun. It does not matter for
  // a single message, for a handler that takes all messages at once, or if messages in doubt run again.
  begun_by_claim_ = items.size() == 1 || !unit_.topic().pipeline.one_at_a_time || plan.unknown == UnknownPolicy::rerun;
  const ports::ClaimScope scope{.handler = unit_.topic().handler,
                                .fence = unit_.place().fence,
                                .owner = owner_,
                                .abandoned = renewer.abandoned(),
                                .lease = plan.lease,
                                .rerun_unknown = plan.unknown == UnknownPolicy::rerun,
                                .begins = begun_by_claim_,
                                .lock_timeout = unit_.services().lock_timeout};
  const auto sent = LeaseRenewer::Clock::now();
  std::vector<ports::Claim> claims;
  const auto take = [&] {
    const Timed timed(unit_.result().counts.claim_time);
    const UnitTrace::Span span(unit_.trace(), SpanReport::Step::claim);
    claims = renewer.claims().claim(scope, entries_to_claim(items));
  };
  const auto failure = guarded(take);
  verdicts_.taken_in(items, failure);
  if (failure) {
    if (failure->kind == Failure::Kind::fenced) {
      unit_.end(UnitResult::End::fenced, failure->why);
    } else if (failure->kind == Failure::Kind::busy) {
      verdicts_.again_soon(items, failure->why);
    } else {
      // The store may have claimed the messages although the call failed. Nothing has run under this owner, so the next
      // unit of this process takes the claims over.
      renewer.abandon(owner_);
      unit_.end(UnitResult::End::store_unavailable, failure->why);
    }
    return false;
  }
  std::vector<ports::HeldClaim> held;
  std::size_t again = 0;
  for (std::size_t k = 0; k < items.size(); ++k) {
    items[k]->claim = claims[k];
    if (claims[k].state != ports::Claim::State::claimed) continue;
    items[k]->begun = begun_by_claim_;
    held.push_back({*items[k]->id, claims[k].fence});
    if (is_in_doubt(unit_, *items[k])) ++again;
  }
  if (again > 0) {
    unit_.services().run_log->warn(
        Code::store_rewound, unit_.place().at, plan.handler, items.front()->offset(),
        std::to_string(again) +
            " messages from here on may have taken effect before the database went back to an "
            "earlier time; they run again (unknown is rerun)");
  }
  hold_ = std::make_unique<LeaseRenewer::Hold>(
      renewer, LeaseRenewer::Held{unit_.topic().handler, owner_, plan.lease, sent, unit_.place().at, &unit_.watch(),
                                  std::move(held)});
  return true;
}

std::vector<ports::InboxEntry> ClaimedUnit::entries_to_claim(const Items& items) const {
  auto entries = unit_.entries(items);
  std::vector<ports::InboxEntry*> doubted;
  for (std::size_t k = 0; k < items.size(); ++k) {
    entries[k].in_doubt = is_in_doubt(unit_, *items[k]);
    if (entries[k].in_doubt) doubted.push_back(&entries[k]);
  }
  if (doubted.empty()) return entries;
  // A dead letter has not taken effect, so it is not in doubt.
  const auto dead = unit_.services().store->dead_letters().dead_between(
      unit_.topic().handler, *unit_.place().fence, doubted.front()->offset, doubted.back()->offset);
  for (ports::InboxEntry* entry : doubted) entry->in_doubt = !dead.contains(entry->offset);
  return entries;
}

bool ClaimedUnit::begin(const Items& items, std::size_t k) {
  if (items[k]->begun) return true;
  UnitItem& first = *items[k];
  std::vector<ports::HeldClaim> held;
  Items next;
  for (; k < items.size() && next.size() < unit_.memory().begun_together(); ++k) {
    if (items[k]->claim.state != ports::Claim::State::claimed) continue;
    next.push_back(items[k]);
    held.push_back({*items[k]->id, items[k]->claim.fence});
  }
  const auto failure = guarded([&] {
    const Timed timed(unit_.result().counts.claim_time);
    const auto still = unit_.services().claims->claims().begin(unit_.topic().handler, owner_, held);
    for (std::size_t i = 0; i < still.size(); ++i) next[i]->begun = next[i]->begun || still[i];
  });
  if (!failure && first.begun) return true;
  over_ = true;  // a later item must not overtake it
  if (failure && failure->kind == Failure::Kind::unavailable)
    unit_.end(UnitResult::End::store_unavailable, failure->why);
  return false;
}

bool ClaimedUnit::is_over() {
  over_ = over_ || unit_.watch().is_over() || hold_->is_over();
  return over_;
}

ports::ClaimEnd& ClaimedUnit::add_end(UnitItem& item, ports::ClaimEnd::Kind kind) {
  if (ends_.empty()) oldest_end_ = Clock::now();
  ended_.push_back(&item);
  return ends_.emplace_back(ports::ClaimEnd{.kind = kind, .claim = {*item.id, item.claim.fence}});
}

void ClaimedUnit::done(UnitItem& item, BufferedOutgoing::OfItem sent) {
  ports::ClaimEnd& end = add_end(item, ports::ClaimEnd::Kind::done);
  end.response = std::move(sent.response);
  end.messages = std::move(sent.messages);
}

bool ClaimedUnit::is_record_due() const { return !ends_.empty() && Clock::now() - oldest_end_ > kRecordAfter; }

void ClaimedUnit::record() {
  if (ends_.empty()) return;
  TURNSTILE_FAILPOINT("before-complete");
  waiting_ = std::make_shared<PendingCompletions::Wait>(unit_.services().claims->pending(), unit_.place().at,
                                                        unit_.plan().handler, ended_.front()->offset());
  hold_->let_go(ends_);
  const auto held = [&] {
    const Timed timed(unit_.result().counts.commit_time);
    const UnitTrace::Span span(unit_.trace(), SpanReport::Step::commit);
    return end_claims(ends_);
  }();
  TURNSTILE_FAILPOINT("after-complete");
  // A topic that continues without the store settles finished messages now. Other topics settle only recorded ones.
  const bool settles = !held && may_be_recorded_later();
  bool published = false;
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    UnitItem& item = *ended_[i];
    if (ends_[i].kind != ports::ClaimEnd::Kind::done) {
      report_refusal(item);
    } else if (settles || (held && (*held)[i])) {
      published = published || !ends_[i].messages.empty();
      unit_.memory().drop_unrecorded(*item.id);
      item.recorded = true;
      verdicts_.done(item);
    } else {
      settle_lost(item, !held);
    }
  }
  if (!held) record_later(settles);
  waiting_.reset();
  if (published && unit_.services().bell.published) unit_.services().bell.published();
  ends_.clear();
  ended_.clear();
}

/// Only with store_down = "run", and only if no handler has replied or published. Replies and published messages are
/// stored together with the result. Until then they exist only in this process.
bool ClaimedUnit::may_be_recorded_later() const {
  return unit_.plan().store_down == StoreDownPolicy::run &&
         std::none_of(ends_.begin(), ends_.end(),
                      [](const ports::ClaimEnd& end) { return end.response.has_value() || !end.messages.empty(); });
}

/// Returns which claims this process still held. Absent: the store did not answer in time.
std::optional<std::vector<bool>> ClaimedUnit::end_claims(std::span<const ports::ClaimEnd> ends) {
  auto pause = kFirstPause;
  awaited_since_.reset();
  for (bool told = false;; told = true) {
    std::string why;
    try {
      auto held = unit_.services().claims->claims().end(unit_.topic().handler, owner_, ends);
      // An earlier call may have ended the claim, and its answer was lost. Then the id is in the inbox.
      for (std::size_t i = 0; i < held.size(); ++i) {
        if (!held[i] && ends[i].kind == ports::ClaimEnd::Kind::done)
          held[i] = unit_.services().store->find(unit_.topic().handler, ends[i].claim.id).has_value();
      }
      if (waiting_->told() && std::find(held.begin(), held.end(), false) == held.end())
        unit_.services().run_log->info(unit_.place().at, "PostgreSQL answers again: the results are recorded now");
      return held;
    } catch (const std::exception& e) {
      if (is_permanent(e)) return end_one_by_one(ends, e.what());
      why = e.what();
    }
    if (!told) waiting_->tell("Handler finished but its result could not be recorded; retrying: " + why);
    if (gives_up(why)) return std::nullopt;
    rest(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

/// Shorter once the unit is cancelled: its last tries are within kGrace.
void ClaimedUnit::rest(milliseconds pause) const {
  const RunState& watch = unit_.watch();
  const auto until = Clock::now() + pause;
  for (auto now = Clock::now(); now < until; now = Clock::now()) {
    const bool was_cancelled = watch.cancelled();
    std::this_thread::sleep_for(std::min<Clock::duration>(until - now, kCancelLook));
    if (watch.cancelled() || was_cancelled) return;
  }
}

bool ClaimedUnit::gives_up(const std::string& why) {
  const bool later = may_be_recorded_later(), cancelled = unit_.watch().cancelled();
  const bool awaited = later || cancelled || unit_.services().caller_raises;
  if (awaited && !awaited_since_) awaited_since_ = Clock::now();
  const auto patience = later ? kFirstTries : cancelled ? kLastTries : kCallersTries;
  if (!unrecorded_ && !(awaited_since_ && Clock::now() - *awaited_since_ > patience)) return false;
  unrecorded_ = true;
  unit_.end(UnitResult::End::store_unavailable, why);
  return true;
}

/// The store permanently refuses these results. Recording each by itself shows which of them it refuses.
std::optional<std::vector<bool>> ClaimedUnit::end_one_by_one(std::span<const ports::ClaimEnd> ends,
                                                             const std::string& why) {
  if (ends.size() == 1) {
    refused_[ends.front().claim.id] = why;
    return std::vector<bool>{false};
  }
  std::vector<bool> held;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const auto one = end_claims(ends.subspan(i, 1));
    if (!one) return std::nullopt;
    held.push_back(one->front());
  }
  return held;
}

const std::string* ClaimedUnit::refusal_of(const UnitItem& item) const {
  const auto found = refused_.find(*item.id);
  return found == refused_.end() ? nullptr : &found->second;
}

void ClaimedUnit::report_refusal(const UnitItem& item) const {
  const std::string* const why = refusal_of(item);
  if (why == nullptr) return;
  unit_.services().run_log->error(Code::result_not_recorded, unit_.place().at, unit_.plan().handler, item.message(),
                                  "Handler finished, and PostgreSQL refused its result: " + *why);
}

void ClaimedUnit::record_later(bool settles) {
  if (settles) {
    unit_.services().run_log->warn(
        Code::result_pending, unit_.place().at, unit_.plan().handler, ended_.front()->offset(),
        "Handler finished; its result is recorded once PostgreSQL answers (store_down is run): " + unit_.result().why);
  }
  unit_.services().claims->pending().add({unit_.topic().handler, owner_, unit_.place().at, ends_, waiting_});
}

/// The message took effect, and its result could not be recorded. `goes_on`: the process tries it later.
void ClaimedUnit::settle_lost(UnitItem& item, bool goes_on) {
  // The claim may have no row any more, because the database went back to an earlier time. Then this note is the only
  // sign that the message took effect.
  unit_.memory().note_unrecorded(*item.id);
  const std::string consequence =
      unit_.plan().unknown == UnknownPolicy::rerun
          ? "the message may run again"
          : "the message is parked for an operator when its lease ends (at once, if the database has lost its claim)";
  const auto& run_log = *unit_.services().run_log;
  const std::string* const refused = refusal_of(item);
  if (refused == nullptr && goes_on) {
    run_log.warn(Code::result_pending, unit_.place().at, unit_.plan().handler, item.message(),
                 "Handler finished, but PostgreSQL became unavailable before its result was recorded (" +
                     unit_.result().why + "). This process goes on trying. Until then, " + consequence);
  } else {
    const Code code = refused == nullptr ? Code::claim_lost : Code::result_not_recorded;
    const std::string what =
        refused == nullptr ? "its claim was lost meanwhile" : "PostgreSQL refused its result (" + *refused + ")";
    run_log.error(code, unit_.place().at, unit_.plan().handler, item.message(),
                  "Handler finished, but " + what + ": " + consequence);
  }
  unit_.block(item);
}

}  // namespace turnstile::detail
