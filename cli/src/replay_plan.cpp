#include "replay_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "turnstile/dead_reason.hpp"

namespace turnstile::cli {

namespace {

/// These may have taken effect: an operator decides one by one, or for all of a reason.
const std::set<DeadReason> kUndecided{DeadReason::too_old, DeadReason::unknown, DeadReason::outside_window,
                                      DeadReason::no_session, DeadReason::forged};
/// These become dead letters again unless something else has changed: the topic's settings, or the cause of the crash.
const std::set<DeadReason> kDiesAgain{DeadReason::missing_id, DeadReason::mismatch, DeadReason::killed_process,
                                      DeadReason::unreadable};
/// Of these, those whose cause is in the record, so that an edit may have removed it. An edit keeps the id of a mismatch.
const std::set<DeadReason> kMendedByEdit{DeadReason::missing_id, DeadReason::killed_process, DeadReason::unreadable};

}  // namespace

ReplayPart replay_part(const ReplayCase& letter) {
  if (letter.is_in_doubt) return ReplayPart::in_doubt;
  const auto known = parse_dead_reason(std::string(letter.reason));
  if (known == DeadReason::duplicate) return ReplayPart::has_run;
  if (letter.is_asked_for || !known) return ReplayPart::published;
  if (letter.is_edited && kMendedByEdit.contains(*known)) return ReplayPart::published;
  if (known == DeadReason::dropped) return ReplayPart::dropped;
  if (kDiesAgain.contains(*known)) return ReplayPart::dies_again;
  return kUndecided.contains(*known) ? ReplayPart::undecided : ReplayPart::published;
}

std::string why_left_out(ReplayPart part, const std::string& reason) {
  switch (part) {
    case ReplayPart::published: break;
    case ReplayPart::in_doubt:
      return "may have been published by a replay that did not end; turnstile dlq show NUMBER tells what to do";
    case ReplayPart::has_run:
      return "duplicates, whose messages have taken effect; to replay one all the same: turnstile dlq replay NUMBER --again";
    case ReplayPart::dies_again:
      return fmt::format("{}, which would fail for the same reason again; once that is fixed: --all --reason {}",
                         reason, reason);
    case ReplayPart::dropped: return "dropped by an operator; to run them after all: --all --reason dropped";
    case ReplayPart::undecided:
      if (reason == to_text(DeadReason::forged)) return reason + "; call security, and replay none of them";
      if (reason == to_text(DeadReason::unknown))
        return reason +
               ", so an operator has to decide about each: turnstile inbox unpark ID --done, or --rerun and then turnstile dlq "
               "replay NUMBER";
      return fmt::format(
          "{0}, so an operator has to decide; to replay one: turnstile dlq replay NUMBER; to replay all: --all "
          "--reason {0}",
          reason);
  }
  return "";
}

std::optional<std::chrono::nanoseconds> parse_rate(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 1 || number > 1'000'000) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  using std::chrono::nanoseconds;
  if (unit == "/s") return nanoseconds(std::chrono::seconds(1)) / number;
  if (unit == "/m") return nanoseconds(std::chrono::minutes(1)) / number;
  if (unit == "/h") return nanoseconds(std::chrono::hours(1)) / number;
  return std::nullopt;
}

Pace::Clock::time_point Pace::next(Clock::time_point now) {
  if (!interval_) return now;
  const auto at = std::max(due_, now);
  due_ = at + *interval_;
  return at;
}

}  // namespace turnstile::cli
