// Messages of several partitions in one transaction end as they would in transactions of their own.

#include "delivery/shared_transaction.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "engine/lane.hpp"
#include "tests/unit/delivery/runner_fixture.hpp"
#include "turnstile/decorators.hpp"
#include "turnstile/error.hpp"
#include "turnstile/replay.hpp"

namespace turnstile::detail {
namespace {

using namespace test;
using testing::CommitFault;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

using Plans = std::vector<std::vector<Planned>>;  ///< by partition

/// "partition:offset".
std::string name_of(std::int32_t partition, Offset offset) {
  return std::to_string(partition) + ":" + std::to_string(offset);
}
std::string name_of(const Message& message) { return name_of(message.partition(), message.offset()); }

Pipeline handler_of(const Plans& plans, bool spans) {
  const auto act = [&plans](const Message& message, Context& context) {
    const auto& plan = plans[static_cast<std::size_t>(message.partition())];
    return act_on(plan[static_cast<std::size_t>(message.offset())], name_of(message), context);
  };
  return acting(act, spans);
}

/// The partitions of a topic, whose waiting messages run together.
class Partitions {
 public:
  Partitions(const Plans& plans, Pipeline pipeline, const TopicSettings& settings = with_three_attempts())
      : world(settings, std::move(pipeline)), session_(world.inbox->open_session()) {
    for (std::size_t p = 0; p < plans.size(); ++p) {
      const auto partition = static_cast<std::int32_t>(p);
      places.push_back(world.claim(partition));
      lanes_.push_back(std::make_unique<Lane>(settings.order.value_or(Order::partition)));
      lanes_.back()->add(std::make_unique<OneBlock>(plans[p], partition));
    }
  }
  static TopicSettings with_three_attempts() {
    TopicSettings settings;
    settings.order = Order::partition;
    settings.retry = RetryPolicy{3, std::chrono::milliseconds(1), std::chrono::milliseconds(4)};
    return settings;
  }

  /// Runs up to `most` waiting messages of each partition: together, or each partition by itself. Returns the results by
  /// partition.
  std::map<std::size_t, UnitResult> run(std::size_t most = 100, bool together = true) {
    now_ += std::chrono::seconds(10);
    std::vector<std::vector<Work>> works(lanes_.size());
    std::vector<TopicRunner::Share> shares;
    std::vector<std::size_t> whose;
    for (std::size_t p = 0; p < lanes_.size(); ++p) {
      lanes_[p]->hand_out(most, now_, works[p]);
      if (works[p].empty()) continue;
      shares.push_back({works[p], places[p], {}});
      whose.push_back(p);
    }
    std::vector<UnitResult> results;
    if (together) results = world.runner->run_shared(shares, session_.get(), watch);
    else
      for (const auto& share : shares)
        results.push_back(world.runner->run(share.works, share.place, session_.get(), watch));
    std::map<std::size_t, UnitResult> by_partition;
    for (std::size_t k = 0; k < results.size(); ++k) {
      for (std::size_t i = 0; i < shares[k].works.size(); ++i)
        follow(results[k].verdicts[i], shares[k].works[i], *lanes_[whose[k]], now_);
      by_partition.emplace(whose[k], std::move(results[k]));
    }
    return by_partition;
  }
  [[nodiscard]] std::size_t unsettled() const {
    std::size_t sum = 0;
    for (const auto& lane : lanes_) sum += lane->unsettled();
    return sum;
  }
  [[nodiscard]] std::vector<std::string> effects() const {
    std::vector<std::string> names;
    for (const auto& statement : world.inbox->committed()) {
      if (statement.sql == kInsert) names.push_back(statement.params.at(0).value_or(""));
    }
    return names;
  }

  RunnerFixture world;
  std::vector<OwnedPartition> places;
  RunState watch;

 private:
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<ports::InboxSession> session_;
  SteadyTime now_{};
};

struct Fate {
  std::map<std::int32_t, std::vector<std::string>> effects;         ///< by partition, in the order of commits
  std::map<std::string, std::pair<std::string, int>> dead_letters;  ///< reason and attempts
  bool operator==(const Fate&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Fate& fate) {
  for (const auto& [partition, effects] : fate.effects) {
    for (const auto& effect : effects) out << effect << ' ';
  }
  for (const auto& [name, why] : fate.dead_letters)
    out << "dead " << name << ' ' << why.first << '/' << why.second << ' ';
  return out;
}

Fate fate_of(const Plans& plans, std::size_t most, bool together, bool spans, const std::vector<CommitFault>& faults) {
  Partitions partitions(plans, handler_of(plans, spans));
  for (const CommitFault fault : faults) partitions.world.inbox->fail_next_commit(fault);
  for (int round = 0; partitions.unsettled() > 0 && round < 10'000; ++round) partitions.run(most, together);
  RC_ASSERT(partitions.unsettled() == 0U);
  Fate fate;
  for (const auto& effect : partitions.effects()) fate.effects[std::stoi(effect)].push_back(effect);
  for (const auto& dead : partitions.world.inbox->dead()) {
    fate.dead_letters[name_of(dead.record.partition, dead.record.offset)] = {std::string(to_text(dead.reason)),
                                                                             dead.attempts};
  }
  return fate;
}

rc::Gen<Planned> planned(int partition) {
  return rc::gen::build<Planned>(rc::gen::set(&Planned::id, rc::gen::inRange(100 * partition, 100 * partition + 12)),
                                 rc::gen::set(&Planned::act, any_act(12, 8)),
                                 rc::gen::set(&Planned::failures, rc::gen::inRange(1, 5)));
}

RC_GTEST_PROP(SharedTransaction, equals_one_message_at_a_time, ()) {
  Plans plans;
  for (int partition = 0; partition < *rc::gen::inRange(1, 5); ++partition)
    plans.push_back(*rc::gen::container<std::vector<Planned>>(planned(partition)));
  const std::size_t most = *rc::gen::element<std::size_t>(1, 2, 7, 100);
  const bool spans = *rc::gen::arbitrary<bool>();
  auto faults = *rc::gen::container<std::vector<CommitFault>>(rc::gen::element(
      CommitFault::busy, CommitFault::unavailable, CommitFault::in_doubt_committed, CommitFault::in_doubt_lost));
  if (faults.size() > 9) faults.resize(9);  // busy more often in a row counts as an attempt
  const Fate one = fate_of(plans, 1, false, spans, {});
  const Fate shared = fate_of(plans, most, true, spans, faults);
  RC_ASSERT(shared == one);
}

const Plans kThree = {{{1}, {2}}, {{11}}, {{21}, {22}}};

TEST(SharedTransaction, is_one_commit) {
  Partitions partitions(kThree, handler_of(kThree, false));
  const auto results = partitions.run();
  EXPECT_EQ(partitions.unsettled(), 0U);
  EXPECT_EQ(partitions.world.inbox->commits(), 1U);
  EXPECT_THAT(partitions.effects(), ElementsAre("0:0", "0:1", "1:0", "2:0", "2:1"));
  EXPECT_EQ(results.at(0).counts.done, 2);
  EXPECT_EQ(results.at(1).counts.done, 1);
  EXPECT_EQ(results.at(2).counts.partition, 2);
}

TEST(SharedTransaction, runs_an_id_of_two_partitions_once) {
  const Plans plans = {{{1}}, {{1}, {2}}};
  Partitions partitions(plans, handler_of(plans, false));
  const auto results = partitions.run();
  EXPECT_EQ(partitions.unsettled(), 0U);
  EXPECT_THAT(partitions.effects(), ElementsAre("0:0", "1:1"));
  EXPECT_EQ(results.at(1).counts.duplicates, 1);
}

TEST(SharedTransaction, a_message_that_fails_is_the_only_one_that_waits) {
  Plans plans = kThree;
  plans[1][0] = {11, 0, Act::fail, 1};
  Partitions partitions(plans, handler_of(plans, false));
  auto results = partitions.run();
  EXPECT_EQ(partitions.unsettled(), 1U);
  EXPECT_EQ(results.at(1).verdicts.at(0).kind, Verdict::Kind::retry);
  EXPECT_EQ(results.at(1).counts.rerun, 0);
  EXPECT_EQ(results.at(0).counts.rerun, 2);  // rolled back because of it, and repeated
  EXPECT_EQ(results.at(2).counts.rerun, 0);  // not begun yet
  partitions.run();
  EXPECT_THAT(partitions.effects(), UnorderedElementsAre("0:0", "0:1", "1:0", "2:0", "2:1"));
}

TEST(SharedTransaction, a_partition_with_another_owner_does_not_stop_the_others) {
  Partitions partitions(kThree, handler_of(kThree, false));
  const OwnedPartition newer = partitions.world.claim(1);
  const auto results = partitions.run();
  EXPECT_EQ(results.at(0).end, UnitResult::End::ran);
  EXPECT_EQ(results.at(1).end, UnitResult::End::fenced);
  EXPECT_EQ(results.at(2).end, UnitResult::End::ran);
  EXPECT_EQ(partitions.unsettled(), 1U);
  EXPECT_THAT(partitions.effects(), ElementsAre("0:0", "0:1", "2:0", "2:1"));
}

/// A handler that takes a batch never gets messages of two partitions: they have different fences.
TEST(SharedTransaction, calls_a_batch_handler_for_each_partition) {
  struct Call {
    std::set<std::int32_t> partitions;
    std::size_t messages;
    std::optional<Fence> fence;
  };
  std::vector<Call> calls;
  Partitions partitions(kThree, [&calls](std::span<const Message> messages, Context& context) {
    Call& call = calls.emplace_back(Call{{}, messages.size(), context.fence()});
    for (const Message& message : messages) call.partitions.insert(message.partition());
    EXPECT_EQ(context.ids().size(), messages.size());
  });
  partitions.run();
  ASSERT_EQ(calls.size(), 3U);
  for (std::int32_t partition = 0; partition < 3; ++partition) {
    const Call& call = calls[static_cast<std::size_t>(partition)];
    EXPECT_THAT(call.partitions, ElementsAre(partition));
    EXPECT_EQ(call.messages, kThree[static_cast<std::size_t>(partition)].size());
    EXPECT_EQ(call.fence, partitions.places[static_cast<std::size_t>(partition)].fence);
  }
  EXPECT_EQ(partitions.world.inbox->commits(), 1U);
}

TEST(SharedTransaction, a_commit_in_doubt_is_looked_up_for_each_partition) {  // hazard: commit-in-doubt
  for (const bool carried_out : {true, false}) {
    Partitions partitions(kThree, handler_of(kThree, false));
    partitions.world.inbox->fail_next_commit(carried_out ? CommitFault::in_doubt_committed
                                                         : CommitFault::in_doubt_lost);
    partitions.run();
    EXPECT_EQ(partitions.unsettled(), 0U);
    EXPECT_THAT(partitions.effects(), UnorderedElementsAre("0:0", "0:1", "1:0", "2:0", "2:1")) << carried_out;
    EXPECT_EQ(partitions.world.inbox->commits(), carried_out ? 1U : 3U);
  }
}

/// A statement that ends the connection at each COMMIT must become a failed attempt, and not wait for others.
TEST(SharedTransaction, after_a_commit_in_doubt_each_partition_is_its_own) {  // hazard: commit-in-doubt
  Partitions partitions(kThree, handler_of(kThree, false));
  for (int i = 0; i < 2; ++i) partitions.world.inbox->fail_next_commit(CommitFault::in_doubt_lost);
  const auto results = partitions.run();
  EXPECT_EQ(partitions.unsettled(), 2U) << "the second doubt was of partition 0";
  EXPECT_THAT(partitions.effects(), UnorderedElementsAre("1:0", "2:0", "2:1"));
  EXPECT_EQ(results.at(0).counts.rerun, 2);
}

/// Some of them, as when copies of the messages of one partition take effect elsewhere.
TEST(SharedTransaction, a_partition_that_the_inbox_shows_does_not_run_again) {  // hazard: commit-in-doubt
  Plans plans = kThree;
  plans[1][0] = {11, 0, Act::fail, 1};
  TopicSettings settings = Partitions::with_three_attempts();
  settings.retry->durable = DurableRetry::later_messages_pass;
  Partitions partitions(plans, handler_of(plans, false), settings);
  partitions.world.inbox->fail_next_commit(CommitFault::in_doubt_elsewhere);
  const auto results = partitions.run();
  EXPECT_EQ(results.at(0).counts.rerun, 0);
  EXPECT_EQ(results.at(1).counts.rerun, 1);
  EXPECT_EQ(results.at(1).counts.deferred, 1) << "its next attempt was not stored";
  EXPECT_EQ(partitions.unsettled(), 0U);
}

TEST(SharedTransaction, a_cancelled_unit_commits_nothing) {
  Partitions* all = nullptr;
  Partitions partitions(kThree, [&all](const Message& message, Context& context) {
    context.defer(kInsert, name_of(message));
    if (message.partition() == 1) all->watch.cancel().request_stop();
  });
  all = &partitions;
  const auto results = partitions.run();
  EXPECT_EQ(partitions.unsettled(), 5U);
  EXPECT_THAT(partitions.effects(), IsEmpty());
  for (const auto& [partition, result] : results) EXPECT_EQ(result.end, UnitResult::End::ran) << partition;
}

/// What it has committed must not run again.
TEST(SharedTransaction, a_handler_that_ends_the_transaction_stops_the_consumer) {
  int runs = 0;
  Partitions partitions(kThree, [&runs](const Message& message, Context& context) {
    ++runs;
    context.tx().exec(message.partition() == 1 ? "SELECT end_it()" : kInsert, name_of(message));
  });
  partitions.world.inbox->on_statement([](const auto& statement) -> std::optional<Rows> {
    if (statement.sql == "SELECT end_it()") throw TransactionEnded("a handler committed the transaction");
    return std::nullopt;
  });
  const auto results = partitions.run();
  EXPECT_TRUE(std::any_of(results.begin(), results.end(),
                          [](const auto& result) { return result.second.end == UnitResult::End::broken; }));
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(partitions.unsettled(), 5U);
}

TEST(SharedTransaction, all_wait_for_a_store_that_is_away) {
  Partitions partitions(kThree, handler_of(kThree, false));
  partitions.world.inbox->set_unavailable(true);
  for (const auto& [partition, result] : partitions.run())
    EXPECT_EQ(result.end, UnitResult::End::store_unavailable) << partition;
  EXPECT_EQ(partitions.unsettled(), 5U);
  partitions.world.inbox->set_unavailable(false);
  partitions.run();
  EXPECT_EQ(partitions.unsettled(), 0U);
}

TEST(SharedTransaction, a_message_that_brings_the_store_down_each_time_fails_and_no_other) {
  for (const bool at_commit : {false, true}) {
    Partitions partitions(kThree, [&](const Message& message, Context& context) {
      if (name_of(message) == "1:0") context.tx().exec("crash");
      context.tx().exec(kInsert, name_of(message));
    });
    MemoryInbox* const inbox = partitions.world.inbox.get();
    inbox->on_statement([&](const auto& statement) -> std::optional<Rows> {
      if (statement.sql != "crash") return std::nullopt;
      if (at_commit) {
        inbox->fail_next_commit(CommitFault::in_doubt_outage);
        return Rows{};
      }
      inbox->set_unavailable(true);
      throw StoreUnavailable("server closed the connection unexpectedly");
    });
    for (int round = 0; partitions.unsettled() > 0 && round < 1'000; ++round) {
      inbox->set_unavailable(false);
      partitions.run();
    }
    EXPECT_EQ(partitions.unsettled(), 0U) << at_commit;
    ASSERT_EQ(inbox->dead().size(), 1U) << at_commit;
    EXPECT_EQ(inbox->dead()[0].record.partition, 1);
    EXPECT_EQ(inbox->dead()[0].attempts, 3);
    EXPECT_EQ(partitions.effects().size(), 4U) << at_commit;
  }
}

TEST(SharedTransaction, a_dead_letter_before_the_handler_is_of_its_message_only) {
  Plans plans = kThree;
  plans[0][0].act = Act::no_id;
  Partitions partitions(plans, handler_of(plans, false));
  const auto results = partitions.run();
  EXPECT_EQ(partitions.unsettled(), 0U);
  EXPECT_EQ(results.at(0).counts.dead, 1);
  EXPECT_THAT(partitions.effects(), ElementsAre("0:1", "1:0", "2:0", "2:1"));
  EXPECT_EQ(partitions.world.inbox->commits(), 1U);
}

/// What may have killed a process is recorded before it runs, and runs by itself.
TEST(SharedTransaction, a_suspect_does_not_share) {
  Partitions partitions(kThree, handler_of(kThree, false));
  partitions.places[2].suspicion = std::make_shared<Suspicion>(Suspicion{.suspects = {{0, 1}}});
  partitions.run();
  EXPECT_EQ(partitions.unsettled(), 0U);
  EXPECT_EQ(partitions.world.inbox->commits(), 3U);
}

TEST(SharedTransaction, a_failed_message_is_stored_for_its_next_attempt_with_its_partition) {
  Plans plans = kThree;
  plans[1][0] = {11, 0, Act::fail, 1};
  TopicSettings settings = Partitions::with_three_attempts();
  settings.retry->durable = DurableRetry::later_messages_pass;
  Partitions partitions(plans, handler_of(plans, false), settings);
  const auto results = partitions.run();
  EXPECT_EQ(partitions.unsettled(), 0U);
  EXPECT_EQ(results.at(1).counts.deferred, 1);
  EXPECT_EQ(partitions.world.inbox->commits(), 1U);
  EXPECT_THAT(partitions.effects(), ElementsAre("0:0", "0:1", "2:0", "2:1"));
}

}  // namespace
}  // namespace turnstile::detail
