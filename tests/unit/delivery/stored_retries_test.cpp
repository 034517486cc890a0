// Messages that wait in the store for their next attempt: each takes effect once, in the order of its key.

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "engine/lane.hpp"
#include "tests/support/captured_log.hpp"
#include "tests/unit/delivery/runner_fixture.hpp"
#include "turnstile/decorators.hpp"
#include "turnstile/replay.hpp"

namespace turnstile::detail {
namespace {

using namespace test;
using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Records final : public OwnedBlock {
 public:
  using OwnedBlock::OwnedBlock;
};

/// Payloads are places in `plan`.
Pipeline handler_of(const std::vector<Planned>& plan) {
  return [&plan](const Message& message, Context& context) {
    const Planned& planned = plan[static_cast<std::size_t>(std::stoul(std::string(message.text())))];
    if (planned.act == Act::reject) return Outcome::dead_letter("told to reject");
    if (context.attempt() <= planned.failures) throw std::runtime_error("told to fail");
    context.tx().exec(kInsert, message.text());
    return Outcome::done();
  };
}

struct DurableFixture : RunnerFixture {
  DurableFixture(const std::vector<Planned>& plan, DurableRetry durable, Order order, int attempts = 3)
      : RunnerFixture(settings_of(durable, order, attempts), handler_of(plan)), order_(order) {}
  static TopicSettings settings_of(DurableRetry durable, Order order, int attempts) {
    TopicSettings settings;
    settings.order = order;
    settings.retry = RetryPolicy{attempts, 1ms, 1ms, durable};
    return settings;
  }

  /// From now on, with these settings and the services of now.
  void use(const std::vector<Planned>& plan, DurableRetry durable, Order order) {
    TopicSettings settings = settings_of(durable, order, 3);
    settings.mode = Mode::transactional;
    settings.dead_letter = "";
    runner = std::make_unique<TopicRunner>(plan_topic("t", settings), handler_of(plan), inbox->register_handler("t"),
                                           services);
  }

  /// Runs these records as the next ones of the partition until all are settled. False if that never happens.
  bool run(std::vector<OwnedMessage> records, std::size_t batch = 100) {
    if (records.empty()) return true;
    Lane lane(order_);
    for (OwnedMessage& record : records) {
      record.topic = "t";
      record.partition = 0;
      record.offset = next_++;
    }
    lane.add(std::make_unique<Records>(std::move(records)));
    const auto session = inbox->open_session();
    RunState watch;
    SteadyTime now{};
    for (int round = 0; lane.unsettled() > 0 && round < 1'000; ++round) {
      now += 10s;
      std::vector<Work> works;
      lane.hand_out(batch, now, works);
      const auto result = runner->run(works, place, session.get(), watch);
      for (std::size_t i = 0; i < works.size(); ++i) follow(result.verdicts[i], works[i], lane, now);
      counts.deferred += result.counts.deferred;
      counts.duplicates += result.counts.duplicates;
    }
    return lane.unsettled() == 0;
  }
  /// What the relay sends now.
  std::vector<OwnedMessage> due() {
    const auto outbox = inbox->outbox();
    std::vector<ports::OutboxShard> shards(ports::kOutboxShards);
    std::iota(shards.begin(), shards.end(), ports::OutboxShard{0});
    next_due = outbox->release_due(shards, 1'000).next;
    std::vector<OwnedMessage> messages;
    for (const auto& record : outbox->waiting(shards, 1'000)) {
      messages.push_back(record.message);
      const ports::OutboxRecord* const sent = &record;
      outbox->remove({&sent, 1});
    }
    return messages;
  }
  /// Runs what comes back, until nothing is stored.
  bool drain(std::size_t batch = 100, bool twice = false) {
    std::vector<OwnedMessage> before;
    const auto give_up = std::chrono::steady_clock::now() + 30s;
    while (std::chrono::steady_clock::now() < give_up) {
      auto records = due();
      if (records.empty() && !next_due) return true;
      const auto sent = records;
      if (twice) {  // the relay died before it removed them, and so did the consumer before it committed its offsets
        records.insert(records.begin(), before.begin(), before.end());
        records.insert(records.end(), sent.begin(), sent.end());
      }
      if (!sent.empty()) before = sent;
      if (!run(std::move(records), batch)) return false;
    }
    return false;
  }
  /// Waits until something is due.
  std::vector<OwnedMessage> wait_until_due() {
    for (;;) {
      auto records = due();
      if (!records.empty() || !next_due) return records;
    }
  }
  std::vector<std::string> effects() const {
    std::vector<std::string> all;
    for (const auto& statement : inbox->committed()) all.push_back(statement.params.at(0).value_or(""));
    return all;
  }
  std::vector<OwnedMessage> records_of(const std::vector<Planned>& plan) {
    const OneBlock block(plan);
    std::vector<OwnedMessage> records;
    for (const Message& message : block.messages()) records.push_back(message.own());
    return records;
  }

  BatchReport counts;
  std::optional<std::chrono::milliseconds> next_due;

 private:
  Order order_;
  Offset next_ = 0;
};

rc::Gen<std::vector<Planned>> plans(int ids) {
  return rc::gen::container<std::vector<Planned>>(rc::gen::build<Planned>(
      rc::gen::set(&Planned::id, rc::gen::inRange(0, ids)), rc::gen::set(&Planned::key, rc::gen::inRange(0, 3)),
      rc::gen::set(&Planned::act, rc::gen::weightedElement<Act>({{8, Act::fail}, {1, Act::reject}})),
      rc::gen::set(&Planned::failures, rc::gen::weightedElement<int>({{4, 0}, {1, 1}, {1, 2}, {1, 9}}))));
}

bool dies(const Planned& planned) { return planned.act == Act::reject || planned.failures >= 3; }

RC_GTEST_PROP(StoredRetries, each_message_takes_effect_once_in_the_order_of_its_key, ()) {
  auto plan = *plans(1);
  for (std::size_t i = 0; i < plan.size(); ++i) plan[i].id = static_cast<int>(i);
  const auto durable = *rc::gen::element(DurableRetry::later_messages_wait, DurableRetry::later_messages_pass);
  const auto order = *rc::gen::element(Order::partition, Order::key);
  const auto batch = *rc::gen::inRange<std::size_t>(1, 8);
  DurableFixture world(plan, durable, order);
  RC_ASSERT(world.run(world.records_of(plan), batch));
  RC_ASSERT(world.drain(batch, *rc::gen::arbitrary<bool>()));
  const auto effects = world.effects();
  RC_ASSERT(std::set<std::string>(effects.begin(), effects.end()).size() == effects.size());
  std::map<int, std::size_t> last;
  for (const std::string& effect : effects) {
    const std::size_t at = std::stoul(effect);
    RC_ASSERT(!dies(plan[at]));
    if (durable == DurableRetry::later_messages_pass) continue;
    const auto before = last.find(plan[at].key);
    const bool in_order = before == last.end() || before->second < at;  // RC_ASSERT would print the end's value
    RC_ASSERT(in_order);
    last[plan[at].key] = at;
  }
  const auto died = static_cast<std::size_t>(std::count_if(plan.begin(), plan.end(), dies));
  RC_ASSERT(effects.size() + died == plan.size());
  RC_ASSERT(world.inbox->dead().size() == died);
}

RC_GTEST_PROP(StoredRetries, copies_of_a_message_take_effect_once, ()) {
  const auto plan = *plans(4);
  const auto order = *rc::gen::element(Order::partition, Order::key);
  const auto batch = *rc::gen::inRange<std::size_t>(1, 8);
  DurableFixture world(plan, DurableRetry::later_messages_wait, order);
  RC_ASSERT(world.run(world.records_of(plan), batch));
  RC_ASSERT(world.run(world.records_of(plan), batch));  // the producer has sent all of them again
  RC_ASSERT(world.drain(batch));
  std::map<int, int> effects;
  for (const std::string& effect : world.effects()) ++effects[plan[std::stoul(effect)].id];
  std::set<int> dead;
  for (const auto& letter : world.inbox->dead()) dead.insert(plan[std::stoul(*letter.record.payload)].id);
  for (const Planned& planned : plan) {
    RC_ASSERT(effects[planned.id] <= 1);
    RC_ASSERT(effects[planned.id] == 1 || dead.contains(planned.id));
  }
}

TEST(StoredRetriesTest, a_failed_message_does_not_hold_back_the_partition) {
  const std::vector<Planned> plan = {{0, 0, Act::fail, 1}, {1, 1}, {2, 0}};
  DurableFixture world(plan, DurableRetry::later_messages_wait, Order::partition);
  ASSERT_TRUE(world.run(world.records_of(plan)));
  EXPECT_THAT(world.effects(), ElementsAre("1"));
  EXPECT_EQ(world.counts.deferred, 2);
  ASSERT_TRUE(world.run(world.wait_until_due()));
  EXPECT_THAT(world.effects(), ElementsAre("1", "0"));
  ASSERT_TRUE(world.drain());
  EXPECT_THAT(world.effects(), ElementsAre("1", "0", "2"));
}

TEST(StoredRetriesTest, the_attempts_of_all_deliveries_count) {
  const std::vector<Planned> plan = {{0, 0, Act::fail, 100}};
  DurableFixture world(plan, DurableRetry::later_messages_wait, Order::partition, 4);
  ASSERT_TRUE(world.run(world.records_of(plan)));
  int deliveries = 1;
  for (auto records = world.wait_until_due(); !records.empty(); records = world.wait_until_due(), ++deliveries)
    ASSERT_TRUE(world.run(std::move(records)));
  EXPECT_EQ(deliveries, 4);
  const auto dead = world.inbox->dead();
  ASSERT_THAT(dead, SizeIs(1));
  EXPECT_EQ(dead[0].attempts, 4);
  for (const Header& header : dead[0].record.headers) EXPECT_NE(header.name, kRetry);
}

TEST(StoredRetriesTest, a_record_that_is_delivered_twice_runs_once) {
  const std::vector<Planned> plan = {{0, 0, Act::fail, 1}};
  DurableFixture world(plan, DurableRetry::later_messages_wait, Order::partition);
  ASSERT_TRUE(world.run(world.records_of(plan)));
  ASSERT_TRUE(world.run(world.records_of(plan)));  // its offset was not committed
  EXPECT_THAT(world.effects(), IsEmpty());
  const auto back = world.wait_until_due();
  ASSERT_THAT(back, SizeIs(1));
  ASSERT_TRUE(world.run(back));
  ASSERT_TRUE(world.run(back));
  EXPECT_THAT(world.effects(), ElementsAre("0"));
  EXPECT_EQ(world.counts.duplicates, 2);
}

TEST(StoredRetriesTest, a_record_of_an_attempt_that_has_failed_does_not_run_again) {
  const std::vector<Planned> plan = {{0, 0, Act::fail, 2}};
  DurableFixture world(plan, DurableRetry::later_messages_wait, Order::partition);
  ASSERT_TRUE(world.run(world.records_of(plan)));
  const auto first = world.wait_until_due();
  ASSERT_TRUE(world.run(first));  // fails, and is stored again
  ASSERT_TRUE(world.run(first));  // its offset was not committed
  EXPECT_EQ(world.counts.deferred, 2);
  EXPECT_EQ(world.counts.duplicates, 1);
  ASSERT_TRUE(world.drain());
  EXPECT_THAT(world.effects(), ElementsAre("0"));
}

TEST(StoredRetriesTest, what_came_back_is_settled_also_when_the_setting_is_off_by_then) {
  const std::vector<Planned> plan = {{0, 0, Act::fail, 1}, {1, 0}};
  DurableFixture world(plan, DurableRetry::later_messages_wait, Order::partition);
  ASSERT_TRUE(world.run(world.records_of(plan)));
  world.use(plan, DurableRetry::off, Order::partition);
  ASSERT_TRUE(world.drain());
  EXPECT_THAT(world.effects(), ElementsAre("0", "1"));
}

TEST(StoredRetriesTest, neighbours_that_fail_with_the_same_error_share_a_log_line) {
  const std::vector<Planned> plan = {{0, 0, Act::fail, 1}, {1, 1, Act::fail, 1}, {2, 2}, {3, 3, Act::fail, 1}};
  DurableFixture world(plan, DurableRetry::later_messages_wait, Order::none);
  test::CapturedLog log;
  world.services.run_log = std::make_shared<RunLog>(std::make_shared<spdlog::logger>("log", log.sink()), "test");
  world.use(plan, DurableRetry::later_messages_wait, Order::none);
  ASSERT_TRUE(world.run(world.records_of(plan)));
  EXPECT_EQ(world.counts.deferred, 3);
  EXPECT_THAT(log.str(), HasSubstr("stored in PostgreSQL (and 1 more, up to offset 1): told to fail"));
  EXPECT_THAT(log.str(),
              HasSubstr("stored in PostgreSQL: told to fail code=handler_failed topic=t partition=0 offset=3"));
}

TEST(StoredRetriesTest, while_the_store_does_not_answer_nothing_is_settled) {
  const std::vector<Planned> plan = {{0, 0, Act::fail, 1}};
  for (const auto fault : {testing::CommitFault::unavailable, testing::CommitFault::busy,
                           testing::CommitFault::in_doubt_committed, testing::CommitFault::in_doubt_lost}) {
    DurableFixture world(plan, DurableRetry::later_messages_wait, Order::partition);
    world.inbox->fail_next_commit(fault);
    ASSERT_TRUE(world.run(world.records_of(plan)));
    ASSERT_TRUE(world.drain());
    EXPECT_THAT(world.effects(), ElementsAre("0"));
  }
}

/// A copy of the other message, from another partition, has waited for the end of the transaction. Its id says nothing
/// of the message that was to be stored.
TEST(StoredRetriesTest,
     a_message_is_not_lost_when_copies_of_the_others_took_effect_elsewhere) {  // hazard: commit-in-doubt
  const std::vector<Planned> plan = {{0, 0, Act::fail, 1}, {1, 1, Act::fail, 0}};
  for (const auto durable : {DurableRetry::later_messages_wait, DurableRetry::later_messages_pass}) {
    DurableFixture world(plan, durable, Order::partition);
    world.inbox->fail_next_commit(testing::CommitFault::in_doubt_elsewhere);
    ASSERT_TRUE(world.run(world.records_of(plan)));
    ASSERT_TRUE(world.drain());
    EXPECT_THAT(world.effects(), ElementsAre("0"));
  }
}

}  // namespace
}  // namespace turnstile::detail
