// Which unit starts when.

#include "engine/scheduler.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <ctime>
#include <thread>

#include "tests/support/eventually.hpp"
#include "tests/unit/engine/scheduler_fixture.hpp"

namespace turnstile::detail {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

TEST(Scheduler, without_a_transaction_the_first_units_have_one_message) {
  for (const bool plain : {true, false}) {
    const auto run_log = quiet_log();
    const auto topic = plain ? plain_topic(run_log) : transactional_topic(run_log);
    Scheduler scheduler(Window{}, run_log, [] {});
    const auto lane = std::make_shared<LaneState>(*topic, OwnedPartition{.at = {"t", 0}, .fence = {}});
    scheduler.open(lane);
    scheduler.feed(*lane, block("t", 0, 20));
    LaneUnit unit;
    ASSERT_TRUE(scheduler.next(unit, scheduler.add_worker()));
    EXPECT_EQ(unit.works.size(), plain ? 1U : 8U) << plain;
  }
}

/// One worker ends a unit: a message of it has failed and is due later, another one starts at once and does not end.
TEST(Scheduler, an_idle_worker_takes_a_retry_that_is_due_while_another_worker_is_busy) {
  const auto run_log = quiet_log();
  const auto topic = transactional_topic(run_log, nullptr, std::nullopt, Order::none);
  Scheduler scheduler(Window{}, run_log, [] {});
  const auto lane = std::make_shared<LaneState>(*topic, OwnedPartition{.at = {"t", 0}, .fence = {}});
  scheduler.open(lane);
  scheduler.feed(*lane, block("t", 0, 2));
  WorkerSlot& busy = scheduler.add_worker();
  LaneUnit unit;
  ASSERT_TRUE(scheduler.next(unit, busy));
  ASSERT_EQ(unit.works.size(), 2U);
  std::atomic<bool> took{false};
  std::thread idle([&, &slot = scheduler.add_worker()] {
    LaneUnit retried;
    took = scheduler.next(retried, slot);
  });
  EXPECT_FALSE(test::eventually([&] { return took.load(); }, 100ms)) << "there is no other message";
  UnitResult result;
  result.counts.rerun = 1;
  result.verdicts = {Verdict{.kind = Verdict::Kind::retry, .delay = 50ms, .attempt = 2},
                     Verdict{.kind = Verdict::Kind::put_back}};
  scheduler.finish(unit, {result}, busy);
  ASSERT_TRUE(scheduler.next(unit, busy));
  EXPECT_TRUE(test::eventually([&] { return took.load(); }, 5s));
  scheduler.stop();
  idle.join();
}

/// A worker that waits must sleep. Where nothing can start, it must not look again and again.
class WaitingWorker : public ::testing::Test {
 protected:
  ~WaitingWorker() override {
    scheduler_.stop();
    if (worker_.joinable()) worker_.join();
  }
  /// Whether the worker uses a processor while nothing changes. A waiting worker uses less than 1 ms.
  bool is_busy() {
    worker_ = std::thread([this] {
      while (scheduler_.next(unit_, slot_)) end_as(Verdict{});  // a look-up
    });
    clockid_t clock{};
    EXPECT_EQ(pthread_getcpuclockid(worker_.native_handle(), &clock), 0);
    return test::eventually(
        [&] {
          timespec used{};
          return clock_gettime(clock, &used) == 0 && (used.tv_sec > 0 || used.tv_nsec > 20'000'000);
        },
        700ms);
  }
  void end_as(const Verdict& verdict) {
    UnitResult result;
    result.verdicts.assign(unit_.works.size(), verdict);
    scheduler_.finish(unit_, {result}, slot_);
  }
  LanePtr open(TopicState& topic, std::int32_t partition = 0) {
    auto lane = std::make_shared<LaneState>(topic, OwnedPartition{.at = {"t", partition}, .fence = {}});
    scheduler_.open(lane);
    return lane;
  }

  std::shared_ptr<RunLog> run_log_ = quiet_log();
  std::unique_ptr<TopicState> topic_;
  Scheduler scheduler_{Window{}, run_log_, [] {}};
  WorkerSlot& slot_ = scheduler_.add_worker();
  LaneUnit unit_;
  std::thread worker_;
};

TEST_F(WaitingWorker, sleeps_while_the_store_is_unavailable_and_there_is_nothing_to_probe_it_with) {
  topic_ = transactional_topic(run_log_);
  open(*topic_);
  scheduler_.store_failed("it is away");
  EXPECT_FALSE(is_busy());
}

TEST_F(WaitingWorker, sleeps_while_a_retry_is_due_and_others_have_the_permits) {
  const auto limiters = make_local_limiters();
  const auto limiter = limiters->open("t", 1);
  topic_ = transactional_topic(run_log_, limiter);
  scheduler_.feed(*open(*topic_), block("t", 0, 1));
  ASSERT_TRUE(scheduler_.next(unit_, slot_));
  Permit taken;
  limiter->acquire_later(1, Priority::normal, [&](Permit permit) { taken = std::move(permit); });
  end_as(Verdict{.kind = Verdict::Kind::retry, .delay = 1ms, .attempt = 1});
  ASSERT_TRUE(taken);
  EXPECT_FALSE(is_busy());
}

/// Nothing else would find out that the store is back.
TEST_F(WaitingWorker, probes_the_store_with_a_suspect_where_others_run_without_it) {
  topic_ = fail_open_topic(run_log_);
  const LanePtr lane = open(*topic_);
  lane->lane.single_out({{0, 1}});
  scheduler_.feed(*lane, block("t", 0, 1));
  scheduler_.store_failed("it is away");
  std::atomic<bool> took{false};
  worker_ = std::thread([&] { took = scheduler_.next(unit_, slot_); });
  EXPECT_TRUE(test::eventually([&] { return took.load(); }));
  scheduler_.stop();
  worker_.join();
  EXPECT_TRUE(unit_.alone);
}

/// A limiter that has no permit when it is asked.
class EmptyLimiter : public ports::Limiter {
 public:
  const std::string& name() const noexcept override { return name_; }
  Permit try_acquire() override { return {}; }
  void when_free(std::function<void()>) override {}
  ports::LimiterState state() const override { return {}; }

 private:
  void release(std::uint64_t) noexcept override {}
  std::string name_ = "t";
};

/// Calls `meanwhile` while a permit is requested, and grants none.
class NeverGrants final : public EmptyLimiter {
 public:
  explicit NeverGrants(std::function<void()> meanwhile) : meanwhile_(std::move(meanwhile)) {}
  std::function<bool()> acquire_later(std::int64_t, Priority, std::function<void(Permit)>) override {
    if (auto meanwhile = std::exchange(meanwhile_, nullptr)) meanwhile();
    return [] { return true; };
  }

 private:
  std::function<void()> meanwhile_;
};

TEST_F(WaitingWorker, runs_what_comes_while_it_requests_a_permit_for_another_topic) {
  const auto other = plain_topic(run_log_);
  const LanePtr free = open(*other, 1);
  topic_ = plain_topic(run_log_, std::make_shared<NeverGrants>([&] { scheduler_.feed(*free, block("t", 1, 1)); }));
  scheduler_.feed(*open(*topic_), block("t", 0, 1));
  std::atomic<bool> ran{false};
  worker_ = std::thread([&] {
    while (scheduler_.next(unit_, slot_)) {
      ran = unit_.lane == free;
      end_as(Verdict{.kind = Verdict::Kind::settled});
    }
  });
  EXPECT_TRUE(test::eventually([&] { return ran.load(); })) << "the worker sleeps, and nothing wakes it";
  scheduler_.stop();
  worker_.join();
}

/// Its permits come when the test tells it to.
class Delivers final : public EmptyLimiter {
 public:
  std::function<bool()> acquire_later(std::int64_t, Priority, std::function<void(Permit)> deliver) override {
    line_.push_back(std::move(deliver));
    return [] { return true; };
  }
  /// False: nobody waits for a permit.
  bool deliver() {
    if (line_.empty()) return false;
    const auto to = std::move(line_.front());
    line_.pop_front();
    ++out;
    to(Permit(shared_from_this(), 1, {}));
    return true;
  }
  int out = 0;  ///< permits that are not returned

 private:
  void release(std::uint64_t) noexcept override { --out; }
  std::deque<std::function<void(Permit)>> line_;
};

/// Counts the requests that wait.
class CountsWaiting final : public EmptyLimiter {
 public:
  std::function<bool()> acquire_later(std::int64_t, Priority, std::function<void(Permit)> deliver) override {
    ++waiting;
    return [self = shared_from_this(), this, deliver = std::move(deliver)] { return waiting-- > 0; };
  }
  std::atomic<int> waiting{0};
};

/// A process that waits for a permit and ends would otherwise be granted it, and keep it from the others for a lease.
TEST_F(WaitingWorker, withdraws_what_it_waits_for_when_it_stops) {
  auto limiter = std::make_shared<CountsWaiting>();
  topic_ = plain_topic(run_log_, limiter);
  scheduler_.feed(*open(*topic_), block("t", 0, 1));
  worker_ = std::thread([&] { EXPECT_FALSE(scheduler_.next(unit_, slot_)); });
  EXPECT_TRUE(test::eventually([&] { return limiter->waiting == 1; }));
  scheduler_.stop();
  worker_.join();
  EXPECT_EQ(limiter->waiting, 0);
}

TEST(Scheduler, withdraws_what_is_requested_while_it_stops) {
  const auto requests = std::make_shared<PermitRequests>();
  const auto limiter = std::make_shared<CountsWaiting>();
  requests->withdraw_all();
  requests->ask(*limiter, [](const Permit&) {});
  EXPECT_EQ(limiter->waiting, 0);
}

/// A worker that the test steps through: a limited topic beside one with a long backlog.
class BusyWorker : public ::testing::Test {
 protected:
  LanePtr open(TopicState& topic, std::int32_t partition, int messages) {
    auto lane = std::make_shared<LaneState>(topic, OwnedPartition{.at = {"t", partition}, .fence = {}});
    scheduler_.open(lane);
    scheduler_.feed(*lane, block("t", partition, messages));
    return lane;
  }
  /// The lane whose unit the worker took.
  LanePtr take(std::size_t worker = 0) {
    EXPECT_TRUE(scheduler_.next(units_.at(worker), *workers_.at(worker)));
    return units_.at(worker).lane;
  }
  void end(std::size_t worker = 0) {
    UnitResult result;
    result.verdicts.assign(units_.at(worker).works.size(), Verdict{.kind = Verdict::Kind::settled});
    scheduler_.finish(units_.at(worker), {result}, *workers_.at(worker));
  }

  std::shared_ptr<RunLog> run_log_ = quiet_log();
  std::shared_ptr<Delivers> limiter_ = std::make_shared<Delivers>();
  std::unique_ptr<TopicState> limited_ = plain_topic(run_log_, limiter_), plain_ = plain_topic(run_log_);
  Scheduler scheduler_{Window{}, run_log_, [] {}};
  std::vector<WorkerSlot*> workers_{&scheduler_.add_worker(), &scheduler_.add_worker()};
  std::vector<LaneUnit> units_{2};
};

TEST_F(BusyWorker, runs_the_topic_whose_permit_came_while_it_was_busy) {
  const LanePtr lane = open(*limited_, 0, 1);
  for (int partition = 1; partition < 4; ++partition) open(*plain_, partition, 1'000);
  for (int i = 0; i < 20 && limiter_->out == 0; ++i) {
    ASSERT_NE(take(), lane);
    limiter_->deliver();
    end();
  }
  EXPECT_EQ(take(), lane) << "others keep the worker busy for as long as they have messages";
  EXPECT_TRUE(units_[0].waited);
  end();
  EXPECT_EQ(limiter_->out, 0);
}

TEST_F(BusyWorker, does_not_keep_a_permit_for_long) {
  open(*limited_, 0, 1);
  const LanePtr plain = open(*plain_, 1, 1'000);
  for (int i = 0; i < 20 && limiter_->out == 0; ++i) {
    ASSERT_EQ(take(), plain);
    if (!limiter_->deliver()) end();
  }
  ASSERT_EQ(limiter_->out, 1);
  EXPECT_TRUE(test::eventually([&] {
    scheduler_.return_unused_permits();
    return limiter_->out == 0;
  })) << "the handler runs on, and others wait for the permit";
  end();
}

/// The suspect needs a permit, and that nothing else runs.
TEST_F(BusyWorker, runs_a_suspect_whose_permit_came_while_others_ran) {
  const LanePtr suspect = open(*limited_, 0, 1);
  scheduler_.locked([&] { suspect->lane.single_out({{0, 1}}); });
  for (int partition = 1; partition < 4; ++partition) open(*plain_, partition, 1'000);
  ASSERT_NE(take(0), suspect);
  ASSERT_NE(take(1), suspect);
  ASSERT_TRUE(limiter_->deliver());
  end(0);
  std::atomic<bool> took{false};
  std::thread waits([&] {
    take(0);
    took = true;
  });
  EXPECT_FALSE(test::eventually([&] { return took.load(); }, 100ms)) << "nothing starts before the other one has ended";
  end(1);
  waits.join();
  EXPECT_EQ(units_[0].lane, suspect);
  end(0);
  EXPECT_EQ(limiter_->out, 0);
}

/// They need no permit if they have taken effect.
TEST_F(BusyWorker, looks_up_what_waits_behind_a_suspect) {
  open(*plain_, 1, 1);
  take(0);
  const auto transactional = transactional_topic(run_log_, limiter_, std::nullopt, Order::none);
  const LanePtr lane = open(*transactional, 0, 0);
  scheduler_.locked([&] { lane->lane.single_out({{0, 1}}); });
  scheduler_.feed(*lane, block("t", 0, 3));
  std::atomic<bool> took{false};
  std::thread worker([&] { took = scheduler_.next(units_[1], *workers_[1]); });
  EXPECT_TRUE(test::eventually([&] { return took.load(); })) << "they wait for the permit of the suspect";
  scheduler_.stop();
  worker.join();
  ASSERT_TRUE(units_[1].looks_up);
  EXPECT_EQ(units_[1].works.size(), 2U);
  end(1);
  end(0);
}

/// Its handler's callback releases what another lane waits for.
TEST_F(BusyWorker, may_be_cancelled_by_a_thread_that_its_callback_needs) {
  const LanePtr lane = open(*limited_, 0, 1);
  const LanePtr plain = open(*plain_, 1, 1);
  ASSERT_EQ(take(), plain);
  const std::stop_callback on_stop(workers_[0]->watch.start(*units_[0].works.front().message),
                                   [&] { EXPECT_TRUE(limiter_->deliver()); });
  scheduler_.cancel({&plain, 1});
  end();
  EXPECT_EQ(take(), lane);
  end();
}

/// Three lanes of a topic whose handlers are quick: each has some messages.
class Sharing : public ::testing::Test {
 protected:
  Sharing() {
    topic_->mean_ns = 1e6;
    topic_->transaction_ns = 1e6;
    topic_->handler_ns = 1e3;
    for (std::int32_t partition = 0; partition < 3; ++partition)
      lanes_.push_back(std::make_shared<LaneState>(*topic_, OwnedPartition{.at = {"t", partition}, .fence = {}}));
  }
  /// How many messages of each lane the next unit has. `waiting`: what each lane gets.
  std::vector<std::size_t> taken(const std::vector<int>& waiting) {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      scheduler_.open(lanes_[i]);
      scheduler_.feed(*lanes_[i], block("t", static_cast<std::int32_t>(i), waiting[i]));
    }
    EXPECT_TRUE(scheduler_.next(unit_, slot_));
    std::vector<std::size_t> counts;
    for (const auto& lane : lanes_) counts.push_back(lane->lane.running());
    return counts;
  }
  /// Ends the unit: the messages of its lanes, in their order, with these verdicts.
  void finish(const std::vector<Verdict::Kind>& kinds) {
    std::vector<UnitResult> results(kinds.size());
    const auto verdict = [](Verdict::Kind kind) {
      return Verdict{.kind = kind, .delay = {}, .attempt = kind == Verdict::Kind::retry ? 2 : 1};
    };
    results[0].verdicts.assign(unit_.works.size(), verdict(kinds[0]));
    for (std::size_t k = 1; k < kinds.size(); ++k)
      results[k].verdicts.assign(unit_.others[k - 1].works.size(), verdict(kinds[k]));
    scheduler_.finish(unit_, std::move(results), slot_);
  }

  std::shared_ptr<RunLog> run_log_ = quiet_log();
  std::unique_ptr<TopicState> topic_ = transactional_topic(run_log_);
  std::vector<LanePtr> lanes_;
  Scheduler scheduler_{Window{}, run_log_, [] {}};
  WorkerSlot& slot_ = scheduler_.add_worker();
  LaneUnit unit_;
};
using Counts = std::vector<std::size_t>;

TEST_F(Sharing, few_messages_of_several_partitions_are_one_unit) {
  EXPECT_EQ(taken({1, 2, 3}), (Counts{1, 2, 3}));
  finish({Verdict::Kind::settled, Verdict::Kind::settled, Verdict::Kind::settled});
  for (const auto& lane : lanes_) {
    EXPECT_EQ(lane->lane.unsettled(), 0U);
    EXPECT_EQ(lane->lane.running(), 0U);
  }
  EXPECT_TRUE(scheduler_.locked([&] { return scheduler_.all_idle_unlocked(); }));
}

TEST_F(Sharing, each_lane_has_its_own_verdicts) {
  taken({1, 2, 3});
  finish({Verdict::Kind::settled, Verdict::Kind::put_back, Verdict::Kind::retry});
  EXPECT_EQ(lanes_[0]->lane.unsettled(), 0U);
  EXPECT_EQ(lanes_[1]->lane.unsettled(), 2U);
  EXPECT_EQ(lanes_[1]->lane.delayed(), 0U);
  EXPECT_EQ(lanes_[2]->lane.delayed(), 3U);
}

TEST_F(Sharing, a_lane_with_many_messages_has_a_unit_of_its_own) { EXPECT_EQ(taken({2, 100, 2}), (Counts{2, 0, 2})); }

TEST_F(Sharing, a_unit_of_many_messages_takes_no_others) {
  EXPECT_EQ(taken({100, 2, 2}), (Counts{50, 0, 0}));  // of 1 ms each, within 50 ms
}

TEST_F(Sharing, before_the_times_are_known_nothing_is_shared) {
  topic_->transaction_ns = 0;
  EXPECT_EQ(taken({1, 2, 3}), (Counts{1, 0, 0}));
}

TEST_F(Sharing, handlers_that_take_longer_than_a_commit_run_beside_one_another) {
  topic_->handler_ns = 600e3;  // one message, and not two
  EXPECT_EQ(taken({1, 2, 3}), (Counts{1, 0, 0}));
}

TEST_F(Sharing, as_many_messages_as_their_handlers_take_no_longer_than_a_commit) {
  topic_->handler_ns = 300e3;
  EXPECT_EQ(taken({1, 1, 3}), (Counts{1, 1, 1}));
}

TEST_F(Sharing, after_a_failure_a_lane_runs_by_itself) {
  lanes_[1]->unit_most = 1;
  EXPECT_EQ(taken({1, 2, 3}), (Counts{1, 0, 3}));
}

TEST_F(Sharing, the_lane_that_failed_takes_no_others) {
  lanes_[0]->unit_most = 1;
  EXPECT_EQ(taken({1, 2, 3}), (Counts{1, 0, 0}));
}

TEST_F(Sharing, a_message_that_failed_runs_by_itself) {
  taken({1, 2, 3});
  finish({Verdict::Kind::settled, Verdict::Kind::retry, Verdict::Kind::put_back});
  Counts counts;
  for (int unit = 0; unit < 3; ++unit) {
    ASSERT_TRUE(scheduler_.next(unit_, slot_));
    EXPECT_TRUE(unit_.others.empty());
    counts.push_back(unit_.works.size());
    finish({Verdict::Kind::settled});
  }
  std::sort(counts.begin(), counts.end());
  EXPECT_EQ(counts, (Counts{1, 1, 3}));
}

TEST_F(Sharing, a_lane_that_must_not_start_is_not_taken_along) {
  lanes_[1]->phase = LaneState::Phase::draining;
  EXPECT_EQ(taken({1, 2, 3}), (Counts{1, 0, 3}));
}

TEST_F(Sharing, a_suspect_and_what_may_be_one_run_by_themselves) {
  lanes_[1]->lane.single_out({{1, 1}});
  lanes_[2]->place.suspicion = std::make_shared<Suspicion>();
  EXPECT_EQ(taken({1, 2, 3}), (Counts{1, 0, 0}));
}

TEST_F(Sharing, other_modes_share_nothing) {
  const auto plain = plain_topic(run_log_);
  plain->transaction_ns = 1e6;
  for (std::int32_t partition = 0; partition < 3; ++partition)
    lanes_[static_cast<std::size_t>(partition)] =
        std::make_shared<LaneState>(*plain, OwnedPartition{.at = {"t", partition}, .fence = {}});
  EXPECT_EQ(taken({1, 1, 1}), (Counts{1, 0, 0}));
}

/// A rebalance that takes one of the partitions away waits for the unit, and can cancel it.
TEST_F(Sharing, a_lane_is_drained_when_the_shared_unit_has_ended) {
  taken({1, 2, 3});
  const std::vector<LanePtr> revoked{lanes_[2]};
  EXPECT_FALSE(scheduler_.drain(revoked, steady_clock::now() + 10ms, [] { return false; }));
  scheduler_.cancel(revoked);
  EXPECT_TRUE(slot_.watch.cancelled());
  finish({Verdict::Kind::put_back, Verdict::Kind::put_back, Verdict::Kind::put_back});
  EXPECT_TRUE(scheduler_.drain(revoked, steady_clock::now() + 10s, [] { return false; }));
}

/// The size of the next unit of a topic whose transactions have up to `batch` messages.
class Chained : public ::testing::Test {
 protected:
  std::size_t size(std::size_t batch, int waiting, double mean_ns = 1e5, Order order = Order::partition) {
    const auto topic = transactional_topic(run_log_, nullptr, static_cast<int>(batch), order);
    topic->mean_ns = mean_ns;
    return size(*topic, waiting);
  }
  std::size_t size(TopicState& topic, int waiting, std::size_t unit_most = SIZE_MAX) {
    Scheduler scheduler(Window{}, run_log_, [] {});
    WorkerSlot& slot = scheduler.add_worker();
    scheduler.add_worker();
    const auto lane = std::make_shared<LaneState>(topic, OwnedPartition{.at = {"t", 0}, .fence = {}});
    lane->unit_most = unit_most;
    scheduler.open(lane);
    scheduler.feed(*lane, block("t", 0, waiting));
    LaneUnit unit;
    EXPECT_TRUE(scheduler.next(unit, slot));
    const std::size_t taken = unit.works.size();
    UnitResult result;
    result.verdicts.assign(taken, Verdict{.kind = Verdict::Kind::settled});
    scheduler.finish(unit, {result}, slot);
    return taken;
  }

  std::shared_ptr<RunLog> run_log_ = quiet_log();
};

TEST_F(Chained, small_transactions_run_several_in_a_unit) {
  EXPECT_EQ(size(1, 100), 16U);
  EXPECT_EQ(size(3, 100), 16U);
  EXPECT_EQ(size(16, 100), 16U);
  EXPECT_EQ(size(20, 100), 20U);
}

TEST_F(Chained, has_what_waits) { EXPECT_EQ(size(1, 3), 3U); }

/// Other workers can run what waits.
TEST_F(Chained, other_orders_have_a_unit_for_each_transaction) {
  EXPECT_EQ(size(1, 100, 1e5, Order::key), 1U);
  EXPECT_EQ(size(3, 100, 1e5, Order::none), 3U);
}

TEST_F(Chained, only_as_many_as_a_unit_may_take_time) {
  EXPECT_EQ(size(1, 100, 20e6), 2U);
  EXPECT_EQ(size(1, 100, 60e6), 1U);
  EXPECT_EQ(size(1, 100, 0), 1U) << "the first unit";
}

TEST_F(Chained, after_a_failure_a_lane_starts_small) {
  const auto topic = transactional_topic(run_log_, nullptr, 4, Order::partition);
  topic->mean_ns = 1e5;
  EXPECT_EQ(size(*topic, 100, 1), 1U);
  EXPECT_EQ(size(*topic, 100, 4), 16U);
}

/// A later message of the unit may take long: what is done shows in the position, and nothing new starts in a rebalance.
TEST_F(Chained, what_is_done_is_known_between_the_transactions_of_a_unit) {
  const auto topic = transactional_topic(run_log_, nullptr, 1, Order::partition);
  topic->mean_ns = 1e5;
  Scheduler scheduler(Window{}, run_log_, [] {});
  WorkerSlot& slot = scheduler.add_worker();
  const auto lane = std::make_shared<LaneState>(*topic, OwnedPartition{.at = {"t", 0}, .fence = {}});
  scheduler.open(lane);
  scheduler.feed(*lane, block("t", 0, 5));
  LaneUnit unit;
  ASSERT_TRUE(scheduler.next(unit, slot));
  ASSERT_EQ(unit.works.size(), 5U);
  EXPECT_TRUE(scheduler.go_on(unit, 2));
  EXPECT_EQ(lane->lane.position(), 2);
  EXPECT_EQ(lane->lane.running(), 3U);
  lane->phase = LaneState::Phase::draining;
  EXPECT_FALSE(scheduler.go_on(unit, 3));
  UnitResult result;
  result.verdicts.assign(5, Verdict{.kind = Verdict::Kind::put_back});
  for (std::size_t i = 0; i < 3; ++i) result.verdicts[i].kind = Verdict::Kind::settled;
  scheduler.finish(unit, {result}, slot);
  EXPECT_EQ(lane->lane.position(), 3);
  EXPECT_EQ(lane->lane.running(), 0U);
  EXPECT_EQ(lane->lane.unsettled(), 2U);
}

TEST_F(Chained, other_modes_have_no_transactions_to_chain) {
  TopicSettings settings;
  settings.batch = 1;
  settings.mode = Mode::leased;
  const auto topic = topic_with_store(
      run_log_, [](const Message&) {} | leased(std::chrono::seconds(5)), settings);
  topic->mean_ns = 1e5;
  EXPECT_EQ(size(*topic, 100), 1U);
}

}  // namespace
}  // namespace turnstile::detail
