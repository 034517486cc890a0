// Short transactions must not overload the processors, nor queue for the disk.

#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "tests/unit/engine/scheduler_fixture.hpp"

namespace turnstile::detail {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

/// As many short transactions run as there are processors. One more lane has `waiting` messages.
class Crowd {
 public:
  explicit Crowd(int waiting) : run_log_(quiet_log()), scheduler_(Window{}, run_log_, [] {}) {
    topic_ = transactional_topic(run_log_);
    topic_->mean_ns = 1e6;
    const int processors = static_cast<int>(std::max(2U, std::thread::hardware_concurrency()));
    units_.resize(static_cast<std::size_t>(processors) + 1);
    for (int i = 0; i <= processors; ++i) {
      auto lane = std::make_shared<LaneState>(*topic_, OwnedPartition{.at = {"t", i}, .fence = {}});
      scheduler_.open(lane);
      scheduler_.feed(*lane, block("t", i, i < processors ? 1 : waiting));
      if (i == processors) break;
      slots_.push_back(&scheduler_.add_worker());
      scheduler_.next(units_[static_cast<std::size_t>(i)], *slots_.back());
    }
  }
  void end_one() {
    UnitResult result;
    result.verdicts.assign(1, Verdict{.kind = Verdict::Kind::settled});
    scheduler_.finish(units_.front(), {result}, *slots_.front());
  }
  /// The time from the start of the first of the others to the start of this one, or a little more.
  steady_clock::duration start_one_more() {
    scheduler_.next(units_.back(), scheduler_.add_worker());
    return steady_clock::now() - began_;
  }

 private:
  std::shared_ptr<RunLog> run_log_;
  std::unique_ptr<TopicState> topic_;
  Scheduler scheduler_;
  std::vector<LaneUnit> units_;
  std::vector<WorkerSlot*> slots_;
  steady_clock::time_point began_ = steady_clock::now();
};

/// The machine may delay the test at any time, so one quick start in several tries is enough.
template <class Make>
bool starts_at_once(Make make) {
  for (int i = 0; i < 50; ++i) {
    if (make() < 3ms) return true;
  }
  return false;
}

TEST(SchedulerCrowd, a_few_messages_wait_while_short_transactions_keep_the_processors_busy) {
  EXPECT_FALSE(starts_at_once([] { return Crowd(1).start_one_more(); }));
}

TEST(SchedulerCrowd, many_messages_do_not_wait) {
  EXPECT_TRUE(starts_at_once([] { return Crowd(16).start_one_more(); }));
}

TEST(SchedulerCrowd, a_few_messages_start_when_one_of_the_short_transactions_has_ended) {
  EXPECT_TRUE(starts_at_once([] {
    Crowd crowd(1);
    crowd.end_one();
    return crowd.start_one_more();
  }));
}

/// More short transactions run than there are processors, and each worker goes on with the next one. Returns whether a
/// single message of another partition starts among them within 20 ms.
bool starts_beside_many() {
  constexpr int kUnits = 1'000, kOfUnit = 16;  // the most messages of a unit of single messages
  const auto run_log = quiet_log();
  Scheduler scheduler(Window{}, run_log, [] {});
  const auto topic = transactional_topic(run_log, nullptr, 1);
  topic->mean_ns = 1e6;
  const int workers = static_cast<int>(std::max(2U, std::thread::hardware_concurrency())) + 1;
  std::deque<LaneUnit> units(static_cast<std::size_t>(workers));
  std::vector<WorkerSlot*> slots;
  for (int i = 0; i < workers; ++i) {
    auto lane = std::make_shared<LaneState>(*topic, OwnedPartition{.at = {"t", i}, .fence = {}});
    scheduler.open(lane);
    scheduler.feed(*lane, block("t", i, (kUnits / workers + 2) * kOfUnit));
  }
  for (LaneUnit& unit : units) scheduler.next(unit, *slots.emplace_back(&scheduler.add_worker()));
  const auto single = std::make_shared<LaneState>(*topic, OwnedPartition{.at = {"t", workers}, .fence = {}});
  scheduler.open(single);
  scheduler.feed(*single, block("t", workers, 1));
  const auto began = steady_clock::now();
  for (int i = 0; i < kUnits; ++i) {
    while (steady_clock::now() < began + i * 20us) continue;  // what a unit takes
    const auto which = static_cast<std::size_t>(i % workers);
    UnitResult result;
    result.verdicts.assign(units[which].works.size(), Verdict{.kind = Verdict::Kind::settled});
    scheduler.finish(units[which], {result}, *slots[which]);
    scheduler.next(units[which], *slots[which]);
    if (units[which].lane == single) return true;
  }
  return false;
}

/// Where the machine pauses the test, all of them count as long transactions, and the message starts in any case.
TEST(SchedulerCrowd, a_few_messages_do_not_wait_for_longer_than_a_short_transaction) {
  int started = 0;
  for (int i = 0; i < 20; ++i) started += starts_beside_many() ? 1 : 0;
  EXPECT_GE(started, 15) << "of 20";
}

/// A lane with a running unit, and one with a message that came meanwhile. Both topics have the same handler.
class Disk {
 public:
  /// `running`: the messages of the unit.
  explicit Disk(int running, double handler_ns = 1e3) {
    for (TopicState* topic : {first_.get(), second_.get()}) {
      topic->mean_ns = 1e6;
      topic->transaction_ns = 3e6;
      topic->commit_ns = 2.9e6;
      topic->handler_ns = handler_ns;
    }
    add(*first_, 0, running);
    scheduler_.next(unit_, scheduler_.add_worker());
    add(*second_, 1, 1);
  }
  TopicState& of_the_unit() { return *first_; }
  /// The time until the message starts.
  steady_clock::duration starts_after() {
    LaneUnit unit;
    scheduler_.next(unit, scheduler_.add_worker());
    return steady_clock::now() - began_;
  }

 private:
  void add(TopicState& topic, int partition, int messages) {
    auto lane = std::make_shared<LaneState>(topic, OwnedPartition{.at = {"t", partition}, .fence = {}});
    scheduler_.open(lane);
    scheduler_.feed(*lane, block("t", partition, messages));
  }
  std::shared_ptr<RunLog> run_log_ = quiet_log();
  std::unique_ptr<TopicState> first_ = transactional_topic(run_log_), second_ = transactional_topic(run_log_);
  Scheduler scheduler_{Window{}, run_log_, [] {}};
  LaneUnit unit_;
  steady_clock::time_point began_ = steady_clock::now();
};

/// It starts after 50 ms, because the other one does not end.
TEST(SchedulerCrowd, a_message_waits_for_a_transaction_that_waits_for_the_disk) {
  const auto waited = Disk(1).starts_after();
  EXPECT_GE(waited, 40ms);
  EXPECT_LT(waited, 5s);
}

TEST(SchedulerCrowd, a_message_does_not_wait_for_many_messages) {
  EXPECT_TRUE(starts_at_once([] { return Disk(40).starts_after(); }));
}

TEST(SchedulerCrowd, a_message_does_not_wait_for_a_handler_that_takes_long) {
  EXPECT_TRUE(starts_at_once([] {
    Disk disk(1);
    disk.of_the_unit().handler_ns = 1e9;
    return disk.starts_after();
  }));
  EXPECT_TRUE(starts_at_once([] { return Disk(1, 1e6).starts_after(); }));
}

TEST(SchedulerCrowd, a_message_does_not_wait_if_the_disk_is_not_what_takes_time) {
  EXPECT_TRUE(starts_at_once([] {
    Disk disk(1);
    disk.of_the_unit().commit_ns = 1.5e6;
    return disk.starts_after();
  }));
}

}  // namespace
}  // namespace turnstile::detail
