// What a TokenReader shows and writes of all parts of a log (tokens/parts.hpp).

#include <unistd.h>

#include <map>
#include <thread>
#include <utility>

#include "permits/permits_view.hpp"
#include "permits/token_reader_impl.hpp"
#include "support/process_name.hpp"
#include "tokens/parts.hpp"

namespace turnstile {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Outcome = tokens::Effects::Outcome;
using tokens::Count;

/// The lease of the member that an empty log is divided by.
constexpr std::uint32_t kLeaseMs = 10'000;
/// Kafka's brokers refuse a record of more than about 1,048,000 bytes, unless they are configured otherwise.
constexpr std::size_t kMostOpened = 900'000;
/// The pause before a Divided or a VersionSet is written again, because the log did not accept it.
constexpr milliseconds kDivideAgain{200};
/// As kDivideAgain, after a limit that another program set first.
constexpr milliseconds kSetAgain{50};

void rest_until(steady_clock::time_point late, milliseconds pause) {
  std::this_thread::sleep_until(std::min(late, steady_clock::now() + pause));
}

std::int64_t now_ms() {
  return std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string who(const tokens::MemberEntry& member) {
  return process_name(member.about.client, member.about.host, member.about.pid);
}

/// The limits that operators have set must fit into an Opened for each part. Empty: they do.
std::string too_much_is_set(const tokens::State& state, std::uint32_t parts) {
  std::map<std::uint32_t, tokens::Opened> all;
  for (const auto& [name, limiter] : state.limiters) {
    if (limiter.set) all[tokens::part_of(name, parts)].sets.push_back({.limiter = name, .limit = *limiter.set});
  }
  for (auto& [part, opened] : all) {
    const std::size_t count = opened.sets.size();
    const tokens::Event event{.member = ~tokens::MemberId{0}, .epoch = 1, .seq = 1, .body = std::move(opened)};
    const std::size_t bytes = tokens::encode(event).size();
    if (bytes <= kMostOpened) continue;
    return "operators have set the limits of " + std::to_string(count) +
           " limiters that would live in one part. They need " + std::to_string(bytes) +
           " bytes in one record, and at most " + std::to_string(kMostOpened) +
           " are allowed. Divide the log into more parts";
  }
  return {};
}

/// Why the log cannot be divided now. Empty: it can.
std::string cannot_divide(const tokens::State& state, std::uint32_t parts) {
  std::string old, reserves;
  for (const auto& [id, member] : state.members) {
    if (member.about.knows < tokens::kDividedVersion) old += (old.empty() ? "" : ", ") + who(member);
    if (state.reserves.contains(id)) reserves += (reserves.empty() ? "" : ", ") + who(member);
  }
  if (!old.empty())
    return "these members run a build that cannot read a divided log: " + old + ". Update them first, then divide it";
  if (state.reserves.empty()) return too_much_is_set(state, parts);
  return "permits are reserved for processes that may be without the log ([limits] reserve): " +
         (reserves.empty() ? std::string("by processes that have ended; their reserve ends by itself") : reserves) +
         ". Remove reserve from their configuration, restart them, divide the log, then set it again";
}

}  // namespace

void TokenReader::must_be_known() const {
  if (!impl_->known || impl_->state.last > position()) fail_truncated(*impl_);
}

PermitsView TokenReader::permits() const {
  must_be_known();
  std::vector<detail::PartView> views{detail::part_view_of(impl_->state)};
  for (std::uint32_t part = 1; tokens::is_directory(impl_->state) && part < parts(); ++part) {
    const Impl& other = impl_->other(part);
    if (!other.known) fail_truncated(other);
    views.push_back(detail::part_view_of(other.state));
  }
  return detail::merged(std::move(views));
}

PermitsView TokenReader::permits_of_part() const {
  must_be_known();
  return detail::merged({detail::part_view_of(impl_->state)});
}

PermitsView TokenReader::permits_at_home_of(const std::string& limiter) const {
  must_be_known();
  std::vector<detail::PartView> views{detail::part_view_of(impl_->state)};
  if (tokens::is_directory(impl_->state)) {
    const Impl& home = impl_->other(tokens::part_of(limiter, parts()));
    if (!home.known) fail_truncated(home);
    views.push_back(detail::part_view_of(home.state));
  }
  return detail::merged(std::move(views));
}

void TokenReader::fail_truncated(const Impl& part) {
  throw TokenLogBroken(
      part.name + " was truncated: it begins at position " + std::to_string(part.begin) +
      (part.known ? ", and which members hold permits is known from position " + std::to_string(part.known_from) + " on"
                  : ", and no snapshot continues in it: it is unknown which members hold "
                    "permits"));
}

std::int64_t TokenReader::time_of(std::int64_t position, std::uint32_t part) const {
  const bool is_own = part == impl_->state.part;  // as of a reader that home_of() made
  const auto other = impl_->others.find(part);
  if (!is_own && (other == impl_->others.end() || !other->second)) return 0;
  const Impl& of = is_own ? *impl_ : *other->second;
  const std::int64_t at = position - of.first_time;
  if (at < 0 || at >= static_cast<std::int64_t>(of.times.size())) return 0;
  return of.times[static_cast<std::size_t>(at)];
}

// --- all parts -------------------------------------------------------------------------------------------------------

std::int64_t TokenReader::time_of(std::int64_t position) const { return time_of(position, impl_->state.part); }

std::uint32_t TokenReader::parts() const { return impl_->state.parts; }

std::unique_ptr<TokenReader> TokenReader::home_of(const std::string& limiter) const {
  const std::uint32_t part = tokens::part_of(limiter, parts());
  return std::unique_ptr<TokenReader>(
      new TokenReader(std::make_unique<Impl>(impl_->open_part(part), tokens::first_state(impl_->state, part))));
}

void TokenReader::refresh() {
  for (const auto& [part, other] : impl_->others) {
    if (other) other->catch_up();
  }
}

bool TokenReader::divide(std::uint32_t parts, milliseconds timeout) {
  if (parts < 2 || parts > tokens::kMostParts)
    throw Error(Code::limit_invalid, "a token log can have 2 to " + std::to_string(tokens::kMostParts) +
                                         " parts, not " + std::to_string(parts));
  impl_->read_to(impl_->end - 1);
  must_be_known();
  const auto late = detail::deadline_after(timeout);
  const tokens::State& state = impl_->state;
  // The log accepts a new version only from members that know it.
  tokens::Event own{.member = Impl::random_id(), .epoch = 1, .seq = 0, .body = {}};
  const auto say_as_member = [&](decltype(tokens::Event::body) body) {
    ++own.seq;
    own.body = std::move(body);
    return impl_->write(own, late);
  };
  bool divided = false;
  while (!divided && state.parts == 1) {
    if (std::string why = cannot_divide(state, parts); !why.empty())
      throw Error(Code::operation_refused, impl_->name + " was not divided: " + why);
    std::optional<Outcome> outcome;
    if (state.members.empty()) {
      outcome = say_as_member(tokens::Joined{.host = detail::host_name(),
                                             .pid = static_cast<std::uint32_t>(::getpid()),
                                             .client = "turnstile limits divide",
                                             .lease_ms = kLeaseMs,
                                             .knows = tokens::kDividedVersion});
    } else if (state.version < tokens::kDividedVersion) {
      outcome = impl_->say(tokens::VersionSet{tokens::kDividedVersion}, late);
    } else {
      const auto& [witness, member] = *state.members.begin();
      outcome = impl_->say(
          tokens::Divided{
              .parts = parts, .division = Impl::random_id(), .witness = witness, .joined_at = member.joined_at},
          late);
      divided = outcome == Outcome::applied;
    }
    if (!outcome) return false;
    if (*outcome != Outcome::applied) rest_until(late, kDivideAgain);
  }
  if (state.members.contains(own.member)) (void)say_as_member(tokens::Left{});
  if (state.parts != parts)
    throw Error(Code::operation_refused, impl_->name + " is divided already, into " + std::to_string(state.parts) +
                                             " parts. The number of parts cannot be changed");
  return true;
}

std::string TokenReader::why_not_divided(std::uint32_t parts) const { return cannot_divide(impl_->state, parts); }

std::vector<std::string> TokenReader::still_moving() const {
  std::vector<std::string> all;
  for (const auto& [name, limiter] : impl_->state.limiters) {
    if (tokens::is_directory(impl_->state) && limiter.held() + limiter.reserved > 0) all.push_back(name);
  }
  return all;
}

// --- limits ----------------------------------------------------------------------------------------------------------

bool TokenReader::set_limit(const std::string& limiter, std::optional<std::int64_t> limit, milliseconds timeout,
                            const std::string& by) {
  if (limiter.empty() || limiter.size() > tokens::kLongestName)
    throw Error(Code::limit_invalid,
                "the name of a limiter has 1 to " + std::to_string(tokens::kLongestName) + " bytes");
  if (limit && (*limit < 0 || static_cast<Count>(*limit) > tokens::kMostPermits)) {
    throw Error(Code::limit_invalid, "limiter '" + limiter + "': a limit must be from 0 (paused) to " +
                                         std::to_string(tokens::kMostPermits) + ", not " + std::to_string(*limit));
  }
  impl_->read_to(impl_->end - 1);
  must_be_known();
  const auto late = detail::deadline_after(timeout);
  for (;;) {
    const std::uint32_t part = tokens::part_of(limiter, parts());
    Impl& home = part == 0 ? *impl_ : impl_->other(part);
    if (!home.known) fail_truncated(home);
    home.catch_up();
    if (home.state.closed) {
      const auto opened = tokens::moved_out(impl_->state, part);
      if (!opened)
        throw Error(
            Code::operation_refused,
            "limiter '" + limiter +
                "': the token log was divided, and this limiter waits until the handlers that began before have "
                "ended. Set its limit again then");
      if (!home.say(*opened, late)) return false;
      if (home.state.closed) rest_until(late, kSetAgain);
      continue;
    }
    if (!limit && !home.state.limiters.contains(limiter)) return true;
    tokens::LimitSet word{.limiter = limiter,
                          .limit = {},
                          .seen = home.state.last,
                          .by = by.substr(0, tokens::kLongestName),
                          .at_ms = now_ms()};
    if (limit) word.limit = static_cast<Count>(*limit);
    const auto outcome = home.say(word, late);
    impl_->why_not = home.why_not;
    if (!outcome) return false;
    if (*outcome == Outcome::applied) return true;
    if (*outcome == Outcome::elsewhere && part > 0)
      throw TokenLogBroken(home.name + " does not accept limiter '" + limiter +
                           "', although it lives there: it is a part of another division of the log");
    if (*outcome == Outcome::stale) rest_until(late, kSetAgain);
    if (*outcome == Outcome::not_allowed)
      throw Error(Code::too_many_limiters, "limiter '" + limiter + "': the domain already has its maximum of " +
                                               std::to_string(tokens::kMostLimiters) + " limiters");
  }
}

}  // namespace turnstile
