// How many messages a lane takes from Kafka: more only if it runs dry.

#include <gtest/gtest.h>

#include "engine/scheduler.hpp"
#include "tests/unit/engine/scheduler_fixture.hpp"

namespace turnstile::detail {
namespace {

class LaneWindow : public ::testing::TestWithParam<Order> {
 protected:
  /// As the engine feeds it, while Kafka has more. Returns how many messages it took.
  std::size_t fill(const std::optional<std::string>& key = std::nullopt) {
    std::size_t taken = 0;
    for (std::size_t room; (room = scheduler_.room(*lane_)) > 0; taken += room) {
      scheduler_.feed(*lane_, block("t", 0, static_cast<int>(room), next_, key));
      next_ += static_cast<Offset>(room);
    }
    return taken;
  }
  /// Runs a unit, and settles it. Returns how many messages it had.
  std::size_t run_one() {
    LaneUnit unit;
    EXPECT_TRUE(scheduler_.next(unit, slot_));
    UnitResult result;
    result.verdicts.assign(unit.works.size(), Verdict{.kind = Verdict::Kind::settled});
    const std::size_t count = unit.works.size();
    scheduler_.finish(unit, {result}, slot_);
    return count;
  }
  void run_all() {
    while (lane_->lane.unsettled() > 0) run_one();
  }

  static constexpr std::size_t kMost = 8'000;
  std::shared_ptr<RunLog> run_log_ = quiet_log();
  std::unique_ptr<TopicState> topic_ = transactional_topic(run_log_, nullptr, std::nullopt, GetParam());
  Scheduler scheduler_{Window{.messages = kMost}, run_log_, [] {}};
  LanePtr lane_ = std::make_shared<LaneState>(*topic_, OwnedPartition{.at = {"t", 0}, .fence = {}});
  WorkerSlot& slot_ = scheduler_.add_worker();
  Offset next_ = 0;
};

TEST_P(LaneWindow, stays_small_while_messages_wait) {
  scheduler_.open(lane_);
  EXPECT_EQ(fill(), Window::kFirst);
  for (std::size_t settled = 0; settled < 20'000;) {
    settled += run_one();
    fill();
    EXPECT_LE(lane_->lane.unsettled(), Window::kFirst);
  }
}

TEST_P(LaneWindow, doubles_up_to_the_limit_when_the_lane_runs_dry) {
  scheduler_.open(lane_);
  for (const std::size_t most : {Window::kFirst, 2 * Window::kFirst, kMost, kMost}) {
    EXPECT_EQ(fill(), most);
    run_all();
  }
}

TEST_P(LaneWindow, does_not_grow_if_kafka_has_no_more) {
  scheduler_.open(lane_);
  for (int i = 0; i < 10; ++i) {
    scheduler_.feed(*lane_, block("t", 0, 100, next_));
    next_ += 100;
    run_all();
  }
  EXPECT_EQ(fill(), Window::kFirst);
}

// Nothing runs and nothing ends while all that was taken is paused. What is behind it must come in all the same.
TEST_P(LaneWindow, grows_while_nothing_in_it_can_start) {
  scheduler_.open(lane_);
  lane_->lane.pause_keys({"paused"});
  fill("paused");
  EXPECT_EQ(lane_->lane.unsettled(), kMost);
}

TEST_P(LaneWindow, is_filled_while_nothing_in_it_can_start) {
  scheduler_.open(lane_);
  lane_->window = kMost;
  lane_->lane.pause_keys({"paused"});
  scheduler_.feed(*lane_, block("t", 0, kMost - 100, next_, "paused"));
  next_ += kMost - 100;
  EXPECT_EQ(fill(), 100U) << "although it is less than a quarter of the window";
}

// The messages of other keys behind those of a hot key do not wait until its slow handler has ended.
TEST_P(LaneWindow, grows_while_the_message_of_a_hot_key_runs) {
  if (GetParam() == Order::none) return;  // any message may start
  scheduler_.open(lane_);
  scheduler_.feed(*lane_, block("t", 0, 1, next_++, "hot"));
  LaneUnit unit;
  ASSERT_TRUE(scheduler_.next(unit, slot_));
  fill("hot");
  EXPECT_EQ(lane_->lane.unsettled(), GetParam() == Order::key ? kMost : Window::kFirst);
}

INSTANTIATE_TEST_SUITE_P(Orders, LaneWindow, ::testing::Values(Order::partition, Order::key, Order::none),
                         [](const auto& order) {
                           return order.param == Order::partition ? "partition"
                                  : order.param == Order::key     ? "key"
                                                                  : "none";
                         });

}  // namespace
}  // namespace turnstile::detail
