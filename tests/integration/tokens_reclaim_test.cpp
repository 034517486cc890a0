// A consumer dies, freezes or leaves. The tests measure when the others get the permits that it held, and check that
// they never get them too early.

#include <gtest/gtest.h>

#include <fstream>

#include "tokens_fixture.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

// The promise is one second. The test allows more for a busy machine, which is still much less than any lease.
constexpr Nanos kReclaimSoon = 5 * kSecond_ns;

void end(World& world, std::vector<Process*> processes) {
  for (Process* process : processes) process->signal(SIGTERM);
  for (Process* process : processes) EXPECT_EQ(process->wait(30s), 0) << world.output();
}

/// The time of the last event that this process wrote to the token log.
Nanos last_word(const std::vector<LoggedEvent>& log, pid_t pid) { return deadlines(log, pid, 0ms).back(); }

TEST(TokensReclaim, a_killed_consumers_permits_are_in_use_again_at_the_rebalance_not_at_the_lease) {
  TURNSTILE_NEEDS_SERVERS();
  LimitedFixture world({.limit = 4, .lease = 60s, .session_timeout_ms = 6'000});
  world->publish(3'000);
  Process stays = world.consumer();
  Process dies = world.consumer();
  ASSERT_TRUE(world.all_at_work({&stays, &dies})) << world->output();
  world.kill(dies);
  const auto all = world.runs(stays, 4, world.killed_at(dies));
  ASSERT_TRUE(all) << world->output();
  const auto claimed = world.outside().first_claim(stays.pid(), world.killed_at(dies));
  ASSERT_TRUE(claimed);
  tell("kill -9, fenced: from the rebalance to all permits in use", *all - *claimed);
  tell("kill -9, fenced: from the kill to all permits in use", *all - world.killed_at(dies));
  EXPECT_LT(*all - *claimed, kReclaimSoon) << world->output();
  end(*world, {&stays});
  EXPECT_EQ(world.outside().most(), 4) << "reached, and never exceeded";
}

TEST(TokensReclaim, under_a_strict_limit_they_come_back_when_the_lease_ends_and_not_before) {
  TURNSTILE_NEEDS_SERVERS();
  constexpr auto lease = 8s;
  LimitedFixture world({.limit = 4, .lease = lease, .strict = true, .session_timeout_ms = 3'000});
  world->publish(2'000);
  Process stays = world.consumer();
  Process dies = world.consumer();
  ASSERT_TRUE(world.all_at_work({&stays, &dies})) << world->output();
  world.kill(dies);
  const auto more = world.runs(stays, 3, world.killed_at(dies));
  const auto all = world.runs(stays, 4, world.killed_at(dies));
  ASSERT_TRUE(more && all) << world->output();
  const Nanos over = last_word(world.token_log(), dies.pid()) + std::chrono::nanoseconds(lease).count();
  const auto claimed = world.outside().first_claim(stays.pid(), world.killed_at(dies));
  ASSERT_TRUE(claimed);
  tell("kill -9, strict: from the lease's end to all permits in use", *all - over);
  EXPECT_LT(*claimed, over) << "the rebalance came too late to tell the two apart";
  EXPECT_GE(*more, over) << "sooner than the lease's end";
  EXPECT_LT(*all - over, kReclaimSoon) << world->output();
  end(*world, {&stays});
  EXPECT_EQ(world.outside().most(), 4);
}

TEST(TokensReclaim, a_clean_leave_gives_permits_back_at_once) {
  TURNSTILE_NEEDS_SERVERS();
  LimitedFixture world({.limit = 4, .lease = 60s, .session_timeout_ms = 30'000});
  world->publish(1'500);
  Process stays = world.consumer();
  Process leaves = world.consumer();
  ASSERT_TRUE(world.all_at_work({&stays, &leaves})) << world->output();
  leaves.signal(SIGTERM);
  ASSERT_EQ(leaves.wait(30s), 0) << world->output();
  const Nanos left = monotonic_ns();
  const auto all = world.runs(stays, 4, left);
  ASSERT_TRUE(all) << world->output();
  tell("clean leave: from the end of the process to all permits in use", *all - left);
  EXPECT_LT(*all - left, kReclaimSoon) << world->output();
  end(*world, {&stays});
  EXPECT_EQ(world.outside().most(), 4);
}

/// It holds no permit, so it returns none that would serve the requests of its workers.
TEST(TokensReclaim, a_consumer_that_ends_while_it_waits_is_granted_nothing_any_more) {
  TURNSTILE_NEEDS_SERVERS();
  LimitedFixture world({.limit = 4, .lease = 60s, .session_timeout_ms = 30'000});
  world->publish(1'500);
  Process stays = world.consumer();
  Process leaves = world.consumer();
  ASSERT_TRUE(world.all_at_work({&stays, &leaves})) << world->output();
  const auto member = world.member();
  ASSERT_TRUE(member->set_limit(world->topic(), 0, 20s));
  ASSERT_TRUE(eventually([&] {
    const Outside now = world.outside();
    return now.running(stays.pid()) == 0 && now.running(leaves.pid()) == 0;
  })) << world->output();
  leaves.signal(SIGTERM);
  ASSERT_EQ(leaves.wait(30s), 0) << world->output();
  const Nanos raised = monotonic_ns();
  ASSERT_TRUE(member->set_limit(world->topic(), 4, 20s));
  const auto all = world.runs(stays, 4, raised);
  ASSERT_TRUE(all) << world->output();
  tell("clean leave while it waits: from the raised limit to all permits in use", *all - raised);
  EXPECT_LT(*all - raised, kReclaimSoon) << world->output();
  end(*world, {&stays});
  EXPECT_EQ(world.outside().most(), 4);
}

/// The process is frozen for longer than its lease, but not for longer than the group waits for it. Its partitions are
/// still its own, so no fence stops it when it wakes.
TEST(TokensReclaim, a_consumer_that_wakes_past_its_lease_starts_nothing_commits_nothing_and_says_so) {
  TURNSTILE_NEEDS_SERVERS();
  constexpr auto lease = 3s;
  LimitedFixture world({.limit = 4, .lease = lease, .session_timeout_ms = 45'000, .work_ms = 300});
  world->publish(170);
  Process stays = world.consumer();
  Process frozen = world.consumer();
  ASSERT_TRUE(world.all_at_work({&stays, &frozen})) << world->output();
  frozen.freeze();
  const Nanos stopped = monotonic_ns();
  const auto all = world.runs(stays, 4, stopped);
  ASSERT_TRUE(all) << world->output();
  const Nanos over = last_word(world.token_log(), frozen.pid()) + std::chrono::nanoseconds(lease).count();
  tell("SIGSTOP: from the lease's end to all permits in use elsewhere", *all - over);
  EXPECT_GE(*all, over);
  std::vector<HandlerRun> in_flight;
  for (const HandlerRun& run : world.outside().runs()) {
    if (run.pid == frozen.pid() && !run.end) in_flight.push_back(run);
  }
  EXPECT_FALSE(in_flight.empty()) << "frozen between two handlers: nothing was shown";

  const Nanos woken = monotonic_ns();
  frozen.thaw();
  const auto first = world.begins(frozen, woken);
  ASSERT_TRUE(first) << world->output();
  EXPECT_EQ(world.outside().first_begin(frozen.pid(), stopped), first) << "it started something while it was stopped?";
  // The process starts nothing new until the log has it as a member again. The member has another id, because the old
  // one expired.
  std::optional<Nanos> joined;
  for (const LoggedEvent& record : world.token_log()) {
    const auto* said = std::get_if<tokens::Joined>(&record.event.body);
    if (said != nullptr && static_cast<pid_t>(said->pid) == frozen.pid() && record.created_ns > stopped && !joined)
      joined = record.created_ns;
  }
  ASSERT_TRUE(joined) << world->output();
  EXPECT_GT(*first, *joined);
  tell("SIGCONT: to the first handler", *first - woken);
  for (const char* said : {"this process did not look at the token log for", "the other members have expired this one"})
    EXPECT_NE(world->output().find(said), std::string::npos) << said << "\n" << world->output();

  // The handlers that ran before were told to stop, and did not commit. Their messages ran again, each under a permit
  // of its own. Some messages were sent twice: if the other copy ran first, this one is a duplicate and has no effect.
  ASSERT_TRUE(eventually([&] { return world->effects().distinct == 170; }, 120s)) << world->output();
  end(*world, {&stays, &frozen});
  EXPECT_EQ(world->effects().rows, 170) << "an effect was made twice";
  const Outside outside = world.outside();
  for (const HandlerRun& run : in_flight) {
    const bool ran_again = std::any_of(outside.runs().begin(), outside.runs().end(), [&](const HandlerRun& other) {
      return other.partition == run.partition && other.offset == run.offset && other.begin > woken;
    });
    const std::string effects =
        world->query("SELECT count(*) FROM effect WHERE record_partition = " + std::to_string(run.partition) +
                     " AND record_offset = " + std::to_string(run.offset));
    EXPECT_TRUE(ran_again || effects == "0")
        << "partition " << run.partition << " offset " << run.offset << ": what ran past its lease was committed\n"
        << world->output();
  }
  EXPECT_EQ(world.most_that_counts(), 4);
}

/// The same case, but the group has given the process up and the database refuses it. Its permits come back before its
/// lease ends.
TEST(TokensReclaim, a_fenced_consumer_that_wakes_commits_nothing_and_the_limit_holds_meanwhile) {
  TURNSTILE_NEEDS_SERVERS();
  LimitedFixture world({.limit = 4, .lease = 60s, .session_timeout_ms = 3'000, .work_ms = 200});
  world->publish(220);
  Process stays = world.consumer();
  Process frozen = world.consumer();
  ASSERT_TRUE(world.all_at_work({&stays, &frozen})) << world->output();
  frozen.freeze();
  const Nanos stopped = monotonic_ns();
  const auto all = world.runs(stays, 4, stopped);
  ASSERT_TRUE(all) << world->output();
  const Nanos woken = monotonic_ns();
  frozen.thaw();
  ASSERT_TRUE(world.begins(frozen, woken)) << "it does not come back to work\n" << world->output();
  ASSERT_TRUE(eventually([&] { return world->effects().distinct == 220; }, 120s)) << world->output();
  end(*world, {&stays, &frozen});
  EXPECT_EQ(world->effects().rows, 220) << "an effect was made twice";
  EXPECT_LE(world.most_that_counts(), 4);
  EXPECT_NE(world->output().find("this process did not look at the token log for"), std::string::npos)
      << world->output();
}

}  // namespace
}  // namespace turnstile::test
