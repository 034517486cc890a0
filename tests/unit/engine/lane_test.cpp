// The order in which the messages of a partition may start. No message is lost, and none runs twice at once.

#include "engine/lane.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

#include "tests/unit/engine/lane_fixture.hpp"

namespace turnstile::detail {
namespace {

TEST(LanePartition, hands_out_one_run_at_a_time) {
  Lane lane(Order::partition);
  lane.add(block(0, {"a", "b", "c"}));
  const auto first = hand_out(lane, 2);
  EXPECT_EQ(offsets(first), (std::vector<Offset>{0, 1}));
  EXPECT_FALSE(lane.ready(kNow));
  EXPECT_TRUE(hand_out(lane, 2).empty());
  for (const auto& work : first) lane.settle(work);
  EXPECT_EQ(offsets(hand_out(lane, 2)), std::vector<Offset>{2});
}

TEST(LanePartition, lets_nothing_pass_a_message_that_waits_for_its_retry) {
  Lane lane(Order::partition);
  lane.add(block(0, {"", "", ""}));
  auto works = hand_out(lane, 3);
  lane.settle(works[0]);
  lane.retry(works[1], kNow + milliseconds(100), 2);
  lane.put_back(works[2]);
  EXPECT_FALSE(lane.ready(kNow));
  EXPECT_EQ(lane.next_due(), kNow + milliseconds(100));
  EXPECT_EQ(lane.position(), 1);
  works = hand_out(lane, 3, kNow + milliseconds(100));
  EXPECT_EQ(offsets(works), std::vector<Offset>{1}) << "what has failed runs by itself";
  EXPECT_EQ(works[0].attempt, 2);
  lane.settle(works[0]);
  works = hand_out(lane, 3, kNow + milliseconds(100));
  EXPECT_EQ(offsets(works), std::vector<Offset>{2});
  EXPECT_EQ(works[0].attempt, 1);
}

TEST(LaneKey, runs_other_keys_while_one_waits) {
  Lane lane(Order::key);
  lane.add(block(0, {"a", "b", "a"}));
  auto works = hand_out(lane, 1);
  ASSERT_EQ(works.size(), 1U);
  // "a" has the longer backlog, so it goes first.
  EXPECT_EQ(offsets(works), std::vector<Offset>{0});
  lane.retry(works[0], kNow + milliseconds(100), 2);
  EXPECT_EQ(offsets(hand_out(lane, 5)), std::vector<Offset>{1});
  EXPECT_FALSE(lane.ready(kNow));
  EXPECT_EQ(offsets(hand_out(lane, 1, kNow + milliseconds(100))), std::vector<Offset>{0});
}

/// The scheduler puts the suspect back until nothing else runs, and then asks for it.
TEST(LaneKey, hands_out_a_suspect_again_that_was_put_back) {
  Lane lane(Order::key);
  lane.add(block(0, {"j", "j", "j", "i", "i", "i", "k"}));
  lane.single_out({{6, 1}});
  for (int turn = 0; turn < 16; ++turn) {
    const auto works = hand_out(lane, 1);
    ASSERT_EQ(works.size(), 1U);
    lane.put_back(works[0]);
    if (works[0].alone) break;
  }
  EXPECT_EQ(offsets(hand_out(lane, 1)), std::vector<Offset>{6});
}

TEST(LaneKey, leaves_records_without_a_key_free) {
  Lane lane(Order::key);
  lane.add(block(0, {"", "", ""}));
  EXPECT_EQ(hand_out(lane, 1).size(), 1U);
  EXPECT_EQ(hand_out(lane, 1).size(), 1U);
  EXPECT_EQ(hand_out(lane, 1).size(), 1U);
}

TEST(LaneNone, lets_everything_pass) {
  Lane lane(Order::none);
  lane.add(block(0, {"a", "a"}));
  const auto first = hand_out(lane, 1);
  const auto second = hand_out(lane, 1);
  lane.settle(second[0]);
  EXPECT_EQ(lane.position(), 0);
  lane.settle(first[0]);
  EXPECT_EQ(lane.position(), 2);
}

TEST(Lane, frees_a_block_when_all_of_it_is_settled) {
  Lane lane(Order::none);
  lane.add(block(0, {"", ""}));
  lane.add(block(2, {""}));
  const auto works = hand_out(lane, 3);
  lane.settle(works[2]);
  EXPECT_EQ(lane.take_spent().size(), 1U) << "whatever becomes of older ones";
  lane.settle(works[0]);
  EXPECT_TRUE(lane.take_spent().empty());
  lane.settle(works[1]);
  EXPECT_EQ(lane.take_spent().size(), 1U);
}

TEST(Lane, settles_a_message_that_waits) {
  for (const Order order : {Order::partition, Order::key, Order::none}) {
    Lane lane(order);
    lane.add(block(0, {"a", "b", "a"}));
    const auto waiting = lane.lend_waiting(0, 10);
    ASSERT_EQ(waiting.size(), 3U);
    lane.return_lent();
    EXPECT_TRUE(lane.settle_waiting(waiting[0].seq));
    EXPECT_TRUE(lane.settle_waiting(waiting[1].seq));
    EXPECT_FALSE(lane.settle_waiting(waiting[1].seq)) << "it has gone by";
    EXPECT_EQ(lane.position(), 2);
    EXPECT_EQ(offsets(hand_out(lane, 10)), std::vector<Offset>{2});
    EXPECT_FALSE(lane.settle_waiting(waiting[2].seq)) << "whoever runs it reports it";
    EXPECT_TRUE(lane.lend_waiting(0, 10).empty());
    lane.settle({waiting[2].message, waiting[2].seq, 1});
    EXPECT_EQ(lane.take_spent().size(), 1U) << "there was nothing to lend";
  }
}

TEST(Lane, lends_no_suspect) {
  for (const Order order : {Order::partition, Order::key, Order::none}) {
    Lane lane(order);
    lane.add(block(0, {"a", "b", "a"}));
    const auto waiting = lane.lend_waiting(0, 10);
    lane.single_out({{1, 0}});
    EXPECT_FALSE(lane.settle_waiting(waiting[1].seq)) << "it was lent before it became a suspect";
    EXPECT_EQ(lane.lend_waiting(0, 10).size(), 2U);
    EXPECT_TRUE(lane.has_suspects());
  }
}

TEST(Lane, keeps_a_block_for_as_long_as_somebody_looks_at_it) {
  Lane lane(Order::none);
  lane.add(block(0, {"a", "b"}));
  const auto one = lane.lend_waiting(0, 10), other = lane.lend_waiting(1, 10);
  for (const Work& work : hand_out(lane, 10)) lane.settle(work);
  EXPECT_TRUE(lane.take_spent().empty());
  lane.return_lent();
  EXPECT_TRUE(lane.take_spent().empty());
  EXPECT_EQ(other[0].message->offset(), 1);
  lane.return_lent();
  EXPECT_EQ(lane.take_spent().size(), 1U);
}

TEST(Lane, names_the_message_that_holds_it) {
  Lane lane(Order::none);
  EXPECT_EQ(lane.oldest(), nullptr);
  lane.add(block(7, {"", ""}));
  EXPECT_EQ(lane.oldest()->offset(), 7);
}

/// The window counts unsettled messages only, so others go on while two take long. Meanwhile the position does not
/// move.
TEST(Lane, keeps_little_of_what_is_settled_behind_slow_messages) {
  Lane lane(Order::none);
  lane.add(block(0, std::vector<std::string>(2, "")));
  const auto slow = hand_out(lane, 2);
  const std::size_t two = lane.bytes();
  Offset next = 2;
  for (int round = 0; round < 100; ++round) {
    lane.add(block(next, std::vector<std::string>(100, "")));
    next += 100;
    const auto works = hand_out(lane, 100);
    ASSERT_EQ(works.size(), 100U);
    for (const auto& work : works) lane.settle(work);
    EXPECT_EQ(lane.unsettled(), 2U);
    EXPECT_EQ(lane.bytes(), two);
    EXPECT_EQ(lane.take_spent().size(), 1U) << "its memory is free";
    EXPECT_EQ(lane.position(), 0);
    EXPECT_EQ(lane.oldest()->offset(), 0);
  }
  lane.settle(slow[0]);
  EXPECT_EQ(lane.position(), 1);
  EXPECT_EQ(lane.oldest()->offset(), 1);
  lane.settle(slow[1]);
  EXPECT_EQ(lane.position(), next);
  EXPECT_EQ(lane.oldest(), nullptr);
}

/// The message waits for a permit while the messages behind it turn out to be duplicates.
TEST(Lane, hands_out_a_message_that_was_put_aside_before_it_ever_ran) {
  Lane lane(Order::none, 2);
  lane.add(block(0, std::vector<std::string>(10, "")));
  for (Seq seq = 1; seq < 10; ++seq) lane.settle_waiting(seq);
  EXPECT_EQ(lane.unsettled(), 1U);
  EXPECT_TRUE(lane.ready(kNow));
  const auto works = hand_out(lane, 10);
  ASSERT_EQ(works.size(), 1U);
  EXPECT_EQ(works[0].message->offset(), 0);
  EXPECT_TRUE(hand_out(lane, 10).empty());
  lane.settle(works[0]);
  EXPECT_EQ(lane.position(), 10);
}

TEST(Lane, passes_offsets_that_hold_no_messages_once_all_below_is_settled) {
  Lane lane(Order::none);
  lane.pass(5);
  EXPECT_EQ(lane.position(), 5) << "nothing was there";
  lane.add(block(5, {"", ""}));
  const auto works = hand_out(lane, 2);
  lane.pass(9);
  lane.settle(works[1]);
  EXPECT_EQ(lane.position(), 5);
  lane.settle(works[0]);
  EXPECT_EQ(lane.position(), 9);
  lane.add(block(9, {""}));
  lane.pass(9);
  EXPECT_EQ(lane.position(), 9) << "said again of what was taken since";
  lane.settle(hand_out(lane, 1).front());
  EXPECT_EQ(lane.position(), 10);
}

/// Random runs: hand out, settle, put back, retry, look up. No message runs twice at once, or after it is settled.
/// Order holds within its scope, and in the end all messages are settled.
RC_GTEST_PROP(Lane, loses_nothing_and_keeps_order, ()) {
  const Order order = *rc::gen::element(Order::partition, Order::key, Order::none);
  Lane lane(order, *rc::gen::inRange<std::size_t>(1, 4));
  Offset next = 0;
  SteadyTime now = kNow;
  std::map<Offset, Work> running;
  std::set<Offset> settled;
  std::map<Offset, std::string> key_of;
  const auto before_me = [&](Offset me, Offset other) {
    if (other >= me || settled.contains(other)) return false;
    return order == Order::partition || (order == Order::key && !key_of[me].empty() && key_of[me] == key_of[other]);
  };
  const auto take = [&](std::size_t most) {
    const auto works = hand_out(lane, most, now);
    std::set<Offset> unit;
    for (const auto& work : works) {
      const Offset offset = work.message->offset();
      RC_ASSERT(!running.contains(offset));
      RC_ASSERT(!settled.contains(offset));
      // Each message before it in its scope is settled, or runs before it in the same unit.
      for (Offset other = 0; other < next; ++other) RC_ASSERT(!before_me(offset, other) || unit.contains(other));
      unit.insert(offset);
      running[offset] = work;
    }
  };
  // Ends one running message. It settles the oldest one, or gives back the youngest one, like a worker that gives up
  // the rest of its unit.
  const auto end_one = [&](int how) {
    if (running.empty()) return;
    auto it = how == 0 ? running.begin() : std::prev(running.end());
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
  const int steps = *rc::gen::inRange(1, 120);
  for (int i = 0; i < steps; ++i) {
    switch (*rc::gen::inRange(0, 6)) {
      case 0: {
        std::vector<std::string> keys =
            *rc::gen::container<std::vector<std::string>>(5, rc::gen::element<std::string>("", "a", "b", "c"));
        for (const auto& key : keys) key_of[next + (&key - keys.data())] = key;
        lane.add(block(next, keys));
        next += static_cast<Offset>(keys.size());
        break;
      }
      case 1: take(static_cast<std::size_t>(*rc::gen::inRange(1, 6))); break;
      case 2: end_one(0); break;
      case 3: end_one(1); break;
      case 4: end_one(2); break;
      default: now += milliseconds(3);
    }
    Offset lowest_open = 0;
    while (settled.contains(lowest_open)) ++lowest_open;
    if (next > 0) RC_ASSERT(*lane.position() == lowest_open);
  }
  for (int round = 0; round < 10'000 && settled.size() < static_cast<std::size_t>(next); ++round) {
    now += milliseconds(10);
    take(100);
    while (!running.empty()) end_one(0);
  }
  RC_ASSERT(settled.size() == static_cast<std::size_t>(next));
  RC_ASSERT(lane.unsettled() == 0U);
  RC_ASSERT(lane.bytes() == 0U);
}

}  // namespace
}  // namespace turnstile::detail
