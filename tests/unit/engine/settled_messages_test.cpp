// The watermark of a partition, compared with a model that is too simple to be wrong.

#include "engine/settled_messages.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

namespace turnstile::detail {
namespace {

TEST(SettledMessages, has_no_position_before_the_first_message) {
  SettledMessages<int> tracker;
  EXPECT_FALSE(tracker.position());
}

TEST(SettledMessages, starts_at_the_first_message_that_it_sees) {
  SettledMessages<int> tracker;
  tracker.take(42, 0);
  EXPECT_EQ(tracker.position(), 42);
}

TEST(SettledMessages, does_not_pass_an_open_message) {
  SettledMessages<int> tracker;
  tracker.take(0, 0);
  tracker.take(1, 0);
  tracker.settle(1);
  EXPECT_EQ(tracker.position(), 0);
  tracker.settle(0);
  EXPECT_EQ(tracker.position(), 2);
}

TEST(SettledMessages, takes_gaps_in_offsets_for_normal) {
  SettledMessages<int> tracker;
  tracker.take(10, 0);
  tracker.take(20, 0);
  tracker.settle(0);
  EXPECT_EQ(tracker.position(), 11);
  tracker.settle(1);
  EXPECT_EQ(tracker.position(), 21);
}

TEST(SettledMessages, drops_an_offset_that_is_delivered_twice) {  // hazard: repeated-offsets
  SettledMessages<int> tracker;
  EXPECT_TRUE(tracker.take(5, 0));
  EXPECT_FALSE(tracker.take(5, 0));
  EXPECT_FALSE(tracker.take(4, 0));
  EXPECT_EQ(tracker.kept(), 1U);
}

TEST(SettledMessages, settles_once) {
  SettledMessages<int> tracker;
  tracker.take(0, 0);
  tracker.take(1, 0);
  EXPECT_TRUE(tracker.settle(1));
  EXPECT_FALSE(tracker.settle(1));
  EXPECT_EQ(tracker.unsettled(), 1U);
}

RC_GTEST_PROP(SettledMessages, agrees_with_the_model, ()) {
  SettledMessages<int> tracker(*rc::gen::inRange<std::size_t>(1, 5));
  std::set<Seq> aside;
  std::map<Offset, bool> model;  // offset -> whether it is settled
  std::map<Seq, Offset> numbers;
  Offset next = *rc::gen::inRange<Offset>(0, 1000);
  const int steps = *rc::gen::inRange(1, 200);
  for (int i = 0; i < steps; ++i) {
    const bool take = numbers.empty() || *rc::gen::inRange(0, 2) == 0;
    if (take) {
      next += *rc::gen::inRange<Offset>(1, 4);  // gaps
      const Seq seq = tracker.end();
      RC_ASSERT(tracker.take(next, 7));
      model[next] = false;
      numbers[seq] = next;
    } else {
      const auto it =
          std::next(numbers.begin(), *rc::gen::inRange<std::ptrdiff_t>(0, static_cast<std::ptrdiff_t>(numbers.size())));
      RC_ASSERT(tracker.settle(it->first) == !model[it->second]);
      model[it->second] = true;
      tracker.put_aside([&](Seq seq) { RC_ASSERT(aside.insert(seq).second); });
      for (const auto& [seq, offset] : numbers) RC_ASSERT(tracker.is_open(seq) == !model[offset]);
    }
    // The position in the model: the first open offset, or one past the last offset that was taken.
    const auto open = std::find_if(model.begin(), model.end(), [](const auto& m) { return !m.second; });
    const auto unsettled =
        static_cast<std::size_t>(std::count_if(model.begin(), model.end(), [](const auto& m) { return !m.second; }));
    RC_ASSERT(tracker.unsettled() == unsettled);
    if (open != model.end()) {
      RC_ASSERT(*tracker.position() <= open->first);
      const bool all_below = std::all_of(model.begin(), open, [](const auto& m) { return m.second; });
      RC_ASSERT(all_below);
      // No open message is below the position. The position is past every settled message before the first open one.
      if (open != model.begin()) RC_ASSERT(*tracker.position() > std::prev(open)->first);
      RC_ASSERT(tracker.offset(*tracker.oldest()) == open->first);
    } else {
      RC_ASSERT(*tracker.position() == model.rbegin()->first + 1);
      RC_ASSERT(!tracker.oldest());
    }
  }
}

}  // namespace
}  // namespace turnstile::detail
