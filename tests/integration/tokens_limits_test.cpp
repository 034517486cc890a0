// Limits that another member of the domain changes while consumers are under load, as an operator does.

#include <gtest/gtest.h>

#include "tokens_fixture.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

// A Keep event goes out four times in a lease. The test allows more time for a busy machine.
constexpr auto kLimitsLease = 4s;
constexpr Nanos kSoonEnough = 5 * kSecond_ns;

struct Load {
  LimitedFixture world{{.limit = 8, .lease = kLimitsLease, .session_timeout_ms = 20'000, .work_ms = 100}};
  Process one, other;
  std::shared_ptr<TokenDomain> operator_;

  Load() : one(world.consumer()), other(world.consumer()), operator_(world.member()) {
    world->publish(3'000);
    if (!world.all_at_work({&one, &other})) ADD_FAILURE() << world->output();
  }
  /// Sets the limit. Returns when the change was requested, and when it was in effect.
  std::pair<Nanos, Nanos> set(std::optional<std::int64_t> limit) {
    const Nanos said = monotonic_ns();
    EXPECT_TRUE(operator_->set_limit(world->topic(), limit, 20s));
    return {said, monotonic_ns()};
  }
  [[nodiscard]] int running() const {
    const Outside now = world.outside();
    return now.running(one.pid()) + now.running(other.pid());
  }
  /// Waits until `count` handlers run at once.
  [[nodiscard]] std::optional<Nanos> reaches(int count, Nanos since) const {
    std::optional<Nanos> when;
    static_cast<void>(
        eventually([&] { return (when = world.outside().first_with(count, {.from = since})).has_value(); }));
    return when;
  }
  void end() {
    for (Process* process : {&one, &other}) process->signal(SIGTERM);
    for (Process* process : {&one, &other}) EXPECT_EQ(process->wait(30s), 0) << world->output();
  }
};

TEST(TokensLimits, lowered_and_raised_under_load_they_hold_within_a_keep_and_revoke_nothing) {
  TURNSTILE_NEEDS_SERVERS();
  Load load;
  EXPECT_TRUE(load.reaches(8, 0)) << load.world->output();
  const auto [lowered, low] = load.set(3);
  // Long enough that a process which had not received the new limit would have shown it.
  const Nanos watched = low + 3 * kSecond_ns;
  ASSERT_TRUE(eventually([&] { return monotonic_ns() > watched && load.reaches(3, watched); }));
  const auto above = load.world.outside().last_above(3, {.from = lowered});
  tell("a limit lowered under load: until it held outside", above.value_or(lowered) - lowered);
  EXPECT_LT(above.value_or(lowered) - low, 2 * kSecond_ns) << load.world->output();
  EXPECT_EQ(load.world.outside().most({.from = watched}), 3) << "and all of it is used";

  const auto [raised, high] = load.set(8);
  const auto full = load.reaches(8, raised);
  ASSERT_TRUE(full) << load.world->output();
  tell("a limit raised under load: until it was used", *full - raised);
  EXPECT_LT(*full - raised, kSoonEnough);
  load.end();
  const Outside all = load.world.outside();
  EXPECT_EQ(all.most(), 8);
  for (const HandlerRun& run : all.runs()) EXPECT_FALSE(run.stopped) << "a handler was asked to stop";
  for (const char* said : {"3 at once over the domain, set by an operator", "8 at once over the domain"})
    EXPECT_NE(load.world->output().find(said), std::string::npos) << said << "\n" << load.world->output();
}

TEST(TokensLimits, zero_pauses_and_says_so_and_a_billion_is_taken) {
  TURNSTILE_NEEDS_SERVERS();
  Load load;
  const auto [said, paused] = load.set(0);
  ASSERT_TRUE(eventually([&] { return load.running() == 0; })) << load.world->output();
  const Nanos idle = monotonic_ns();
  tell("a limit of 0: until nothing ran", idle - said);
  EXPECT_LT(idle - paused, kSoonEnough);
  ASSERT_TRUE(eventually([&] { return load.world->output().find("paused, set by an operator") != std::string::npos; }))
      << load.world->output();
  // The test waits for longer than any running handler could take. Nothing may run in that time.
  ASSERT_TRUE(eventually([&] { return monotonic_ns() > idle + 2 * kSecond_ns; }));
  EXPECT_EQ(load.world.outside().most({.from = idle}), 0);

  const auto [asked, holds] = load.set(1'000'000'000);
  // As many as there are workers: eight in each process.
  const auto all = load.reaches(16, asked);
  ASSERT_TRUE(all) << load.world->output();
  EXPECT_LT(*all - holds, kSoonEnough);
  EXPECT_THROW(load.operator_->set_limit(load.world->topic(), 1'000'000'001, 1s), Error);
  EXPECT_THROW(load.operator_->set_limit(load.world->topic(), -1, 1s), Error);

  // The limit is removed, so the limits of the configurations apply.
  const auto [unset, configured] = load.set(std::nullopt);
  const Nanos watched = configured + 2 * kSecond_ns;
  ASSERT_TRUE(eventually([&] { return monotonic_ns() > watched && load.reaches(8, watched); }));
  EXPECT_EQ(load.world.outside().most({.from = watched}), 8);
  load.end();
}

TEST(TokensLimits, of_two_consumers_with_different_limits_and_leases_the_lower_limit_holds_and_is_told) {
  TURNSTILE_NEEDS_SERVERS();
  LimitedFixture world({.limit = 6, .lease = kLimitsLease, .session_timeout_ms = 20'000});
  world->publish(2'000);
  Process wide = world.consumer(6, kLimitsLease);
  ASSERT_TRUE(world.runs(wide, 6, 0)) << world->output();
  Process narrow = world.consumer(2, 2 * kLimitsLease);
  ASSERT_TRUE(world.runs(narrow, 1, 0)) << world->output();
  const Nanos together = monotonic_ns();
  ASSERT_TRUE(world.runs(narrow, 1, together) && world.runs(wide, 1, together)) << world->output();
  const std::string said =
      "2 at once over the domain, the lowest that a member's configuration says; configured here: 6";
  EXPECT_TRUE(eventually([&] { return world->output().find(said) != std::string::npos; })) << world->output();
  // Both processes received it long ago.
  const Nanos watched = monotonic_ns() + kSecond_ns;
  ASSERT_TRUE(eventually([&] { return monotonic_ns() > watched + kSecond_ns; }));
  EXPECT_EQ(world.outside().most({.from = watched}), 2);
  narrow.signal(SIGTERM);
  EXPECT_EQ(narrow.wait(30s), 0) << world->output();
  EXPECT_TRUE(world.runs(wide, 6, monotonic_ns())) << "its limit went with it\n" << world->output();
  wide.signal(SIGTERM);
  EXPECT_EQ(wide.wait(30s), 0);
}

}  // namespace
}  // namespace turnstile::test
