// A domain whose log is divided, of which a part is broken or cannot be reached.

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <stop_token>
#include <thread>

#include "permits/divided_domain.hpp"
#include "tests/unit/permits/divided_fixture.hpp"
#include "tokens/snapshot.hpp"

namespace turnstile::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// As a process that runs while the topic is deleted, created and divided again: it must not grant in the new topic.
TEST(DividedDomain, a_halt_in_one_part_halts_all_and_opens_nothing) {
  DividedCluster cluster;
  const auto broken = std::make_shared<std::atomic<bool>>(false);
  const auto domain = join_token_domain(breakable(cluster, broken), cluster.settings, cluster.quiet);
  const auto names = names_in_different_parts(3);
  const auto first = domain->open(names[0], 2), second = domain->open(names[1], 2);
  take_all(*first, 2).clear();
  cluster.divide();
  const auto held = take_all(*first, 2);
  take_all(*second, 2).clear();
  *broken = true;
  EXPECT_TRUE(eventually([&] { return held.front().lost().stop_requested(); })) << "of another part";
  EXPECT_TRUE(eventually([&] { return !first->try_acquire() && !second->try_acquire(); }));
  EXPECT_EQ(domain->halted(), "part 0 is broken");
  EXPECT_EQ(domain->health().state, LimitersHealth::State::halted);
  const auto code_of = [](auto call) -> std::optional<Code> {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    return std::nullopt;
  };
  EXPECT_EQ(code_of([&] { (void)domain->open(names[2], 2); }), Code::member_halted);
  EXPECT_EQ(code_of([&] { (void)domain->set_limit(names[1], 1, seconds(20)); }), Code::member_halted);
  EXPECT_EQ(cluster.log->part(tokens::part_of(names[2], kParts))->end(), 0);
}

TEST(DividedDomain, a_part_that_is_full_halts_no_other_part) {
  DividedCluster cluster;
  cluster.divide();
  const auto names = names_in_different_parts(2);
  const std::uint32_t full = tokens::part_of(names[0], kParts);
  tokens::Joined joined{.host = "host", .client = "client", .lease_ms = 3'600'000, .knows = 2};
  joined.division = newest_state(*cluster.log, 0).division;
  joined.part = full;
  for (tokens::MemberId id = 1; id <= tokens::kMostMembers; ++id)
    cluster.log->part(full)->append(tokens::encode({.member = id, .epoch = 1, .seq = 1, .body = joined}));

  const auto domain = cluster.join();
  const auto first = domain->open(names[0], 2), second = domain->open(names[1], 2);
  EXPECT_TRUE(eventually([&] { return domain->health().why.find("maximum of 4096 members") != std::string::npos; }));
  EXPECT_EQ(domain->health().state, LimitersHealth::State::cut_off);
  EXPECT_EQ(domain->halted(), "");
  EXPECT_EQ(take_all(*second, 2).size(), 2U);
  EXPECT_FALSE(first->try_acquire());
  EXPECT_THROW((void)domain->set_limit(names[0], 1, seconds(20)), Error);
}

/// The pool belongs to another member then. The rounds are made by hand, so that part 0 breaks in the very next one.
TEST(DividedDomain, a_break_of_part_0_after_a_move_leaves_the_pool_alone) {
  DividedCluster cluster;
  const auto broken = std::make_shared<std::atomic<bool>>(false);
  DomainByHand process(breakable(cluster, broken), cluster);
  auto& members = process.members;
  const auto domain = process.domain;
  const auto psp = domain->open("psp", 2);
  const std::uint32_t home = tokens::part_of("psp", kParts);
  std::vector<Permit> held;
  const auto take = [&] {
    psp->expect(2);
    psp->when_free([] {});
    while (Permit permit = psp->try_acquire()) held.push_back(std::move(permit));
    return held.size() == 2;
  };
  ASSERT_TRUE(eventually([&] { return members[0]->round(), take(); }));
  cluster.divide();
  ASSERT_TRUE(eventually([&] { return members[0]->round(), members[0]->parts() == kParts; }));
  held.clear();
  ASSERT_TRUE(eventually([&] { return members[0]->round(), !members[0]->uses("psp"); }));
  domain->move();
  ASSERT_TRUE(eventually([&] { return domain->move(), members[home]->round(), take(); }));
  *broken = true;
  members[0]->round();
  ASSERT_EQ(domain->halted(), "part 0 is broken");
  EXPECT_TRUE(held.front().holds());
  EXPECT_FALSE(held.front().lost().stop_requested());
  held.pop_back();
  EXPECT_TRUE(psp->try_acquire()) << "its member has not halted yet";
  members[home]->round();
  EXPECT_TRUE(held.front().lost().stop_requested());
}

/// It runs on the thread that empties the pool of a limiter that moves.
TEST(DividedDomain, a_stop_callback_of_a_limiter_that_moves_may_drop_the_domain) {
  DividedCluster cluster;
  const auto names = names_in_different_parts(2);
  const auto other = cluster.join();
  const auto stays = other->open(names[1], 2);
  const Permit in_use = take_one(*stays);  // so that part 0 still needs its members
  auto domain = cluster.join();
  auto psp = domain->open(names[0], 2);
  Permit held = take_one(*psp);
  std::atomic<bool> dropped{false};
  const std::stop_callback drop(held.lost(), [&] {
    psp.reset();
    domain.reset();
    dropped = true;
  });
  cluster.divide();
  held.give_back();
  EXPECT_TRUE(eventually([&] { return dropped.load(); }));
  EXPECT_TRUE(eventually([&] { return newest_state(*cluster.log, 0).members.size() == 1; })) << "it has left";
}

/// As a process that was stopped while the topic was deleted, created, divided again and trimmed.
TEST(DividedDomain, a_newer_snapshot_of_another_division_halts_all) {
  DividedCluster cluster;
  DomainByHand process(testing::open_parts(cluster.log), cluster);
  const auto psp = process.domain->open("psp", 2);
  process.take(*psp, 2).clear();
  cluster.divide();
  process.take(*psp, 2).clear();
  EXPECT_EQ(process.domain->halted(), "");

  const auto topic = cluster.log->part(0);
  tokens::State other = newest_state(*cluster.log, 0);
  ++other.division;
  topic->append("not read, and trimmed");
  other.last = topic->end() - 1;
  topic->save(tokens::save(other));
  topic->cut(topic->end());
  topic->append("the first that is left");

  EXPECT_TRUE(eventually([&] { return process.round(), !process.domain->halted().empty(); }));
  EXPECT_NE(process.domain->halted().find("another division"), std::string::npos) << process.domain->halted();
  process.round();
  EXPECT_FALSE(psp->try_acquire());
  EXPECT_NE(process.members[tokens::part_of("psp", kParts)]->halted(), "");
}

TEST(DividedDomain, a_part_that_cannot_be_opened_shows_in_its_health) {
  DividedCluster cluster;
  const auto closed = std::make_shared<std::atomic<bool>>(true);
  const auto open = [parts = testing::open_parts(cluster.log), closed](std::uint32_t part) {
    if (part > 0 && *closed) throw BrokerError(Code::kafka_unavailable, "no such partition");
    return parts(part);
  };
  const auto domain = join_token_domain(open, cluster.settings, cluster.quiet);
  const auto psp = domain->open("psp", 2);
  take_all(*psp, 2).clear();
  cluster.divide();
  EXPECT_TRUE(eventually([&] {
    const LimitersHealth health = domain->health();
    return health.state == LimitersHealth::State::cut_off && health.why.find("no such partition") != std::string::npos;
  }));
  *closed = false;
  EXPECT_EQ(take_all(*psp, 2).size(), 2U);
  EXPECT_TRUE(eventually([&] { return domain->health().state == LimitersHealth::State::working; }));
}

TEST(DividedDomain, a_part_that_cannot_be_opened_keeps_no_limiter_of_another_part_waiting) {
  DividedCluster cluster;
  const auto names = names_in_different_parts(3);
  const auto lost = tokens::part_of(names[0], kParts);
  const auto open = [parts = testing::open_parts(cluster.log), lost](std::uint32_t part) {
    if (part == lost) throw BrokerError(Code::kafka_unavailable, "it has no leader");
    return parts(part);
  };
  const auto domain = join_token_domain(open, cluster.settings, cluster.quiet);
  const auto first = domain->open(names[0], 2), second = domain->open(names[1], 2);
  take_all(*first, 2).clear();
  take_all(*second, 2).clear();
  cluster.divide();
  EXPECT_EQ(take_all(*second, 2).size(), 2U);
  EXPECT_EQ(take_all(*domain->open(names[1], 2), 2).size(), 2U);
  EXPECT_EQ(take_all(*domain->open(names[2], 2), 2).size(), 2U);
  EXPECT_FALSE(first->try_acquire());
  EXPECT_THROW((void)domain->open(names[0], 2), BrokerError);
  EXPECT_NE(domain->health().why.find("part " + std::to_string(lost) + " of the token log"), std::string::npos);
}

/// As a broker that does not answer.
TEST(DividedDomain, nothing_waits_for_a_part_that_is_being_opened_not_even_the_end_of_the_domain) {
  DividedCluster cluster;
  const auto names = names_in_different_parts(3);
  struct Gate {
    std::atomic<bool> waits{false}, opens{false};
  };
  const auto gate = std::make_shared<Gate>();
  const auto open = [parts = testing::open_parts(cluster.log), gate,
                     slow = tokens::part_of(names[0], kParts)](std::uint32_t part) {
    if (part != slow) return parts(part);
    gate->waits = true;
    EXPECT_TRUE(eventually([&] { return gate->opens.load(); }));
    gate->waits = false;
    return parts(part);
  };
  auto domain = join_token_domain(open, cluster.settings, cluster.quiet);
  auto first = domain->open(names[0], 2), second = domain->open(names[1], 2);
  take_all(*first, 2).clear();
  take_all(*second, 2).clear();
  cluster.divide();
  EXPECT_TRUE(eventually([&] { return gate->waits.load(); }));
  const auto start = std::chrono::steady_clock::now();
  take_all(*second, 2).clear();
  take_all(*domain->open(names[2], 2), 2).clear();
  EXPECT_FALSE(domain->set_limit(names[0], 1, milliseconds(100)));
  first.reset();
  second.reset();
  domain.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(10)) << "the part opens after 30 s";
  EXPECT_TRUE(gate->waits);
  gate->opens = true;
  EXPECT_TRUE(eventually([&] { return !gate->waits; }));
}

TEST(DividedDomain, claims_wait_neither_for_a_part_that_is_opened_nor_for_each_part_in_turn) {
  DividedCluster cluster;
  cluster.divide();
  const auto names = names_in_different_parts(4);
  const auto slow = tokens::part_of(names[3], kParts);
  const auto cable = std::make_shared<testing::MemoryTokenCable>();
  const auto gate = std::make_shared<std::atomic<bool>>(false), waits = std::make_shared<std::atomic<bool>>(false);
  const auto open = [log = cluster.log, cable, gate, waits, slow](std::uint32_t part) {
    if (part == slow) {
      *waits = true;
      (void)eventually([&] { return gate->load(); });
    }
    return std::make_unique<testing::MemoryTokenLog>(log->part(part), cable);
  };
  const auto domain = join_token_domain(open, cluster.settings, cluster.quiet);
  std::vector<std::shared_ptr<ports::Limiter>> limiters;
  for (int i = 0; i < 3; ++i) {
    limiters.push_back(domain->open_for_partitions(names[static_cast<std::size_t>(i)], 1));
    take_all(*limiters.back(), 1).clear();
  }
  std::thread opens([&] { limiters.push_back(domain->open_for_partitions(names[3], 1)); });
  EXPECT_TRUE(eventually([&] { return waits->load(); }));
  auto start = std::chrono::steady_clock::now();
  domain->on_claimed("billing", "db", {"orders", 3}, Epoch{1});
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(500));
  *gate = true;
  opens.join();
  take_all(*limiters.back(), 1).clear();
  const auto partitions = newest_state(*cluster.log, slow).partitions;
  EXPECT_EQ(partitions.size(), 1U) << "a member that is new then gets it, too";

  cable->cut = true;
  domain->on_claimed("billing", "db", {"orders", 4}, Epoch{1});
  start = std::chrono::steady_clock::now();
  domain->wait_until_claimed();
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(15)) << "10 s for all parts together";
}

}  // namespace
}  // namespace turnstile::test
