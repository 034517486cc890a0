// States as bytes, and their digests (tokens/snapshot.hpp).

#include "tokens/snapshot.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/tokens/arbitrary.hpp"

namespace turnstile::tokens {
namespace {

RC_GTEST_PROP(TokensSnapshot, what_was_saved_is_restored, ()) {
  const State state = replay(any_log());
  const auto restored = restore(save(state));
  RC_ASSERT(restored.has_value());
  RC_ASSERT(*restored == state);
  RC_ASSERT(restored->limit_history.changes == state.limit_history.changes);
}

RC_GTEST_PROP(TokensSnapshot, a_snapshot_and_the_rest_of_the_log_make_the_same_state, ()) {
  const std::vector<Event> log = any_log();
  const auto cut = *rc::gen::inRange<std::size_t>(0, log.size() + 1);
  auto state = restore(save(replay({log.begin(), log.begin() + static_cast<std::ptrdiff_t>(cut)})));
  RC_ASSERT(state.has_value());
  for (std::size_t i = cut; i < log.size(); ++i) apply(*state, static_cast<Position>(i), log[i]);
  RC_ASSERT(*state == replay(log));
  RC_ASSERT(digest(*state) == digest(replay(log)));
}

RC_GTEST_PROP(TokensSnapshot, states_that_differ_have_other_digests, ()) {
  const std::vector<Event> log = any_log();
  std::vector<Event> other = log;
  const auto where = *rc::gen::inRange<std::size_t>(0, log.size());
  other[where] = *any_event();
  const State a = replay(log), b = replay(other);
  RC_ASSERT((a == b) == (digest(a) == digest(b)));
}

RC_GTEST_PROP(TokensSnapshot, any_bytes_are_refused_or_the_state_that_was_saved, ()) {
  const State state = replay(any_log());
  std::string bytes = save(state);
  for (int times = *rc::gen::inRange(1, 4); times > 0; --times)
    bytes[*rc::gen::inRange<std::size_t>(0, bytes.size())] = *rc::gen::arbitrary<char>();
  const auto restored = restore(bytes);
  if (restored) RC_ASSERT(*restored == state);
  if (restored) RC_ASSERT(restored->limit_history.changes == state.limit_history.changes);
}

TEST(TokensSnapshot, garbage_is_refused) {
  EXPECT_FALSE(restore(""));
  EXPECT_FALSE(restore("not a snapshot"));
  EXPECT_TRUE(restore(save(State{})));
}

/// The digest of such a log does not cover them.
TEST(TokensSnapshot, fields_of_a_divided_log_are_refused_in_one_of_one_part) {
  using namespace std::string_literals;
  const std::string saved = save(State{});
  EXPECT_FALSE(restore(saved + "\x80\x01\x05"s)) << "part 5";
  EXPECT_FALSE(restore(saved + "\x89\x01\x07\0\0\0\0\0\0\0"s)) << "division 7";
  EXPECT_FALSE(restore(saved + "\x90\x01\x01"s)) << "closed";
}

/// The digest does not cover them.
TEST(TokensSnapshot, what_mattered_when_a_member_joined_is_forgotten) {
  State state;
  apply(
      state, 0,
      {1, 1, 1,
       Joined{.host = "host", .pid = 7, .client = "client", .lease_ms = 1'000, .was = {9}, .division = 5, .part = 0}});
  ASSERT_EQ(state.members.size(), 1U);
  EXPECT_EQ(state.members.at(1).about.division, 0U);
  EXPECT_TRUE(state.members.at(1).about.was.empty());
  state.members.at(1).about.division = 5;  // as in a damaged snapshot
  state.members.at(1).about.part = 2;
  const auto restored = restore(save(state));
  ASSERT_TRUE(restored);
  EXPECT_EQ(restored->members.at(1).about.division, 0U);
  EXPECT_EQ(restored->members.at(1).about.part, 0U);
}

/// Members of this build and of one that does not know it must agree.
TEST(TokensSnapshot, who_set_a_limit_is_kept_and_is_no_part_of_the_digest) {
  const State unknown = replay({{7, 1, 1, LimitSet{"psp", 5, kNowhere}}});
  const State known = replay({{7, 1, 1, LimitSet{"psp", 5, kNowhere, "anna@ops-1", 1'772'373'909'000}}});
  EXPECT_EQ(digest(unknown), digest(known));
  EXPECT_EQ(unknown, known);
  const auto restored = restore(save(known));
  ASSERT_TRUE(restored);
  ASSERT_EQ(restored->limit_history.changes.size(), 1U);
  EXPECT_EQ(restored->limit_history.changes[0].at, 0);
  EXPECT_EQ(restored->limit_history.changes[0].set.by, "anna@ops-1");
  EXPECT_EQ(restored->limit_history.changes[0].set.at_ms, 1'772'373'909'000);
}

TEST(TokensSnapshot, the_last_changes_of_limits_are_kept) {
  std::vector<Event> log;
  for (Position at = 0; at < 150; ++at) log.push_back({7, 1, 1, LimitSet{"psp", 5, at - 1, std::string(300, 'x')}});
  const auto changes = replay(log).limit_history.changes;
  ASSERT_EQ(changes.size(), kRememberedLimitChanges);
  EXPECT_EQ(changes.front().at, 50);
  EXPECT_EQ(changes.back().at, 149);
  EXPECT_EQ(changes.back().set.by.size(), kLongestName);
}

/// Different versions of this program compare the digest, so it must not change when the code changes.
TEST(TokensSnapshot, the_digest_of_a_log_is_known) {
  const State state = replay({{1, 1, 1, Joined{"host", 1, "client", 1'000, 1, 1}},
                              {1, 1, 2, Acquire{{.limiter = "psp", .limit = 4, .wants = 3, .busy = 1}}},
                              {1, 1, 3, PartitionsClaimed{{{{"orders", 0}, 1, kNowhere}}}}});
  EXPECT_EQ(digest(state), 6819994189600898993U);
}

}  // namespace
}  // namespace turnstile::tokens
