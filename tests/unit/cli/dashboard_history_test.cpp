// Permits over time, out of a token log in memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/src/dashboard/follower.hpp"
#include "tests/support/eventually.hpp"
#include "tokens/wire.hpp"
#include "turnstile/testing/token_log.hpp"

namespace turnstile::cli::dashboard {
namespace {

using namespace tokens;
using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using turnstile::testing::MemoryTokenLog;
using turnstile::testing::MemoryTokenTopic;

TokenRecord record(std::int64_t position, std::int64_t time_ms, std::uint64_t member, std::int64_t before,
                   std::int64_t after) {
  TokenRecord record;
  record.position = position;
  record.time_ms = time_ms;
  record.changes.push_back(
      {.limiter = "psp",
       .member = {.id = member, .client = "billing", .host = "h1", .pid = 10 + static_cast<std::uint32_t>(member)},
       .before = before,
       .after = after});
  return record;
}

TEST(DashboardHistory, shows_the_permits_at_the_end_of_each_step) {
  History history;
  history.add(record(0, 1'000, 1, 0, 4));
  history.add(record(1, 2'000, 2, 0, 1));
  history.add(record(2, 2'500, 1, 4, 0));
  const auto view = history.view("psp", 0, 4'000, 4);
  EXPECT_THAT(view.times_ms, ElementsAre(1'000, 2'000, 3'000, 4'000));
  EXPECT_THAT(view.positions, ElementsAre(0, 1, 2, 2));
  ASSERT_EQ(view.processes.size(), 2U);
  EXPECT_EQ(view.processes[0].name, "billing@h1:11");
  EXPECT_THAT(view.processes[0].held, ElementsAre(4, 4, 0, 0));
  EXPECT_THAT(view.processes[1].held, ElementsAre(0, 1, 1, 1));
  EXPECT_EQ(view.first_ms, 1'000);
  EXPECT_EQ(view.last_ms, 2'500);
}

TEST(DashboardHistory, before_its_beginning_nothing_is_known) {
  History history;
  history.add(record(7, 1'000, 1, 0, 4));
  const auto view = history.view("psp", 0, 800, 2);
  EXPECT_THAT(view.positions, ElementsAre(-1, -1));
  EXPECT_THAT(view.processes, IsEmpty());
  EXPECT_THAT(history.view("other", 0, 2'000, 1).processes, IsEmpty());
}

TEST(DashboardHistory, forgets_the_oldest_changes_and_stays_right) {
  History history(100);
  for (std::int64_t i = 0; i < 1'000; ++i)
    history.add(record(i, 1'000 + i * 1'000, 1 + static_cast<std::uint64_t>(i % 3), 0, 1 + i % 7));
  const auto view = history.view("psp", 990'000, 1'000'000, 10);
  ASSERT_EQ(view.processes.size(), 3U);
  std::int64_t sum = 0;
  for (const auto& process : view.processes) sum += process.held.back();
  EXPECT_EQ(sum, (1 + 999 % 7) + (1 + 998 % 7) + (1 + 997 % 7));
  EXPECT_GT(history.first_ms(), 800'000);
}

TEST(DashboardHistory, processes_that_held_the_least_are_left_out) {
  History history;
  for (std::uint64_t member = 1; member <= 20; ++member)
    history.add(record(static_cast<std::int64_t>(member), 1'000, member, 0, static_cast<std::int64_t>(member)));
  const auto view = history.view("psp", 0, 1'000, 1);
  EXPECT_EQ(view.processes.size(), History::kMostProcesses);
  EXPECT_EQ(view.others, 8);
  EXPECT_THAT(view.processes.front().held, ElementsAre(9));
}

/// A log that two members and an operator write.
struct Log {
  std::shared_ptr<MemoryTokenTopic> topic = std::make_shared<MemoryTokenTopic>();
  std::int64_t time_ms = 1'000'000;
  std::map<MemberId, std::uint64_t> seq;

  void write(MemberId member, decltype(Event::body) body) {
    topic->append(encode({.member = member, .epoch = 1, .seq = ++seq[member], .body = std::move(body)}), time_ms);
    time_ms += 1'000;
  }
  void keep(MemberId member, Count limit, Count wants, Count given_back = 0) {
    write(member, Keep{.lines = {Line{.limiter = "psp", .limit = limit, .wants = wants, .given_back = given_back}},
                       .checkpoint = std::nullopt});
  }
};

TEST(DashboardFollower, follows_the_log_and_knows_who_set_a_limit) {
  Log log;
  log.write(7, Joined{.host = "h1", .pid = 11, .client = "billing", .lease_ms = 10'000});
  log.keep(7, 4, 4);
  log.write(5, LimitSet{"psp", 2, 1, "anna@ops-1", 1'772'373'909'000});
  Follower follower([&] { return std::make_unique<TokenReader>(std::make_unique<MemoryTokenLog>(log.topic)); });
  ASSERT_TRUE(test::eventually([&] { return follower.state().ready; }));
  auto state = follower.state();
  EXPECT_THAT(state.limiters, ElementsAre("psp"));
  ASSERT_EQ(state.changes.size(), 1U);
  EXPECT_EQ(state.changes[0].by, "anna@ops-1");
  EXPECT_EQ(state.position, 2);
  log.keep(7, 4, 0, 4);
  ASSERT_TRUE(test::eventually([&] { return follower.state().position == 3; }));
  const auto view = follower.view("psp", 999'000, 1'003'000, 4);
  ASSERT_EQ(view.processes.size(), 1U);
  EXPECT_EQ(view.processes[0].name, "billing@h1:11");
  EXPECT_THAT(view.processes[0].held, ElementsAre(0, 4, 4, 0));
  EXPECT_THAT(view.limits, ElementsAre(std::nullopt, 4, 2, 2));
}

TEST(DashboardFollower, reports_why_there_is_nothing) {
  Follower missing([]() -> std::unique_ptr<TokenReader> { return nullptr; });
  EXPECT_TRUE(test::eventually([&] { return !missing.state().why.empty(); }));
  EXPECT_THAT(missing.state().why, HasSubstr("there is no token log yet"));
  Follower silent(
      []() -> std::unique_ptr<TokenReader> { throw BrokerError(Code::kafka_unavailable, "no broker answers"); });
  EXPECT_TRUE(test::eventually([&] { return silent.state().why == "no broker answers"; }));
}

}  // namespace
}  // namespace turnstile::cli::dashboard
