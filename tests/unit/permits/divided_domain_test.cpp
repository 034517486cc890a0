// A domain whose log is divided while it is in use (tokens/parts.hpp).

#include "permits/divided_domain.hpp"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/unit/permits/divided_fixture.hpp"
#include "tokens/snapshot.hpp"
#include "turnstile/token_audit.hpp"

namespace turnstile::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(DividedDomain, limiters_move_to_their_homes_and_grant_there) {
  DividedCluster cluster;
  const auto domain = cluster.join(), other = cluster.join();
  const auto psp = domain->open("psp", 2), mail = other->open("mail", 3);
  take_one(*psp).give_back();
  take_one(*mail).give_back();
  cluster.divide();
  EXPECT_TRUE(eventually([&] { return cluster.reader()->still_moving().empty(); })) << "what is idle returns at once";
  EXPECT_EQ(take_all(*psp, 2).size(), 2U);
  EXPECT_EQ(take_all(*mail, 3).size(), 3U);
  const auto reader = cluster.reader();
  EXPECT_EQ(reader->parts(), kParts);
  EXPECT_TRUE(reader->still_moving().empty());
  const PermitsView view = reader->permits();
  ASSERT_NE(find(view, "psp"), nullptr);
  EXPECT_EQ(find(view, "psp")->part, tokens::part_of("psp", kParts));
  EXPECT_EQ(find(view, "mail")->part, tokens::part_of("mail", kParts));
  EXPECT_EQ(domain->health().state, LimitersHealth::State::working);
  EXPECT_EQ(domain->halted(), "");
}

/// The two permits of the limit are never given out in part 0 and in the home at once.
TEST(DividedDomain, a_permit_in_use_counts_until_it_returns) {
  DividedCluster cluster;
  const auto domain = cluster.join();
  const auto psp = domain->open("psp", 2);
  Permit before = take_one(*psp);
  cluster.divide();
  const auto late = cluster.join();
  const auto there = late->open("psp", 2);
  there->expect(5);
  there->when_free([] {});
  std::this_thread::sleep_for(milliseconds(1'000));
  EXPECT_FALSE(there->try_acquire());
  EXPECT_FALSE(before.lost().stop_requested());
  EXPECT_EQ(cluster.reader()->still_moving(), std::vector<std::string>{"psp"});
  before.give_back();
  const auto after = take_all(*there, 2);
  EXPECT_EQ(after.size(), 2U);
  EXPECT_FALSE(psp->try_acquire());
}

/// Everything is started again while handlers of dead processes count in part 0: nobody has a limiter there.
TEST(DividedDomain, permits_of_the_dead_return_with_their_leases) {
  DividedCluster cluster;
  auto cable = std::make_shared<testing::MemoryTokenCable>();
  auto dead = join_token_domain(std::make_unique<testing::MemoryTokenLog>(cluster.log->part(0), cable),
                                cluster.settings, cluster.quiet);
  ASSERT_TRUE(dead->wait_until_joined(seconds(20)));
  const auto held = dead->open("psp", 1);
  const Permit kept = take_one(*held);
  cluster.divide();
  cable->cut = true;
  const auto domain = cluster.join();
  const auto psp = domain->open("psp", 1);
  EXPECT_EQ(take_all(*psp, 1).size(), 1U);
  EXPECT_TRUE(kept.lost().stop_requested());
}

TEST(DividedDomain, callers_that_wait_are_served_after_the_move) {
  DividedCluster cluster;
  const auto domain = cluster.join();
  const auto psp = domain->open("psp", 1);
  Permit first = take_one(*psp);
  std::atomic<bool> served{false};
  const auto withdraw = psp->acquire_later(1, Priority::normal, [&](Permit permit) {
    served = true;
    permit.give_back();
  });
  cluster.divide();
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_FALSE(served);
  first.give_back();
  EXPECT_TRUE(eventually([&] { return served.load(); }));
}

TEST(DividedDomain, limits_of_operators_move_with_their_limiters) {
  DividedCluster cluster;
  const auto domain = cluster.join();
  const auto psp = domain->open("psp", 2);
  ASSERT_TRUE(domain->set_limit("psp", 1, seconds(20)));
  cluster.divide();
  const auto first = take_all(*psp, 1);
  EXPECT_FALSE(psp->try_acquire());
  ASSERT_TRUE(cluster.reader()->set_limit("psp", 2, seconds(20), "anna@ops-1"));
  EXPECT_EQ(take_all(*psp, 1).size(), 1U);
  ASSERT_TRUE(domain->set_limit("psp", std::nullopt, seconds(20)));
  const auto changes = cluster.reader()->permits().limit_changes;
  ASSERT_EQ(changes.size(), 3U);
  EXPECT_EQ(find(cluster.reader()->permits(), "psp")->set, std::nullopt);
}

TEST(DividedDomain, claims_go_to_each_part_also_to_one_that_is_opened_later) {
  DividedCluster cluster;
  cluster.divide();
  const auto domain = cluster.join(), other = cluster.join();
  const TopicPartition orders{"orders", 3};
  domain->on_claimed("billing", "db", orders, Epoch{1});
  domain->wait_until_claimed();
  const auto psp = domain->open_for_partitions("psp", 1);
  const auto held = take_all(*psp, 1);
  const auto next = other->open_for_partitions("psp", 1);
  next->expect(1);
  next->when_free([] {});
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_FALSE(next->try_acquire());
  other->on_claimed("billing", "db", orders, Epoch{2});
  other->wait_until_claimed();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(take_all(*next, 1).size(), 1U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(1'000)) << "by the fence, not with the lease";
}

TEST(DividedDomain, an_empty_log_can_be_divided_and_twice_is_once) {
  DividedCluster cluster;
  cluster.divide();
  cluster.divide();
  EXPECT_THROW((void)cluster.reader()->divide(kParts + 1, seconds(20)), Error);
  const auto domain = cluster.join();
  EXPECT_EQ(take_all(*domain->open("psp", 2), 2).size(), 2U);
}

TEST(DividedDomain, is_audited_in_all_parts) {
  DividedCluster cluster;
  const auto domain = cluster.join();
  const auto psp = domain->open("psp", 2);
  take_one(*psp).give_back();
  cluster.divide();
  EXPECT_TRUE(eventually([&] { return cluster.reader()->still_moving().empty(); }));
  const auto taken = take_all(*psp, 2);
  const auto first = testing::open_parts(cluster.log)(0);
  EXPECT_THROW((void)audit_token_log(*first), TokenLogBroken);
  const TokenAudit audit = audit_token_log(*first, testing::open_parts(cluster.log));
  EXPECT_TRUE(audit.known);
  EXPECT_GT(audit.records, cluster.log->part(0)->end());
  EXPECT_TRUE(audit.excesses.empty());
  EXPECT_TRUE(audit.differences.empty());
}

TEST(DividedDomain, is_refused_while_permits_are_reserved) {
  DividedCluster cluster;
  cluster.settings.reserve = 1;
  cluster.settings.reserve_for = 1;
  const auto domain = cluster.join();
  const auto psp = domain->open("psp", 5);
  take_one(*psp).give_back();
  EXPECT_TRUE(eventually([&] { return find(cluster.reader()->permits(), "psp")->reserved == 1; }));
  EXPECT_THROW((void)cluster.reader()->divide(kParts, seconds(20)), Error);
  EXPECT_EQ(cluster.reader()->parts(), 1U);
  EXPECT_EQ(take_all(*psp, 4).size(), 4U);
}

TEST(DividedDomain, a_program_that_opened_only_the_first_part_says_so) {
  DividedCluster cluster;
  const auto domain = join_token_domain(std::make_unique<testing::MemoryTokenLog>(cluster.log->part(0)),
                                        cluster.settings, cluster.quiet);
  cluster.divide();
  EXPECT_TRUE(eventually([&] {
    try {
      return !domain->open("psp-" + std::to_string(std::rand()), 2);
    } catch (const TokenLogBroken&) {
      return true;
    }
  }));
}

/// As after a tool copied the topic for snapshots with other partitions, or from an earlier topic of the same name.
TEST(DividedDomain, a_snapshot_of_another_part_or_division_is_skipped) {
  DividedCluster cluster;
  cluster.divide();
  const std::uint32_t home = tokens::part_of("psp", kParts), other = home % (kParts - 1) + 1;
  const auto domain = cluster.join();
  take_all(*domain->open("psp", 2), 2).clear();
  const tokens::State own = newest_state(*cluster.log, home);
  tokens::State of_other_part = own, of_other_division = own;
  of_other_part.part = other;
  ++of_other_division.division;
  for (const auto& foreign : {of_other_part, of_other_division, newest_state(*cluster.log, 0)})
    cluster.log->part(home)->save(tokens::save(foreign));
  cluster.log->part(0)->save(tokens::save(own));

  const auto late = cluster.join();
  EXPECT_EQ(take_all(*late->open("psp", 2), 2).size(), 2U);
  EXPECT_EQ(late->halted(), "");
  const std::int64_t before = cluster.log->part(home)->end();
  EXPECT_TRUE(cluster.reader()->set_limit("psp", 1, seconds(20)));
  EXPECT_LT(cluster.log->part(home)->end(), before + 20);
  EXPECT_NE(find(cluster.reader()->permits(), "psp"), nullptr);
  const auto first = testing::open_parts(cluster.log)(0);
  EXPECT_TRUE(audit_token_log(*first, testing::open_parts(cluster.log)).differences.empty());
}

/// As a broker, whose first records come some milliseconds after the request.
struct Slow final : PassedOn {
  using PassedOn::PassedOn;
  std::vector<Record> read(milliseconds timeout) override {
    return --empty_reads > 0 ? std::vector<Record>{} : log->read(timeout);
  }
  int empty_reads = 5;
};

/// It would stay for ever: without members nobody deletes records of part 0.
TEST(DividedDomain, a_start_writes_nothing_into_a_directory_that_nobody_needs) {
  DividedCluster cluster;
  cluster.divide();
  const auto open = [parts = testing::open_parts(cluster.log)](std::uint32_t part) {
    return std::make_unique<Slow>(parts(part));
  };
  const std::int64_t before = cluster.log->part(0)->end();
  for (int i = 0; i < 3; ++i) {
    const auto domain = join_token_domain(open, cluster.settings, cluster.quiet);
    ASSERT_TRUE(domain->wait_until_joined(seconds(20)));
    take_all(*domain->open("psp", 2), 2).clear();
    EXPECT_TRUE(domain->set_limit("psp", i + 2, seconds(20)));
  }
  EXPECT_EQ(cluster.log->part(0)->end(), before);
}

// --- readers ---------------------------------------------------------------------------------------------------------

/// As `turnstile permits` reads it.
TEST(DividedDomain, a_reader_of_the_whole_log_knows_the_times_of_all_parts) {
  DividedCluster cluster;
  cluster.divide();
  const auto domain = cluster.join();
  const auto held = take_all(*domain->open("psp", 2), 2);
  TokenReader reader(testing::open_parts(cluster.log)(0), testing::open_parts(cluster.log));
  reader.start(reader.begin());
  reader.read_to(reader.end() - 1);
  const PermitsView view = reader.permits();
  const auto* psp = find(view, "psp");
  ASSERT_NE(psp, nullptr);
  EXPECT_EQ(psp->held(), 2);
  EXPECT_NE(reader.time_of(psp->holders.front().held_since, psp->part), 0);
}

TEST(DividedDomain, a_part_that_was_truncated_without_a_snapshot_is_not_shown_as_empty) {
  DividedCluster cluster;
  cluster.divide();
  const auto domain = cluster.join();
  take_all(*domain->open("psp", 2), 2).clear();
  cluster.log->part(tokens::part_of("psp", kParts))->cut(2);
  const auto reader = cluster.reader();
  EXPECT_THROW((void)reader->permits(), TokenLogBroken);
  EXPECT_THROW((void)reader->set_limit("psp", 1, seconds(20)), TokenLogBroken);
}

/// As `turnstile log replay --at N --limiter NAME` reads it.
TEST(DividedDomain, a_reader_of_one_part_knows_its_times) {
  DividedCluster cluster;
  cluster.divide();
  const auto domain = cluster.join();
  const auto held = take_all(*domain->open("psp", 2), 2);
  const auto reader = cluster.reader()->home_of("psp");
  reader->start(reader->begin());
  while (reader->position() + 1 < reader->end()) (void)reader->next();
  const PermitsView view = reader->permits();
  const auto* psp = find(view, "psp");
  ASSERT_NE(psp, nullptr);
  EXPECT_NE(reader->time_of(psp->holders.front().held_since, psp->part), 0);
  EXPECT_NE(reader->time_of(view.position), 0);
  EXPECT_EQ(reader->time_of(0, 0), 0) << "it has not read part 0";
}

TEST(DividedDomain, a_limit_can_be_set_while_another_part_is_truncated) {
  DividedCluster cluster;
  cluster.divide();
  const auto domain = cluster.join();
  const auto names = names_in_different_parts(2);
  for (const auto& name : names) take_all(*domain->open(name, 2), 2).clear();
  cluster.log->part(tokens::part_of(names[0], kParts))->cut(2);
  const auto reader = cluster.reader();
  EXPECT_TRUE(reader->set_limit(names[1], 1, seconds(20)));
  const PermitsView view = reader->permits_at_home_of(names[1]);
  ASSERT_NE(find(view, names[1]), nullptr);
  EXPECT_EQ(find(view, names[1])->limit, 1);
  EXPECT_EQ(find(view, names[0]), nullptr);
  EXPECT_THROW((void)reader->permits(), TokenLogBroken);
  EXPECT_THROW((void)reader->permits_at_home_of(names[0]), TokenLogBroken);
  EXPECT_THROW((void)reader->set_limit(names[0], 1, seconds(20)), TokenLogBroken);
}

/// Each part costs clients of the broker.
TEST(DividedDomain, to_set_a_limit_one_part_is_opened) {
  DividedCluster cluster;
  cluster.divide();
  std::vector<std::uint32_t> opened;
  TokenReader reader(testing::open_parts(cluster.log)(0), [&](std::uint32_t part) {
    opened.push_back(part);
    return testing::open_parts(cluster.log)(part);
  });
  reader.start(reader.end());
  EXPECT_TRUE(reader.set_limit("psp", 1, seconds(20)));
  EXPECT_NE(find(reader.permits_at_home_of("psp"), "psp"), nullptr);
  EXPECT_EQ(opened, std::vector<std::uint32_t>{tokens::part_of("psp", kParts)});
}

TEST(DividedDomain, what_was_set_before_the_division_can_be_unset_after_it) {
  DividedCluster cluster;
  { const auto domain = cluster.join(); }
  ASSERT_TRUE(cluster.reader()->set_limit("psp", 1, seconds(20)));
  cluster.divide();
  const PermitsView before = cluster.reader()->permits();
  ASSERT_NE(find(before, "psp"), nullptr) << "its home is not open yet";
  EXPECT_EQ(find(before, "psp")->set, 1);
  EXPECT_EQ(find(before, "psp")->limit, 1);
  ASSERT_TRUE(cluster.reader()->set_limit("psp", std::nullopt, seconds(20)));
  EXPECT_EQ(find(cluster.reader()->permits(), "psp"), nullptr);
  const auto domain = cluster.join();
  const auto psp = domain->open("psp", 2);  // without a user the domain would forget it
  EXPECT_EQ(take_all(*psp, 2).size(), 2U);
  const PermitsView after = domain->permits();
  ASSERT_NE(find(after, "psp"), nullptr);
  EXPECT_EQ(find(after, "psp")->set, std::nullopt);
}

}  // namespace
}  // namespace turnstile::test
