// The state machine (tokens/state.hpp), checked against states that no log may ever cause. The transcripts
// (tests/simulation/transcripts) show what single events mean.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "tests/unit/tokens/arbitrary.hpp"
#include "tokens/apply.hpp"

namespace turnstile::tokens {
namespace {

using Outcome = Effects::Outcome;

/// A Keep that names a limiter twice may raise its limit with one line and lower it with the next. No member writes
/// such a Keep.
bool names_twice(const Event& event, const std::string& name) {
  const auto* keep = std::get_if<Keep>(&event.body);
  return keep != nullptr && std::count_if(keep->lines.begin(), keep->lines.end(),
                                          [&](const Line& line) { return line.limiter == name; }) > 1;
}

RC_GTEST_PROP(TokensState, never_more_held_than_the_limit_but_what_was_held_when_it_was_lowered, ()) {
  State state;
  for (const Event& event : any_log()) {
    std::map<std::string, Count> before;
    for (const auto& [name, limiter] : state.limiters) before[name] = limiter.held();
    apply(state, state.last + 1, event);
    for (const auto& [name, limiter] : state.limiters)
      RC_ASSERT(limiter.held() <= std::max(limiter.limit(), before[name]) || names_twice(event, name));
  }
}

/// It is unknown whether a member that is cut off is at work. No other member may have its reserved permits, whatever
/// happens to it.
RC_GTEST_PROP(TokensState, what_is_reserved_and_what_is_held_fit_together_unless_the_limit_was_lowered, ()) {
  State state;
  for (const Event& event : any_log()) {
    std::map<std::string, Count> before;
    for (const auto& [name, limiter] : state.limiters) before[name] = limiter.held() + limiter.reserved;
    apply(state, state.last + 1, event);
    std::map<std::string, Count> reserved;
    for (const auto& [id, reserve] : state.reserves) {
      for (const auto& [name, count] : reserve.of) reserved[name] += count;
    }
    for (const auto& [name, limiter] : state.limiters) {
      RC_ASSERT(limiter.reserved == reserved[name]);
      RC_ASSERT(limiter.held() + limiter.reserved <= std::max(limiter.limit(), before[name]) ||
                names_twice(event, name));
    }
  }
}

RC_GTEST_PROP(TokensState, replaying_what_a_member_said_changes_nothing, ()) {
  const std::vector<Event> log = any_log();
  State state;
  std::vector<Event> counted;
  for (const Event& event : log) {
    const Effects effects = apply(state, state.last + 1, event);
    const bool of_a_member =
        !std::holds_alternative<LimitSet>(event.body) && !std::holds_alternative<VersionSet>(event.body);
    if (effects.outcome == Outcome::applied && of_a_member) counted.push_back(event);
    for (const Event& old : counted) {
      State again = state;
      RC_ASSERT(apply(again, state.last + 1, old).outcome != Outcome::applied);
      again.last = state.last;
      again.ignored = state.ignored;
      RC_ASSERT(again == state);
    }
  }
}

/// A Keep leaves such lines out.
RC_GTEST_PROP(TokensState, a_line_that_the_state_shows_changes_nothing, ()) {
  State state = replay(any_log());
  for (const auto& [name, limiter] : State(state).limiters) {
    for (const auto& [id, holding] : limiter.holdings) {
      if (!state.members.contains(id)) continue;
      Line line{.limiter = name,
                .limit = holding.limit,
                .strict = holding.strict,
                .wants = holding.wants,
                .urgent = holding.urgent,
                .least = holding.least,
                .busy = holding.busy,
                .given_back = holding.given_back,
                .set_aside = holding.set_aside,
                .outlives_fence = holding.outlives_fence,
                .reserve = state.reserved(name, id)};
      RC_ASSERT(shows(state, id, line) || holding.draining);
      if (*rc::gen::inRange(0, 2) == 0) {  // differs in some of its members, perhaps
        const Line other = any_line();
        switch (*rc::gen::inRange(0, 10)) {
          case 0: line.limit = other.limit; break;
          case 1: line.strict = other.strict; break;
          case 2: line.wants = other.wants; break;
          case 3: line.urgent = other.urgent; break;
          case 4: line.least = other.least; break;
          case 5: line.busy = other.busy; break;
          case 6: line.given_back = other.given_back; break;
          case 7: line.set_aside = other.set_aside; break;
          case 8: line.outlives_fence = other.outlives_fence; break;
          default: line.reserve = other.reserve; break;
        }
      }
      if (!shows(state, id, line)) continue;
      const MemberEntry& member = state.members.at(id);
      State with = state, without = state;
      apply(with, state.last + 1, {id, member.epoch, member.seq + 1, Keep{{line}, {}}});
      apply(without, state.last + 1, {id, member.epoch, member.seq + 1, Keep{}});
      Holding& after = with.limiters.at(name).holdings.at(id);
      if (after.wants == 0) after.in_line_since = holding.in_line_since;
      RC_ASSERT(with == without);
    }
  }
}

RC_GTEST_PROP(TokensState, what_is_refused_leaves_no_trace, ()) {
  State state = replay(any_log());
  State after = state;
  const Effects effects = apply(after, state.last + 1, *any_event());
  if (effects.outcome == Outcome::applied || effects.outcome == Outcome::stale ||
      effects.outcome == Outcome::not_allowed)
    return;  // a member that writes a void event has written something all the same
  RC_ASSERT(after.ignored == state.ignored + 1);
  after.last = state.last;
  after.ignored = state.ignored;
  after.unknown = state.unknown;
  RC_ASSERT(after == state);
}

/// Shares are useless if a permit stays idle while a member that may have it has less than its share. Permits that are
/// set aside for members that are cut off belong to no member.
RC_GTEST_PROP(TokensState, no_permit_is_free_while_somebody_has_less_than_its_share, ()) {
  const State state = replay(any_log());
  for (const auto& [name, limiter] : state.limiters) {
    const bool free = limiter.held() < limiter.shared();
    for (const auto& [id, holding] : limiter.holdings) RC_ASSERT(!free || holding.held() >= holding.share);
  }
}

TEST(TokensState, what_is_not_above_the_last_position_changes_nothing) {
  State state;
  apply(state, 5, {1, 1, 1, Joined{"host", 1, "client", 1'000, 1, 1}});
  const State before = state;
  EXPECT_EQ(apply(state, 5, {1, 1, 2, Left{}}).outcome, Outcome::duplicate);
  EXPECT_EQ(apply(state, -7, {1, 1, 2, Left{}}).outcome, Outcome::duplicate);
  EXPECT_EQ(state, before);
}

TEST(TokensState, nobodys_memory_is_filled_from_outside) {
  State state;
  const Joined joined{"host", 1, "client", 1'000, 1, 1};
  for (MemberId id = 1; id <= kMostMembers; ++id)
    ASSERT_EQ(apply(state, state.last + 1, {id, 1, 1, joined}).outcome, Outcome::applied);
  EXPECT_EQ(apply(state, state.last + 1, {kMostMembers + 1, 1, 1, joined}).outcome, Outcome::not_allowed);

  std::uint64_t seq = 1;
  const auto acquire = [&](std::size_t limiter) {
    return apply(state, state.last + 1,
                 {1, 1, ++seq, Acquire{{.limiter = std::to_string(limiter), .limit = 1, .wants = 1}}})
        .outcome;
  };
  for (std::size_t limiter = 0; limiter < kDefaultLimiters; ++limiter) ASSERT_EQ(acquire(limiter), Outcome::applied);
  EXPECT_EQ(acquire(kDefaultLimiters), Outcome::not_allowed);
}

TEST(TokensState, the_last_lives_are_remembered_and_the_first_forgotten) {
  State state;
  const Joined joined{"host", 1, "client", 1'000, 1, 1};
  for (MemberId id = 1; id <= kRememberedLives + 1; ++id) {
    apply(state, state.last + 1, {id, 1, 1, joined});
    apply(state, state.last + 1, {id, 1, 2, Left{}});
  }
  EXPECT_EQ(state.ended.size(), kRememberedLives);
  EXPECT_EQ(apply(state, state.last + 1, {2, 1, 1, joined}).outcome, Outcome::revived);
  EXPECT_EQ(apply(state, state.last + 1, {1, 1, 1, joined}).outcome, Outcome::applied);
}

TEST(TokensState, a_billion_permits_are_counted_right) {
  State state;
  for (MemberId id = 1; id <= 3; ++id) {
    apply(state, state.last + 1, {id, 1, 1, Joined{"host", 1, "client", 1'000, 1, 1}});
    apply(state, state.last + 1,
          {id, 1, 2, Acquire{{.limiter = "all", .limit = kMostPermits, .wants = kMostPermits, .urgent = ~Count{0}}}});
  }
  EXPECT_EQ(state.limiters.at("all").held(), kMostPermits);
  EXPECT_EQ(state.holding("all", 3)->share, kMostPermits / 3);
}

}  // namespace
}  // namespace turnstile::tokens
