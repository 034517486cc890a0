// A token log that is divided into parts (tokens/parts.hpp).

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/tokens/arbitrary.hpp"
#include "tokens/parts.hpp"
#include "tokens/snapshot.hpp"
#include "tokens/wire.hpp"

namespace turnstile::tokens {
namespace {

using Outcome = Effects::Outcome;

constexpr std::uint64_t kDivision = 77;

Joined member_of_version(std::uint32_t knows) {
  return {.host = "host", .pid = 1, .client = "client", .lease_ms = 1'000, .weight = 1, .knows = knows};
}
/// A member of a part above 0.
Joined member_of(std::uint64_t division, std::uint32_t part) {
  Joined joined = member_of_version(2);
  joined.division = division;
  joined.part = part;
  return joined;
}

/// With the first member as witness, as one_part() has it.
Divided divided(std::uint32_t parts, std::uint64_t division = kDivision) { return {parts, division, 1, 0}; }

Line line(const std::string& limiter, Count wants, Count given_back = 0) {
  return {.limiter = limiter, .limit = 3, .wants = wants, .given_back = given_back};
}

/// A part of a log, and the outcomes of the events that are written to it.
struct Part {
  State state{};
  std::uint64_t seq = 0;

  Outcome write(MemberId member, decltype(Event::body) body) {
    return apply(state, state.last + 1, {member, 1, ++seq, std::move(body)}).outcome;
  }
};

/// Part 0 with two members, of which the first has all permits.
Part one_part() {
  Part part;
  for (const MemberId member : {1U, 2U}) EXPECT_EQ(part.write(member, member_of_version(2)), Outcome::applied);
  EXPECT_EQ(part.write(1, Keep{{line("psp", 3)}, {}}), Outcome::applied);
  EXPECT_EQ(part.write(0, VersionSet{kDividedVersion}), Outcome::applied);
  return part;
}

TEST(TokensDivision, each_limiter_has_one_home_which_is_never_the_directory) {
  std::vector<int> limiters(8);
  for (int i = 0; i < 7'000; ++i) {
    const std::uint32_t home = part_of("limiter-" + std::to_string(i), 8);
    ASSERT_GE(home, 1U);
    ASSERT_LT(home, 8U);
    ++limiters[home];
  }
  for (std::uint32_t part = 1; part < 8; ++part) EXPECT_NEAR(limiters[part], 1'000, 150) << part;
  EXPECT_EQ(part_of("psp", 1), 0U);
  // A limiter never moves again: its home is part of the meaning of the log.
  EXPECT_EQ(part_of("psp", 64), 20U);
  EXPECT_EQ(part_of("mail", 64), 23U);
}

TEST(TokensDivision, is_refused_in_a_log_of_an_earlier_version) {
  Part part;
  part.write(1, member_of_version(1));
  EXPECT_EQ(part.write(0, VersionSet{kDividedVersion}), Outcome::not_allowed) << "a member does not know it";
  EXPECT_EQ(part.write(0, divided(8)), Outcome::unknown);
  EXPECT_EQ(part.state.parts, 1U);
}

TEST(TokensDivision, is_refused_for_numbers_out_of_range_and_the_second_time) {
  Part part = one_part();
  EXPECT_EQ(part.write(0, divided(1)), Outcome::not_allowed);
  EXPECT_EQ(part.write(0, divided(kMostParts + 1)), Outcome::not_allowed);
  EXPECT_EQ(part.write(0, divided(8)), Outcome::applied);
  EXPECT_EQ(part.write(0, divided(16, 5)), Outcome::elsewhere);
  EXPECT_EQ(part.state.parts, 8U);
  EXPECT_EQ(part.state.division, kDivision);
}

/// Its process may use it while it cannot read that the log was divided.
TEST(TokensDivision, is_refused_while_a_member_has_a_reserve) {
  Part part = one_part();
  Line reserves = line("mail", 0);
  reserves.set_aside = reserves.reserve = 2;
  part.write(1, Keep{{reserves}, {}});
  EXPECT_EQ(part.write(0, divided(8)), Outcome::not_allowed);
  reserves.reserve = 0;
  part.write(1, Keep{{reserves}, {}});
  EXPECT_EQ(part.write(0, divided(8)), Outcome::applied);
}

TEST(TokensDivision, the_directory_grants_nothing_and_permits_come_back_to_it) {
  Part part = one_part();
  ASSERT_EQ(part.state.held("psp", 1), 3U);
  part.write(0, divided(8));
  EXPECT_EQ(part.state.held("psp", 1), 3U);
  EXPECT_EQ(part.state.holding("psp", 1)->share, 0U) << "it returns what is idle";
  part.write(2, Acquire{line("psp", 2)});
  part.write(2, Acquire{line("mail", 2)});
  part.write(1, Release{line("psp", 3, 2)});
  EXPECT_EQ(part.state.held("psp", 1), 1U);
  EXPECT_EQ(part.state.held("psp", 2), 0U);
  EXPECT_EQ(part.state.held("mail", 2), 0U);
  EXPECT_EQ(part.write(0, LimitSet{"psp", 9, part.state.last}), Outcome::elsewhere);
}

TEST(TokensDivision, a_part_is_opened_by_what_operators_had_set_once_nobody_has_permits_of_its_limiters) {
  Part directory = one_part();
  directory.write(0, LimitSet{"psp", 2, directory.state.last});
  directory.write(0, divided(8));
  const std::uint32_t home = part_of("psp", 8);
  EXPECT_FALSE(moved_out(directory.state, home));
  EXPECT_TRUE(is_in_use(directory.state));
  EXPECT_EQ(moved_out(directory.state, home % 7 + 1), (Opened{kDivision, home % 7 + 1, {}}))
      << "another part does not wait";
  directory.write(1, Left{});
  EXPECT_FALSE(is_in_use(directory.state));
  ASSERT_EQ(moved_out(directory.state, home), (Opened{kDivision, home, {{"psp", 2}}}));

  Part part{first_state(directory.state, home)};
  part.write(1, member_of(kDivision, part.state.part));
  part.write(1, Keep{{line("psp", 3)}, {}});
  EXPECT_EQ(part.state.held("psp", 1), 0U) << "not open yet";
  EXPECT_EQ(part.write(0, LimitSet{"psp", 1, part.state.last}), Outcome::stale) << "what was set before comes first";
  EXPECT_EQ(part.write(0, Opened{kDivision + 1, home, {}}), Outcome::stale) << "of another division";
  EXPECT_EQ(part.write(0, *moved_out(directory.state, home)), Outcome::applied);
  EXPECT_EQ(part.state.held("psp", 1), 2U);
  EXPECT_EQ(part.write(0, LimitSet{"psp", std::nullopt, part.state.last}), Outcome::applied);
  EXPECT_EQ(part.write(0, *moved_out(directory.state, home)), Outcome::stale) << "once";
  EXPECT_EQ(part.state.held("psp", 1), 3U);
}

TEST(TokensDivision, a_part_refuses_limiters_of_other_homes) {
  const Part directory = [] {
    Part made = one_part();
    made.write(0, divided(8));
    return made;
  }();
  const std::uint32_t home = part_of("psp", 8), other = home % 7 + 1;
  Part part{first_state(directory.state, other)};
  part.write(1, member_of(kDivision, part.state.part));
  EXPECT_EQ(part.write(0, Opened{kDivision, other, {{"psp", 2}}}), Outcome::elsewhere);
  EXPECT_EQ(part.write(0, Opened{kDivision, other, {}}), Outcome::applied);
  EXPECT_EQ(part.write(1, Keep{{line("psp", 3)}, {}}), Outcome::elsewhere);
  EXPECT_EQ(part.write(0, LimitSet{"psp", 9, part.state.last}), Outcome::elsewhere);
  EXPECT_FALSE(part.state.limiters.contains("psp"));
}

TEST(TokensDivision, all_parts_that_can_open_are_found_at_once) {
  Part directory = one_part();
  directory.write(0, LimitSet{"mail", 7, directory.state.last});
  directory.write(0, divided(64));
  const Openings all = moved_out(directory.state);
  EXPECT_EQ(all.size(), 62U);
  EXPECT_FALSE(all.contains(part_of("psp", 64)));
  for (std::uint32_t part = 1; part < 64; ++part) {
    const auto found = all.find(part);
    EXPECT_EQ(moved_out(directory.state, part), found == all.end() ? std::nullopt : std::optional(found->second));
  }
  EXPECT_EQ(all.at(part_of("mail", 64)).sets, (std::vector<Opened::Set>{{"mail", 7}}));
}

/// While part 0 still has permits of limiters that live here.
TEST(TokensDivision, a_copy_of_another_parts_opened_opens_nothing) {
  Part directory = one_part();
  directory.write(0, divided(8));
  const std::uint32_t home = part_of("psp", 8), other = home % 7 + 1;
  const auto opened = moved_out(directory.state, other);
  ASSERT_TRUE(opened);
  ASSERT_FALSE(moved_out(directory.state, home));
  Part part{first_state(directory.state, home)};
  EXPECT_EQ(part.write(0, *opened), Outcome::elsewhere);
  EXPECT_TRUE(part.state.closed);
  EXPECT_EQ(directory.write(0, *opened), Outcome::stale);
}

/// As in a new topic of the same name, to which an earlier Divided comes late.
TEST(TokensDivision, a_division_names_a_member_of_its_log) {
  Part part = one_part();
  EXPECT_EQ(part.write(0, Divided{8, kDivision, 9, 0}), Outcome::stale) << "no member";
  EXPECT_EQ(part.write(0, Divided{8, kDivision, 1, 1}), Outcome::stale) << "a member that joined elsewhere";
  part.write(1, Left{});
  EXPECT_EQ(part.write(0, divided(8)), Outcome::stale) << "not a member any more";
  EXPECT_EQ(part.write(0, Divided{8, kDivision, 2, 1}), Outcome::applied);
}

TEST(TokensDivision, members_of_another_division_are_void_in_a_part) {
  Part directory = one_part();
  directory.write(0, divided(8));
  Part part{first_state(directory.state, 3)};
  EXPECT_EQ(part.write(1, member_of(kDivision + 1, 3)), Outcome::elsewhere);
  EXPECT_EQ(part.write(1, member_of_version(2)), Outcome::elsewhere) << "as members of part 0 write it";
  EXPECT_EQ(part.write(1, member_of(kDivision, part.state.part)), Outcome::applied);
  EXPECT_EQ(restore(save(part.state)), part.state);
}

/// Its Keeps have digests of another state: the members of this part would halt.
TEST(TokensDivision, members_of_another_part_are_void_in_a_part) {
  Part directory = one_part();
  directory.write(0, divided(8));
  Part part{first_state(directory.state, 3)};
  EXPECT_EQ(part.write(1, member_of(kDivision, 3)), Outcome::applied);
  EXPECT_EQ(part.write(2, member_of(kDivision, 4)), Outcome::elsewhere);
  EXPECT_EQ(part.write(2, Keep{{}, Checkpoint{0, 5}}), Outcome::stranger);
  EXPECT_EQ(directory.write(5, member_of(kDivision, 4)), Outcome::elsewhere);
  EXPECT_EQ(part.state.members.size(), 1U);
}

/// Otherwise processes that die as they start would fill it, and nobody would expire them.
TEST(TokensDivision, a_directory_without_permits_takes_no_members) {
  Part directory = one_part();
  directory.write(0, divided(8));
  EXPECT_EQ(directory.write(3, member_of_version(2)), Outcome::applied) << "it can expire the dead";
  directory.write(1, Left{});
  ASSERT_TRUE(is_left(directory.state));
  EXPECT_EQ(directory.write(4, member_of_version(2)), Outcome::elsewhere);
  // A member can still begin a new epoch, to leave.
  EXPECT_EQ(apply(directory.state, directory.state.last + 1, {3, 2, 1, member_of_version(2)}).outcome,
            Outcome::applied);
  EXPECT_EQ(apply(directory.state, directory.state.last + 1, {3, 2, 2, Left{}}).outcome, Outcome::applied);
}

/// Whatever comes after it.
RC_GTEST_PROP(TokensDivision, nothing_is_granted_in_the_directory_ever_again, ()) {
  State state;
  for (const Event& event : any_log()) {
    std::map<std::string, Count> before;
    for (const auto& [name, limiter] : state.limiters) before[name] = limiter.held() + limiter.reserved;
    const bool was_directory = is_directory(state);
    apply(state, state.last + 1, event);
    if (!was_directory) continue;
    RC_ASSERT(is_directory(state));
    for (const auto& [name, limiter] : state.limiters) RC_ASSERT(limiter.held() + limiter.reserved <= before[name]);
  }
}

RC_GTEST_PROP(TokensDivision, a_part_that_is_closed_grants_nothing_and_its_snapshot_is_its_state, ()) {
  State directory;
  directory.parts = 2;
  directory.division = 1;
  State state = first_state(directory, 1);
  for (const Event& event : any_log(directory.division, 1)) {
    apply(state, state.last + 1, event);
    if (!state.closed) continue;
    for (const auto& [name, limiter] : state.limiters) RC_ASSERT(limiter.held() + limiter.reserved == 0U);
  }
  RC_ASSERT(restore(save(state)) == std::optional(state));
}

/// Members of builds before parts must agree with members of this one, and read its snapshots.
TEST(TokensDivision, a_log_of_one_part_has_the_digest_and_the_bytes_that_it_had_before) {
  State state;
  apply(state, 0, {1, 1, 1, Joined{"host", 1, "client", 1'000, 1, 1}});
  apply(state, 1, {1, 1, 2, Keep{{line("psp", 3)}, {}}});
  EXPECT_EQ(digest(state), 570989806408333584U);
  EXPECT_EQ(save(state).size(), 96U);
}

TEST(TokensDivision, its_events_are_read_as_they_were_written) {
  for (const Event& event :
       {Event{0, 1, 1, Divided{64, kDivision, 7, 5}}, Event{0, 1, 1, Opened{kDivision, 3, {}}},
        Event{0, 1, 1, member_of(kDivision, 3)}, Event{0, 1, 1, Opened{kDivision, 63, {{"psp", 2}, {"mail", 0}}}}})
    EXPECT_EQ(decode(encode(event)), event);
}

}  // namespace
}  // namespace turnstile::tokens
