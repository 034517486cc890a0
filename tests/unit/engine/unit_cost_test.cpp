// How large units become, depending on what of their time is fixed.

#include "engine/unit_cost.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "tests/unit/engine/engine_fixture.hpp"
#include "tests/unit/engine/scheduler_fixture.hpp"

namespace turnstile::detail {
namespace {

constexpr double kMs = 1e6;

/// A topic whose units cost so much, as the scheduler sizes them.
struct SizedTopic {
  double fixed_ms = 0, each_ms = 0;
  /// Each message has a call of its own, so that its time is known.
  bool one_at_a_time = false;
  double timeout_ms = 30'000;
  std::size_t batch = 500, unit_most = 500;
  UnitCost cost{};
  std::size_t size = 8;
  double mean_ms = 0;
  double noise = 0;  ///< a unit takes up to this part more
  std::mt19937 random{1};

  double took_ms() {
    const double more = std::uniform_real_distribution<>(0, noise)(random);
    return (1 + more) * (fixed_ms + static_cast<double>(size) * each_ms);
  }
  /// Runs so many units, and returns their sizes.
  std::vector<std::size_t> run(int units) {
    std::vector<std::size_t> sizes;
    for (int i = 0; i < units; ++i) {
      const auto messages = static_cast<double>(size);
      const double took = took_ms();
      sizes.push_back(size);
      cost.note(messages, took * kMs, one_at_a_time ? messages * each_ms * kMs : 0);
      const double each = took / messages;
      mean_ms = mean_ms == 0 ? each : mean_ms * 0.75 + each * 0.25;
      unit_most = std::min(batch, 2 * unit_most);
      const double longest = one_at_a_time ? std::numeric_limits<double>::infinity() : timeout_ms / 2 * kMs;
      size = std::min({cost.size(50 / mean_ms, 50 * kMs, longest), batch, unit_most});
    }
    return sizes;
  }
  /// After a failure, units are small.
  void shrink() { size = unit_most = 1; }
};

double mean(const std::vector<std::size_t>& sizes) {
  double sum = 0;
  for (const std::size_t size : sizes) sum += static_cast<double>(size);
  return sum / static_cast<double>(sizes.size());
}

TEST(UnitCost, a_commit_of_80_ms_is_shared_by_many_messages) {
  SizedTopic topic{.fixed_ms = 80, .each_ms = 0.01, .one_at_a_time = true};
  topic.run(12);
  EXPECT_EQ(topic.size, 500);
}

TEST(UnitCost, a_call_of_60_ms_for_a_whole_batch_is_shared_by_many_messages) {
  SizedTopic topic{.fixed_ms = 60, .each_ms = 0.02};
  topic.run(12);
  EXPECT_GE(mean(topic.run(20)), 400);
}

TEST(UnitCost, they_grow_again_after_a_failure_made_them_small) {
  SizedTopic topic{.fixed_ms = 40, .each_ms = 0.02};
  topic.run(50);
  topic.shrink();
  topic.run(40);
  EXPECT_GE(mean(topic.run(20)), 400);
}

TEST(UnitCost, they_grow_from_one_message) {
  SizedTopic topic{.fixed_ms = 60, .each_ms = 0.02, .size = 1};
  topic.run(40);
  EXPECT_GE(mean(topic.run(20)), 400);
}

TEST(UnitCost, the_messages_take_at_most_as_long_as_what_they_spread) {
  SizedTopic topic{.fixed_ms = 60, .each_ms = 1};
  topic.run(50);
  EXPECT_NEAR(mean(topic.run(100)), 60, 15);
}

/// A batch handler that spends 60 ms on each message: larger units gain nothing, and are tried rarely.
TEST(UnitCost, slow_messages_stay_in_small_units) {
  SizedTopic topic{.each_ms = 60};
  topic.run(100);
  const auto sizes = topic.run(200);
  EXPECT_LE(mean(sizes), 1.2);
  EXPECT_LE(*std::max_element(sizes.begin(), sizes.end()), 2);
}

TEST(UnitCost, what_single_calls_take_is_never_taken_for_fixed) {
  SizedTopic topic{.fixed_ms = 1, .each_ms = 60, .one_at_a_time = true};
  const auto sizes = topic.run(200);
  EXPECT_TRUE(std::all_of(sizes.begin() + 1, sizes.end(), [](std::size_t size) { return size == 1; }));
}

/// On a busy machine a unit takes up to half as long again.
TEST(UnitCost, noise_hides_neither) {
  SizedTopic fixed{.fixed_ms = 60, .each_ms = 0.02, .noise = 0.5};
  fixed.run(20);
  EXPECT_GE(mean(fixed.run(200)), 300);
  SizedTopic slow{.each_ms = 60, .noise = 0.5};
  slow.run(100);
  EXPECT_LE(mean(slow.run(200)), 1.5);
}

/// A unit must not run into its handler_timeout because it was made larger.
TEST(UnitCost, one_call_stays_below_half_of_its_timeout) {
  SizedTopic slow{.fixed_ms = 20'000, .each_ms = 100, .size = 1};
  EXPECT_LE(mean(slow.run(50)), 1);
  SizedTopic unknown{.each_ms = 8'000, .size = 1};
  EXPECT_LE(mean(unknown.run(50)), 1);
  SizedTopic near{.fixed_ms = 5'000, .each_ms = 500, .size = 1};
  near.run(20);
  for (const std::size_t size : near.run(100)) EXPECT_LE(5'000 + 500 * size, 15'000);
}

/// What each message takes, changes a thousandfold. One unit is as large as before, because nobody could know.
std::vector<std::size_t> sizes_after_a_change(SizedTopic topic, double each_ms) {
  topic.run(100);
  topic.each_ms = each_ms;
  const auto sizes = topic.run(100);
  return {sizes.begin() + 1, sizes.end()};
}

TEST(UnitCost, no_unit_is_large_for_long_when_a_batch_handler_becomes_slow) {
  for (const std::size_t size : sizes_after_a_change({.fixed_ms = 1, .each_ms = 0.02, .timeout_ms = 1'000}, 20))
    EXPECT_LE(size * 20, 500);
}

/// Their time is that of statements and COMMIT, so it may be fixed for all that is known.
TEST(UnitCost, no_unit_is_large_for_long_when_what_single_calls_have_deferred_becomes_slow) {
  for (const double each_ms : {20.0, 100.0}) {
    const auto sizes = sizes_after_a_change({.fixed_ms = 1, .each_ms = 0.1, .timeout_ms = 1e9}, each_ms);
    for (const std::size_t size : sizes) EXPECT_LE(static_cast<double>(size) * each_ms, 1'000);
    EXPECT_LE(mean({sizes.begin() + 20, sizes.end()}) * each_ms, 130);
  }
}

/// Each unit is a little slower than the one before, so none is a surprise. What is left of the old line adds a second.
TEST(UnitCost, units_follow_messages_that_become_slower_and_slower) {
  SizedTopic topic{.fixed_ms = 1, .each_ms = 0.1, .timeout_ms = 1e9};
  topic.run(50);
  for (int i = 0; i < 40; ++i) {
    topic.each_ms *= 1.2;
    topic.run(1);
    EXPECT_LE(static_cast<double>(topic.size) * topic.each_ms, 1'200) << i;
  }
}

TEST(UnitCost, a_unit_that_failed_tells_nothing) {
  SizedTopic topic{.fixed_ms = 80, .each_ms = 0.01};
  topic.run(50);
  topic.cost.forget();
  EXPECT_EQ(topic.cost.size(2, 50 * kMs, 1e12), 2);
}

TEST(UnitCost, nothing_is_known_at_first) { EXPECT_EQ(UnitCost().size(7, 50 * kMs, 1e12), 7); }

/// How many messages the next unit has, of a topic whose units of 8 and 4 messages took 90 ms.
std::size_t next_unit(Pipeline handler) {
  const auto run_log = quiet_log();
  TopicSettings settings;
  settings.mode = Mode::transactional;
  settings.handler_timeout = std::chrono::milliseconds(100);
  const auto topic = topic_with_store(run_log, std::move(handler) | transactional(), settings);
  topic->mean_ns = 90e6 / 8;
  topic->cost.note(8, 90e6, 1e6);
  topic->cost.note(4, 90e6, 1e6);
  Scheduler scheduler({.messages = 100, .bytes = 1 << 20}, run_log, [] {});
  const auto lane = std::make_shared<LaneState>(*topic, OwnedPartition{.at = {"t", 0}, .fence = {}});
  scheduler.open(lane);
  scheduler.feed(*lane, detail::block("t", 0, 50));
  WorkerSlot& slot = scheduler.add_worker();
  LaneUnit unit;
  EXPECT_TRUE(scheduler.next(unit, slot));
  return unit.works.size();
}

/// Each message has a handler_timeout of its own, and COMMIT has none.
TEST(UnitSize, a_commit_as_long_as_the_handlers_timeout_is_shared_too) {
  EXPECT_EQ(next_unit([](const Message&) {}), 14);
  EXPECT_EQ(next_unit([](std::span<const Message>) {}), 4) << "one call may have taken all the time";
}

/// One bulk request takes 60 ms for any number of messages.
class BulkRequests : public test::EngineTest, public ::testing::WithParamInterface<Pipeline (*)(Pipeline)> {};

TEST_P(BulkRequests, take_many_messages_each_also_after_one_was_refused) {
  topic("t", 1);
  topic("t.dlq", 1);
  publish("t", 1000, "before");
  publish("t", 1, "poison", "poison");
  publish("t", 1000, "after");
  std::atomic<int> requests{0};
  auto pipeline = GetParam()(Pipeline([&](std::span<const Message> messages, Context&) {
    ++requests;
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    for (const Message& message : messages) {
      if (message.payload() == "poison") throw std::runtime_error("refused");
    }
  }));
  auto app = consumer("t", std::move(pipeline) | dead_letter(), config());
  std::thread running = start(*app);
  EXPECT_TRUE(test::eventually([&] { return counts->done == 2000; })) << counts->done << " " << log_text();
  app->stop();
  running.join();
  EXPECT_EQ(failure, "");
  EXPECT_EQ(broker->records("t.dlq").size(), 1);
  // Finding the poison takes about two for each halving of its batch. Units of one message would take 2,000.
  EXPECT_LE(requests, 100);
}

Pipeline plain(Pipeline handler) { return handler; }
Pipeline in_transactions(Pipeline handler) { return std::move(handler) | transactional(); }
Pipeline with_claims(Pipeline handler) { return std::move(handler) | leased(std::chrono::seconds(30)); }

INSTANTIATE_TEST_SUITE_P(InMode, BulkRequests, ::testing::Values(&plain, &in_transactions, &with_claims),
                         [](const auto& mode) {
                           if (mode.param == &plain) return "at_least_once";
                           return mode.param == &in_transactions ? "transactional" : "leased";
                         });

}  // namespace
}  // namespace turnstile::detail
