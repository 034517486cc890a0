// Which messages a lane holds back while their keys are paused, and which pass them.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

#include "tests/unit/engine/lane_fixture.hpp"

namespace turnstile::detail {
namespace {

using Keys = std::vector<std::string>;

TEST(LanePause, other_keys_pass_a_paused_one) {
  Lane lane(Order::key);
  lane.add(block(0, {"a", "b", "a", "", "b"}));
  lane.pause_keys({"a"});
  EXPECT_EQ(offsets(hand_out(lane, 10)), (std::vector<Offset>{1, 3}));
  EXPECT_FALSE(lane.ready(kNow));
  EXPECT_EQ(lane.position(), 0);
  EXPECT_TRUE(lane.is_oldest_paused());
  lane.pause_keys({});
  EXPECT_FALSE(lane.is_oldest_paused());
  EXPECT_EQ(offsets(hand_out(lane, 10)), (std::vector<Offset>{0, 2}));
}

TEST(LanePause, what_runs_ends_and_what_comes_back_waits) {
  for (const Order order : {Order::key, Order::none}) {
    Lane lane(order);
    lane.add(block(0, {"a", "a"}));
    const auto works = hand_out(lane, 1);
    lane.pause_keys({"a"});
    EXPECT_FALSE(lane.is_oldest_paused()) << "it runs";
    lane.put_back(works[0]);
    EXPECT_FALSE(lane.ready(kNow));
    lane.pause_keys({});
    const auto again = hand_out(lane, 1);
    lane.pause_keys({"a"});
    lane.retry(again[0], kNow + milliseconds(5), 2);
    EXPECT_FALSE(lane.ready(kNow + milliseconds(5))) << "its retry waits too";
    lane.pause_keys({});
    EXPECT_EQ(offsets(hand_out(lane, 1, kNow + milliseconds(5))), (std::vector<Offset>{0}));
  }
}

TEST(LanePause, in_the_order_of_the_partition_nothing_passes_it) {
  Lane lane(Order::partition);
  lane.add(block(0, {"b", "a", "b"}));
  lane.pause_keys({"a"});
  const auto first = hand_out(lane, 10);
  EXPECT_EQ(offsets(first), std::vector<Offset>{0});
  lane.settle(first[0]);
  EXPECT_FALSE(lane.ready(kNow));
  EXPECT_TRUE(hand_out(lane, 10).empty());
  EXPECT_EQ(lane.position(), 1);
  lane.pause_keys({"c"});
  EXPECT_EQ(offsets(hand_out(lane, 10)), (std::vector<Offset>{1, 2}));
}

TEST(LanePause, a_paused_retry_does_not_hold_what_comes_before_it) {
  Lane lane(Order::partition);
  lane.add(block(0, {"b", "a", "b"}));
  const auto works = hand_out(lane, 2);
  lane.pause_keys({"a"});
  lane.retry(works[1], kNow + milliseconds(5), 2);
  lane.put_back(works[0]);
  const SteadyTime later = kNow + milliseconds(5);
  EXPECT_TRUE(lane.ready(later));
  const auto first = hand_out(lane, 10, later);
  ASSERT_EQ(offsets(first), std::vector<Offset>{0});
  lane.settle(first[0]);
  EXPECT_FALSE(lane.ready(later));
  lane.pause_keys({});
  EXPECT_EQ(offsets(hand_out(lane, 1, later)), std::vector<Offset>{1});
}

TEST(LanePause, records_without_a_key_are_never_paused) {
  Lane lane(Order::none);
  lane.add(block(0, {"", "a"}));
  lane.pause_keys({"", "a"});
  EXPECT_EQ(offsets(hand_out(lane, 10)), std::vector<Offset>{0});
}

TEST(LanePause, a_paused_message_that_is_found_settled_is_gone) {
  for (const Order order : {Order::partition, Order::key, Order::none}) {
    Lane lane(order);
    lane.pause_keys({"a"});
    lane.add(block(0, {"a", "b"}));
    const auto lent = lane.lend_waiting(0, 1);
    EXPECT_TRUE(lane.settle_waiting(lent[0].seq));
    lane.return_lent();
    EXPECT_EQ(lane.position(), 1);
    EXPECT_EQ(offsets(hand_out(lane, 10)), std::vector<Offset>{1});
    lane.pause_keys({});
    EXPECT_FALSE(lane.ready(kNow));
  }
}

/// Random runs, as in lane_test.cpp, while keys are paused and resumed. No message of a paused key starts, the order
/// holds, other keys end, and after the last pause all messages are settled.
RC_GTEST_PROP(LanePause, holds_paused_keys_only_and_keeps_order, ()) {
  const Order order = *rc::gen::element(Order::partition, Order::key, Order::none);
  Lane lane(order, *rc::gen::inRange<std::size_t>(1, 4));
  SteadyTime now = kNow;
  std::map<Offset, Work> running;
  std::set<Offset> settled;
  std::vector<std::string> key_of;
  std::set<std::string> paused;
  const auto is_paused = [&](Offset offset) { return paused.contains(key_of[static_cast<std::size_t>(offset)]); };
  const auto in_scope = [&](Offset me, Offset other) {
    const auto& mine = key_of[static_cast<std::size_t>(me)];
    return order == Order::partition ||
           (order == Order::key && !mine.empty() && mine == key_of[static_cast<std::size_t>(other)]);
  };
  const auto pause = [&](std::set<std::string> keys) {
    paused = std::move(keys);
    lane.pause_keys(Keys(paused.begin(), paused.end()));
  };
  const auto take = [&](std::size_t most) {
    const bool ready = lane.ready(now);
    const auto works = hand_out(lane, most, now);
    if (!ready) RC_ASSERT(works.empty());
    // A retry that is due can be behind a message of its key that runs. Then the lane is ready only once.
    if (works.empty() && order != Order::partition) RC_ASSERT(!lane.ready(now));
    std::set<Offset> unit;
    for (const auto& work : works) {
      const Offset offset = work.message->offset();
      RC_ASSERT(!is_paused(offset));
      RC_ASSERT(!running.contains(offset) && !settled.contains(offset));
      for (Offset other = 0; other < offset; ++other)
        RC_ASSERT(!in_scope(offset, other) || settled.contains(other) || unit.contains(other));
      unit.insert(offset);
      running[offset] = work;
    }
  };
  const auto end_one = [&](int how) {
    if (running.empty()) return;
    const auto it = how == 0 ? running.begin() : std::prev(running.end());
    const Work work = it->second;
    running.erase(it);
    if (how == 0) {
      lane.settle(work);
      settled.insert(work.message->offset());
    } else if (how == 1) {
      lane.put_back(work);
    } else {
      lane.retry(work, now + milliseconds(5), work.attempt + 1);
    }
  };
  const auto run_all = [&] {
    for (int round = 0; round < 1'000; ++round) {
      now += milliseconds(10);
      take(100);
      while (!running.empty()) end_one(0);
    }
  };
  const int steps = *rc::gen::inRange(1, 120);
  for (int i = 0; i < steps; ++i) {
    switch (*rc::gen::inRange(0, 7)) {
      case 0: {
        const Keys keys = *rc::gen::container<Keys>(5, rc::gen::element<std::string>("", "a", "b", "c"));
        lane.add(block(static_cast<Offset>(key_of.size()), keys));
        key_of.insert(key_of.end(), keys.begin(), keys.end());
        break;
      }
      case 1: take(static_cast<std::size_t>(*rc::gen::inRange(1, 6))); break;
      case 2: end_one(0); break;
      case 3: end_one(1); break;
      case 4: end_one(2); break;
      case 5: pause(*rc::gen::container<std::set<std::string>>(rc::gen::element<std::string>("a", "b", "c"))); break;
      default: now += milliseconds(3);
    }
    Offset lowest_open = 0;
    while (settled.contains(lowest_open)) ++lowest_open;
    if (!key_of.empty()) RC_ASSERT(*lane.position() == lowest_open);
  }
  run_all();
  for (Offset offset = 0; offset < static_cast<Offset>(key_of.size()); ++offset) {
    if (settled.contains(offset) || is_paused(offset)) continue;
    RC_ASSERT(order == Order::partition);
    bool waits_behind_a_paused_one = false;
    for (Offset other = 0; other < offset; ++other)
      waits_behind_a_paused_one |= is_paused(other) && !settled.contains(other);
    RC_ASSERT(waits_behind_a_paused_one);
  }
  pause({});
  run_all();
  RC_ASSERT(settled.size() == key_of.size());
  RC_ASSERT(lane.unsettled() == 0U);
  RC_ASSERT(lane.bytes() == 0U);
}

}  // namespace
}  // namespace turnstile::detail
