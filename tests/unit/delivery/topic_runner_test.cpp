// What becomes of a batch equals what becomes of its messages one at a time, whatever fails in it.

#include "delivery/topic_runner.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <thread>

#include "engine/lane.hpp"
#include "tests/support/forwarding_session.hpp"
#include "tests/unit/delivery/runner_fixture.hpp"
#include "turnstile/decorators.hpp"
#include "turnstile/error.hpp"

namespace turnstile::detail {
namespace {

using namespace test;
using testing::CommitFault;

struct Result {
  std::vector<std::string> effects;                    // offsets, in the order of commits
  std::map<Offset, std::pair<std::string, int>> dead;  // offset -> reason, attempts
  bool operator==(const Result&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Result& result) {
  for (const auto& effect : result.effects) out << effect << ' ';
  for (const auto& [offset, why] : result.dead)
    out << "dead " << offset << ' ' << why.first << '/' << why.second << ' ';
  return out;
}

Pipeline handler_of(const std::vector<Planned>& plan, bool spans) {
  const auto act = [&plan](const Message& message, Context& context) {
    return act_on(plan[static_cast<std::size_t>(message.offset())], message.text(), context);
  };
  return acting(act, spans);
}

/// Sends what is announced together with the end of a transaction, so that its locks are held from then on.
class SendingAhead final : public ForwardingSession {
 public:
  using ForwardingSession::ForwardingSession;
  void announce(const ports::InboxScope&, std::span<const ports::InboxEntry> entries) noexcept override {
    announced_ = entries.front().offset;
  }
  std::vector<ports::Admission> begin(const ports::InboxScope& scope,
                                      std::span<const ports::InboxEntry> entries) override {
    const auto sent = std::exchange(sent_, std::nullopt);
    used += sent && entries.size() == 1 && entries.front().offset == *sent ? 1 : 0;
    announced_.reset();
    return inner().begin(scope, entries);
  }
  void commit() override {
    const auto announced = std::exchange(announced_, std::nullopt);
    inner().commit();
    sent_ = announced;
  }
  void rollback() noexcept override {
    sent_ = std::exchange(announced_, std::nullopt);
    inner().rollback();
  }
  [[nodiscard]] bool holds_locks() const noexcept { return sent_.has_value(); }
  int used = 0;  ///< of what was sent

 private:
  std::optional<Offset> announced_, sent_;
};

/// Drives lane and runner until all is settled; false if it never is, or if a unit leaves locks behind. The store is there again in each round.
bool drive(RunnerFixture& world, const std::vector<Planned>& plan, Order order, std::size_t batch) {
  Lane lane(order);
  lane.add(std::make_unique<OneBlock>(plan));
  SendingAhead session(world.inbox->open_session());
  RunState watch;
  SteadyTime now{};
  for (int round = 0; lane.unsettled() > 0 && round < 10'000; ++round) {
    now += std::chrono::seconds(10);
    world.inbox->set_unavailable(false);
    std::vector<Work> works;
    lane.hand_out(batch, now, works);
    const auto result = world.runner->run(works, world.place, &session, watch);
    if (session.holds_locks()) return false;
    for (std::size_t i = 0; i < works.size(); ++i) follow(result.verdicts[i], works[i], lane, now);
  }
  return lane.unsettled() == 0U;
}

Result run(const std::vector<Planned>& plan, Order order, std::size_t batch, bool spans,
           std::vector<CommitFault> faults, std::int64_t in_transaction = 500) {
  TopicSettings settings;
  settings.batch = in_transaction;
  settings.order = order;
  settings.retry = RetryPolicy{3, std::chrono::milliseconds(1), std::chrono::milliseconds(4)};
  RunnerFixture world(settings, handler_of(plan, spans));
  for (const CommitFault fault : faults) world.inbox->fail_next_commit(fault);
  RC_ASSERT(drive(world, plan, order, batch));
  Result result;
  for (const auto& statement : world.inbox->committed()) result.effects.push_back(statement.params.at(0).value_or(""));
  for (const auto& dead : world.inbox->dead())
    result.dead[dead.record.offset] = {std::string(to_text(dead.reason)), dead.attempts};
  RC_ASSERT(world.broker.records("t.dlq").size() == result.dead.size());
  return result;
}

rc::Gen<Planned> planned() {
  return rc::gen::build<Planned>(
      rc::gen::set(&Planned::id, rc::gen::inRange(0, 12)), rc::gen::set(&Planned::key, rc::gen::inRange(0, 3)),
      rc::gen::set(&Planned::act, any_act(6, 4)), rc::gen::set(&Planned::failures, rc::gen::inRange(1, 5)));
}

TEST(TopicRunner, a_statement_that_is_always_busy_fails_its_message_and_no_other) {
  for (const bool deferred : {false, true}) {
    const std::vector<Planned> plan = {{0}, {1}, {2, 0, deferred ? Act::fail_deferred : Act::fail_sql, 100}, {3}, {4}};
    TopicSettings settings;
    settings.retry = RetryPolicy{3, std::chrono::milliseconds(1), std::chrono::milliseconds(4)};
    RunnerFixture world(settings, handler_of(plan, false));
    int busy = 0;
    world.inbox->on_statement([&](const auto& statement) -> std::optional<Rows> {
      if (statement.sql != kBadInsert) return std::nullopt;
      ++busy;
      throw StoreBusy("canceling statement due to lock timeout (SQLSTATE 55P03)");
    });
    ASSERT_TRUE(drive(world, plan, Order::partition, 5));
    // Once more when it was singled out. A deferred statement is found busy in the next message, which the tries are counted for first.
    EXPECT_GE(busy, 3 * 10 + 1) << deferred;
    EXPECT_LE(busy, 3 * 10 * (deferred ? 2 : 1) + 4) << deferred;
    ASSERT_EQ(world.inbox->dead().size(), 1U);
    EXPECT_EQ(world.inbox->dead()[0].record.offset, 2);
    EXPECT_EQ(world.inbox->dead()[0].attempts, 3);
    EXPECT_NE(world.inbox->dead()[0].error.find("55P03"), std::string::npos);
    EXPECT_EQ(world.inbox->committed().size(), 4U);
  }
}

TEST(TopicRunner, messages_of_a_batch_that_are_busy_a_few_times_each_have_not_failed) {
  const std::vector<Planned> plan = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
  TopicSettings settings;
  settings.retry = RetryPolicy{1, std::chrono::milliseconds(1), std::chrono::milliseconds(4)};
  Offset now = 0;
  std::map<Offset, int> tries;
  RunnerFixture world(settings, [&](const Message& message, Context& context) {
    now = message.offset();
    context.tx().exec(kInsert, message.text());
  });
  world.inbox->on_statement([&](const auto& statement) -> std::optional<Rows> {
    if (statement.sql == kInsert && ++tries[now] <= 5) throw StoreBusy("could not serialize access (SQLSTATE 40001)");
    return std::nullopt;
  });
  ASSERT_TRUE(drive(world, plan, Order::partition, 8));
  EXPECT_TRUE(world.inbox->dead().empty());
  EXPECT_EQ(world.inbox->committed().size(), 8U);
}

/// Five messages; at the third one `what` happens, each time.
struct OfFive {
  std::vector<Planned> plan = {{0}, {1}, {2}, {3}, {4}};
  int runs = 0;
  RunnerFixture world;
  explicit OfFive(std::function<void(Context&)> what)
      : world(settings(), [this, what = std::move(what)](const Message& message, Context& context) {
          if (message.offset() == 2) ++runs, what(context);
          context.tx().exec(kInsert, message.text());
        }) {}
  static TopicSettings settings() {
    TopicSettings settings;
    settings.retry = RetryPolicy{3, std::chrono::milliseconds(1), std::chrono::milliseconds(4)};
    return settings;
  }
  void expect_one_dead() {
    ASSERT_EQ(world.inbox->dead().size(), 1U);
    EXPECT_EQ(world.inbox->dead()[0].record.offset, 2);
    EXPECT_EQ(world.inbox->dead()[0].reason, DeadReason::failed);
    EXPECT_EQ(world.inbox->dead()[0].attempts, 3);
    EXPECT_EQ(world.inbox->committed().size(), 4U);
  }
};

TEST(TopicRunner, an_error_of_another_store_is_a_failure_of_the_handler) {
  const std::vector<std::function<void(Context&)>> errors = {
      [](Context&) { throw StoreUnavailable("the other database is away"); },
      [](Context&) { throw StoreFailed("the other database refuses it", "42P01"); },
      [](Context&) { throw StoreBusy("the other database is busy (SQLSTATE 55P03)"); },
      [](Context&) { throw TransactionEnded("of the other database"); },
      [](Context&) { throw Fenced("of the other database"); },
      [](Context&) { throw DeferredSqlError("of the other database", "23505", 7); },
  };
  for (std::size_t i = 0; i < errors.size(); ++i) {
    OfFive five(errors[i]);
    ASSERT_TRUE(drive(five.world, five.plan, Order::partition, 5)) << i;
    five.expect_one_dead();
    EXPECT_EQ(five.runs, 3 + 1) << i;  // once more when it was singled out
  }
}

TEST(TopicRunner, a_statement_that_always_loses_its_connection_fails_its_message_and_no_other) {
  for (const bool deferred : {false, true}) {
    OfFive five([&](Context& context) {
      if (deferred) context.defer("kill");
      else context.tx().exec("kill");
    });
    int lost = 0;
    five.world.inbox->on_statement([&](const auto& statement) -> std::optional<Rows> {
      if (statement.sql != "kill") return std::nullopt;
      ++lost;
      throw StoreUnavailable("terminating connection due to administrator command (SQLSTATE 57P01)");
    });
    ASSERT_TRUE(drive(five.world, five.plan, Order::partition, 5)) << deferred;
    five.expect_one_dead();
    EXPECT_GE(lost, 3 * 10 + 1) << deferred;
    EXPECT_LE(lost, 3 * 10 + 4) << deferred;
    EXPECT_NE(five.world.inbox->dead()[0].error.find("57P01"), std::string::npos);
  }
}

TEST(TopicRunner, a_message_that_brings_the_store_down_each_time_fails_and_no_other) {
  enum class At { statement, deferred_statement, commit };
  for (const At at : {At::statement, At::deferred_statement, At::commit}) {
    OfFive five([&](Context& context) {
      if (at == At::statement) context.tx().exec("crash");
      else if (at == At::deferred_statement) context.defer("crash");
      else context.tx().exec("crash at commit");
    });
    int crashes = 0;
    five.world.inbox->on_statement([&](const auto& statement) -> std::optional<Rows> {
      if (!statement.sql.starts_with("crash")) return std::nullopt;
      ++crashes;
      if (statement.sql == "crash at commit") {
        five.world.inbox->fail_next_commit(CommitFault::in_doubt_outage);
        return Rows{};
      }
      five.world.inbox->set_unavailable(true);
      throw StoreUnavailable("server closed the connection unexpectedly");
    });
    EXPECT_TRUE(drive(five.world, five.plan, Order::partition, 5)) << static_cast<int>(at);
    five.expect_one_dead();
    EXPECT_GE(crashes, 3 * 10) << static_cast<int>(at);
    EXPECT_LE(crashes, 3 * 10 + 12) << static_cast<int>(at);
  }
}

TEST(TopicRunner, an_outage_under_a_statement_counts_as_no_attempt) {
  OfFive five([](Context& context) { context.tx().exec("down"); });
  bool down = true;
  five.world.inbox->on_statement([&](const auto& statement) -> std::optional<Rows> {
    if (statement.sql != "down" || !down) return std::nullopt;
    five.world.inbox->set_unavailable(true);
    throw StoreUnavailable("lost the connection");
  });
  const OneBlock block(five.plan);
  const auto messages = block.messages();
  std::vector<Work> works;
  for (const Message& message : messages) works.push_back({.message = &message});
  const auto session = five.world.inbox->open_session();
  RunState watch;
  for (int i = 0; i < 50; ++i) {
    const auto result = five.world.runner->run(works, five.world.place, session.get(), watch);
    EXPECT_EQ(result.end, UnitResult::End::store_unavailable);
    for (const Verdict& verdict : result.verdicts) EXPECT_EQ(verdict.kind, Verdict::Kind::put_back);
  }
  EXPECT_EQ(five.runs, 1);
  five.world.inbox->set_unavailable(false);
  down = false;
  ASSERT_TRUE(drive(five.world, five.plan, Order::partition, 5));
  EXPECT_TRUE(five.world.inbox->dead().empty());
}

RC_GTEST_PROP(TopicRunner, a_batch_equals_one_at_a_time, ()) {
  const auto plan = *rc::gen::container<std::vector<Planned>>(planned());
  const std::size_t batch = *rc::gen::element<std::size_t>(2, 3, 7, 100);
  const bool spans = *rc::gen::arbitrary<bool>();
  auto faults = *rc::gen::container<std::vector<CommitFault>>(rc::gen::element(
      CommitFault::busy, CommitFault::unavailable, CommitFault::in_doubt_committed, CommitFault::in_doubt_lost));
  if (faults.size() > 9) faults.resize(9);  // busy more often in a row counts as an attempt
  const Result one = run(plan, Order::partition, 1, spans, {});
  const std::int64_t in_transaction = *rc::gen::element<std::int64_t>(1, 2, 3, 500);
  const Result many = run(plan, Order::partition, batch, spans, faults, in_transaction);
  RC_ASSERT(many == one);
}

/// A unit may have more messages than a transaction.
TEST(TopicRunner, no_transaction_has_more_messages_than_batch_says) {
  for (const std::int64_t most : {1, 2, 3}) {
    std::size_t largest = 0;
    TopicSettings settings;
    settings.batch = most;
    RunnerFixture world(settings, [&](std::span<const Message> messages, Context& context) {
      largest = std::max(largest, messages.size());
      for (const Message& message : messages) context.tx().exec(kInsert, message.text());
    });
    ASSERT_TRUE(drive(world, {{0}, {1}, {2}, {3}, {4}, {5}, {6}}, Order::partition, 7));
    EXPECT_EQ(largest, static_cast<std::size_t>(most));
    EXPECT_EQ(world.inbox->committed().size(), 7U);
  }
}

/// A unit of messages that each have a transaction of their own.
struct UnitOfSingles {
  UnitOfSingles(const std::vector<Planned>& plan, Pipeline pipeline)
      : block(plan), world(settings(), std::move(pipeline)), session(world.inbox->open_session()) {
    for (const Message& message : block.messages()) works.push_back({&message, works.size(), 1});
  }
  static TopicSettings settings() {
    TopicSettings settings;
    settings.batch = 1;
    return settings;
  }
  UnitResult run() { return world.runner->run(works, world.place, &session, watch); }
  [[nodiscard]] std::size_t committed() const { return world.inbox->committed().size(); }

  OneBlock block;
  RunnerFixture world;
  SendingAhead session;
  RunState watch;
  std::vector<Work> works;
};

TEST(TopicRunner, sends_the_start_of_each_transaction_of_one_message_ahead) {
  const std::vector<Planned> plan = {{0}, {1}, {2, 0, Act::deferred_effect}, {1}, {4}, {5}};
  UnitOfSingles unit(plan, handler_of(plan, false));
  static_cast<void>(unit.run());
  EXPECT_EQ(unit.session.used, 5) << "all but the first one";
  EXPECT_FALSE(unit.session.holds_locks());
  EXPECT_EQ(unit.committed(), 5U);
}

/// A rebalance and the end of the process wait for what a unit has started.
TEST(TopicRunner, starts_no_further_transaction_of_a_unit_that_takes_long) {
  int runs = 0;
  UnitOfSingles unit({{0}, {1}, {2}, {3}}, [&](const Message& message, Context& context) {
    if (++runs == 2) std::this_thread::sleep_for(kUnitTime + std::chrono::milliseconds(10));  // a slow handler
    context.tx().exec(kInsert, message.text());
  });
  const auto result = unit.run();
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(unit.session.used, 1) << "nothing is announced that does not run";
  EXPECT_FALSE(unit.session.holds_locks());
  EXPECT_EQ(unit.committed(), 2U);
  EXPECT_EQ(result.verdicts[1].kind, Verdict::Kind::settled);
  EXPECT_EQ(result.verdicts[2].kind, Verdict::Kind::put_back);
}

TEST(TopicRunner, asks_before_each_further_transaction_of_a_unit) {
  const std::vector<Planned> plan = {{0}, {1}, {2}, {3}};
  UnitOfSingles unit(plan, handler_of(plan, false));
  std::vector<std::size_t> told;
  unit.watch.between([&](std::size_t settled) {
    told.push_back(settled);
    return settled < 2;
  });
  const auto result = unit.run();
  EXPECT_EQ(told, (std::vector<std::size_t>{1, 2}));
  EXPECT_FALSE(unit.session.holds_locks());
  EXPECT_EQ(unit.committed(), 2U);
  EXPECT_EQ(result.verdicts[1].kind, Verdict::Kind::settled);
  EXPECT_EQ(result.verdicts[2].kind, Verdict::Kind::put_back);
}

/// A range is read again after a rewind, or after the death of a process.
TEST(TopicRunner, dead_letters_that_come_again_do_not_stop_the_partition) {
  std::vector<Planned> plan;
  for (int i = 0; i < 6; ++i) {
    plan.push_back({2 * i, 0, Act::no_id});
    plan.push_back({2 * i + 1});
  }
  TopicSettings settings;
  settings.stop_after_dead = 3;
  RunnerFixture world(settings, handler_of(plan, false));
  ASSERT_TRUE(drive(world, plan, Order::partition, 2));
  ASSERT_EQ(world.inbox->dead().size(), 6U);
  EXPECT_TRUE(drive(world, plan, Order::partition, 12));
  EXPECT_EQ(world.inbox->dead().size(), 6U);
  EXPECT_EQ(world.broker.records("t.dlq").size(), 6U);
}

/// What was sent for the next message must not keep its id locked until this worker finds something to do.
TEST(TopicRunner, leaves_nothing_open_if_a_unit_is_cancelled_between_its_transactions) {
  int runs = 0;
  RunState* watch = nullptr;
  UnitOfSingles unit({{0}, {1}, {2}}, [&](const Message& message, Context& context) {
    if (++runs == 2) watch->cancel().request_stop();
    context.tx().exec(kInsert, message.text());
  });
  watch = &unit.watch;
  const auto result = unit.run();
  EXPECT_FALSE(unit.session.holds_locks());
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(unit.committed(), 1U);
  EXPECT_EQ(result.verdicts[0].kind, Verdict::Kind::settled);
  EXPECT_EQ(result.verdicts[1].kind, Verdict::Kind::put_back);
  EXPECT_EQ(result.verdicts[2].kind, Verdict::Kind::put_back);
}

/// Where messages may pass one another, which of two equal ids takes effect is open; how often is not.
RC_GTEST_PROP(TopicRunner, makes_one_effect_of_an_id_in_any_order, ()) {
  const auto plan = *rc::gen::container<std::vector<Planned>>(planned());
  const Order order = *rc::gen::element(Order::key, Order::none);
  const std::size_t batch = *rc::gen::element<std::size_t>(1, 3, 7, 100);
  const Result result = run(plan, order, batch, false, {});
  std::map<int, int> effects;
  std::map<int, std::vector<Offset>> per_key;
  for (const auto& effect : result.effects) {
    const auto offset = static_cast<std::size_t>(std::stoul(effect));
    RC_ASSERT(++effects[plan[offset].id] == 1);
    auto& key = per_key[plan[offset].key];
    if (order == Order::key && !key.empty()) RC_ASSERT(key.back() < static_cast<Offset>(offset));
    key.push_back(static_cast<Offset>(offset));
  }
  // Each message has its effect, or another of its id has one (or skipped it), or it is dead: none is lost.
  std::set<int> skipped;
  for (const auto& p : plan)
    if (p.act == Act::skip) skipped.insert(p.id);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    RC_ASSERT(result.dead.contains(static_cast<Offset>(i)) || effects.contains(plan[i].id) ||
              skipped.contains(plan[i].id));
  }
}

struct Single {
  Planned planned;
  Result operator()() const {
    const std::vector<Planned> plan{planned};
    return run(plan, Order::partition, 1, false, {});
  }
};

TEST(TopicRunner, dead_letters_what_fails_too_often) {
  EXPECT_EQ((Single{{1, 0, Act::fail, 9}}()), (Result{{}, {{0, {"failed", 3}}}}));
}

TEST(TopicRunner, runs_again_what_fails_once) { EXPECT_EQ((Single{{1, 0, Act::fail, 1}}()), (Result{{"0"}, {}})); }

TEST(TopicRunner, dead_letters_at_once_what_the_handler_rejects) {
  EXPECT_EQ((Single{{1, 0, Act::reject, 0}}()), (Result{{}, {{0, {"rejected", 1}}}}));
}

TEST(TopicRunner, dead_letters_a_message_without_an_id) {
  EXPECT_EQ((Single{{1, 0, Act::no_id, 0}}()), (Result{{}, {{0, {"missing_id", 0}}}}));
}

TEST(TopicRunner, finds_out_that_a_commit_in_doubt_was_committed) {  // hazard: commit-in-doubt
  const std::vector<Planned> plan{{1, 0, Act::effect, 0}, {2, 0, Act::effect, 0}};
  EXPECT_EQ(run(plan, Order::partition, 2, false, {CommitFault::in_doubt_committed}), (Result{{"0", "1"}, {}}));
  EXPECT_EQ(run(plan, Order::partition, 2, false, {CommitFault::in_doubt_lost}), (Result{{"0", "1"}, {}}));
}

TEST(TopicRunner, stops_when_a_newer_owner_has_claimed_the_partition) {
  const std::vector<Planned> plan{{1, 0, Act::effect, 0}};
  RunnerFixture world({}, handler_of(plan, false));
  const OneBlock block(plan);
  const auto newer = world.inbox->claim_partitions("g", {&world.place.at, 1}, std::chrono::seconds(1));
  const auto session = world.inbox->open_session();
  RunState watch;
  const Work work{&block.messages()[0], 0, 1};
  const auto result = world.runner->run({&work, 1}, world.place, session.get(), watch);
  EXPECT_EQ(result.end, UnitResult::End::fenced);
  EXPECT_EQ(result.verdicts[0].kind, Verdict::Kind::put_back);
  EXPECT_TRUE(world.inbox->committed().empty());
}

TEST(TopicRunner, starts_nothing_once_it_is_cancelled) {
  const std::vector<Planned> plan{{1, 0, Act::effect, 0}, {2, 0, Act::effect, 0}};
  RunState watch;
  int calls = 0;
  RunnerFixture world({}, [&](const Message&, Context& context) {
    ++calls;
    watch.cancel().request_stop();
    EXPECT_TRUE(context.stop_token().stop_requested());
  });
  const OneBlock block(plan);
  const auto session = world.inbox->open_session();
  const Work works[] = {{&block.messages()[0], 0, 1}, {&block.messages()[1], 1, 1}};
  const auto result = world.runner->run(works, world.place, session.get(), watch);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(result.verdicts[0].kind, Verdict::Kind::put_back);
  EXPECT_EQ(world.inbox->size(), 0U);
}

TEST(TopicRunner, commits_nothing_of_a_handler_that_went_on_past_its_permit) {
  const std::vector<Planned> plan{{1, 0, Act::effect, 0}};
  RunState watch;
  RunnerFixture world({}, [&](const Message&, Context& context) {
    context.tx().exec("INSERT", "too late");
    watch.cancel().request_stop();
  });
  const OneBlock block(plan);
  const auto session = world.inbox->open_session();
  const Work work{&block.messages()[0], 0, 1};
  const auto result = world.runner->run({&work, 1}, world.place, session.get(), watch);
  EXPECT_EQ(result.verdicts[0].kind, Verdict::Kind::put_back);
  EXPECT_TRUE(world.inbox->committed().empty());
  EXPECT_EQ(world.inbox->size(), 0U);
}

/// Its permits are ours until somebody says that the lease is over.
struct Leased final : ports::Limiter {
  const std::string& name() const noexcept override { return name_; }
  Permit try_acquire() override { return {shared_from_this(), 1, {}}; }
  void when_free(std::function<void()> wake) override { wake(); }
  ports::LimiterState state() const override { return {}; }
  void release(std::uint64_t) noexcept override {}
  bool still_holds(std::uint64_t) const noexcept override { return !over; }
  const std::string name_ = "psp";
  bool over = false;
};

TEST(TopicRunner, starts_and_commits_nothing_under_a_permit_whose_lease_ended_while_it_ran) {
  const std::vector<Planned> plan{{1, 0, Act::effect, 0}, {2, 0, Act::effect, 0}};
  const auto limiter = std::make_shared<Leased>();
  int calls = 0;
  RunnerFixture world({}, [&](const Message&, Context& context) {
    ++calls;
    limiter->over = true;  // nobody has been told yet: the process slept
    EXPECT_FALSE(context.stop_token().stop_requested());
    context.tx().exec(kInsert, "1");
  });
  const OneBlock block(plan);
  const auto session = world.inbox->open_session();
  const Work works[] = {{&block.messages()[0], 0, 1}, {&block.messages()[1], 1, 1}};
  const auto run = [&](std::size_t count, bool under_permit) {
    const Permit permit = limiter->try_acquire();
    RunState watch;
    limiter->over = false;
    if (under_permit) watch.under(permit);
    return world.runner->run({works, count}, world.place, session.get(), watch).verdicts.front().kind;
  };
  EXPECT_EQ(run(2, true), Verdict::Kind::put_back);
  EXPECT_EQ(calls, 1) << "the second was started";
  EXPECT_EQ(run(1, true), Verdict::Kind::put_back);
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(world.inbox->committed().empty());
  EXPECT_EQ(run(2, false), Verdict::Kind::settled) << "the same, where there is no lease";
  EXPECT_EQ(world.inbox->committed().size(), 2U);
}

TEST(TopicRunner, parks_an_id_that_comes_with_another_payload) {
  TopicSettings settings;
  settings.fingerprint = true;
  const std::vector<Planned> plan{{1, 0, Act::effect, 0}, {1, 0, Act::effect, 0}};  // same id, payloads "0" and "1"
  RunnerFixture world(settings, handler_of(plan, false));
  const OneBlock block(plan);
  const auto session = world.inbox->open_session();
  RunState watch;
  const Work works[] = {{&block.messages()[0], 0, 1}, {&block.messages()[1], 1, 1}};
  const auto result = world.runner->run(works, world.place, session.get(), watch);
  EXPECT_EQ(result.counts.done, 1);
  EXPECT_EQ(result.counts.dead, 1);
  EXPECT_EQ(world.inbox->dead().at(0).reason, DeadReason::mismatch);
}

TEST(TopicRunner, wraps_the_handler_with_a_decorator_of_ones_own) {
  std::vector<std::string> calls;
  const auto named = [&calls](std::string name) {
    return around([&calls, name](std::span<const Message>, Context&, const Next& next) {
      calls.push_back("into " + name);
      Outcome outcome = next();
      calls.push_back("out of " + name);
      return outcome;
    });
  };
  const std::vector<Planned> plan{{1, 0, Act::effect, 0}};
  Pipeline pipeline = [&calls](const Message&) { calls.emplace_back("handler"); };
  RunnerFixture world({}, std::move(pipeline) | named("inner") | named("outer"));
  const OneBlock block(plan);
  const auto session = world.inbox->open_session();
  RunState watch;
  const Work work{&block.messages()[0], 0, 1};
  world.runner->run({&work, 1}, world.place, session.get(), watch);
  EXPECT_EQ(calls, (std::vector<std::string>{"into outer", "into inner", "handler", "out of inner", "out of outer"}));
}

}  // namespace
}  // namespace turnstile::detail
