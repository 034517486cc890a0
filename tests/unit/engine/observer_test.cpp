// What a consumer reports to its observers about the steps of a batch and about permits.

#include "turnstile/observer.hpp"

#include <gtest/gtest.h>

#include "tests/support/eventually.hpp"
#include "tests/unit/engine/engine_fixture.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using test::eventually;
using test::kEffect;

constexpr auto kHandlerTakes = 2ms;

/// The sums of all batches, and the permits.
class Sums final : public Observer {
 public:
  void on_batch(const BatchReport& report) noexcept override {
    const std::lock_guard lock(mutex);
    messages += report.messages;
    calls += report.handler_calls;
    handler += report.handler_time;
    claim += report.claim_time;
    commit += report.commit_time;
    parts_fit = parts_fit && report.handler_time + report.claim_time + report.commit_time <= report.took;
    settled += report.done;
  }
  void on_permit(const PermitReport& report) noexcept override {
    const std::lock_guard lock(mutex);
    permits.emplace_back(std::string(report.topic) + " " + std::string(report.limiter), report.waited);
  }

  std::mutex mutex;
  std::int64_t messages = 0, calls = 0, settled = 0;
  nanoseconds handler{}, claim{}, commit{};
  bool parts_fit = true;
  std::vector<std::pair<std::string, nanoseconds>> permits;
};

class ObserverTest : public test::EngineTest {
 protected:
  /// Runs ten messages of one partition.
  void run(Pipeline pipeline) {
    topic("t", 1);
    publish("t", 10);
    auto app = consumer("t", std::move(pipeline), config());
    app->observe(sums);
    auto thread = start(*app);
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(sums->mutex);
      return sums->settled >= 10;
    })) << log_text();
    app->stop();
    thread.join();
    EXPECT_EQ(failure, "");
    EXPECT_EQ(sums->messages, 10);
    EXPECT_TRUE(sums->parts_fit);
  }

  std::shared_ptr<Sums> sums = std::make_shared<Sums>();
};

/// Returns after the clock has moved by kHandlerTakes.
const auto kTakesTime = [](const Message&, Context&) {
  const auto until = std::chrono::steady_clock::now() + kHandlerTakes;
  while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
};

TEST_F(ObserverTest, is_told_how_long_each_step_of_a_transaction_took) {
  run([](const Message& message, Context& context) {
    kTakesTime(message, context);
    kEffect(message, context);
  } | transactional());
  EXPECT_EQ(sums->calls, 10);
  EXPECT_GE(sums->handler, 10 * kHandlerTakes);
  EXPECT_GT(sums->claim, 0ns);
  EXPECT_GT(sums->commit, 0ns);
}

TEST_F(ObserverTest, is_told_how_long_each_step_under_a_lease_took) {
  run(kTakesTime | leased());
  EXPECT_EQ(sums->calls, 10);
  EXPECT_GE(sums->handler, 10 * kHandlerTakes);
  EXPECT_GT(sums->claim, 0ns);
  EXPECT_GT(sums->commit, 0ns);
}

TEST_F(ObserverTest, is_told_how_long_handlers_took_where_there_is_no_store) {
  run(Pipeline(kTakesTime));
  EXPECT_EQ(sums->calls, 10);
  EXPECT_GE(sums->handler, 10 * kHandlerTakes);
  EXPECT_EQ(sums->claim, 0ns);
  EXPECT_EQ(sums->commit, 0ns);
}

TEST_F(ObserverTest, is_told_of_a_call_that_takes_a_whole_batch) {
  std::int64_t calls = 0;
  run([&](std::span<const Message> messages, Context& context) {
    ++calls;
    for (const Message& message : messages) kTakesTime(message, context);
  } | transactional());
  EXPECT_EQ(sums->calls, calls);
  EXPECT_GE(sums->handler, 10 * kHandlerTakes);
}

TEST_F(ObserverTest, is_told_how_long_a_permit_was_waited_for) {
  topic("t", 2);
  publish("t", 40);
  auto app = consumer("t", kTakesTime | limit("psp", 1) | batch(1), config());
  app->observe(sums);
  auto thread = start(*app);
  EXPECT_TRUE(eventually([&] { return all_committed("t", 2); })) << log_text();
  app->stop();
  thread.join();
  const std::lock_guard lock(sums->mutex);
  ASSERT_FALSE(sums->permits.empty()) << "two partitions under one permit";
  for (const auto& [whose, waited] : sums->permits) {
    EXPECT_EQ(whose, "t psp");
    EXPECT_GE(waited, 0ns);
  }
  const auto longest = std::max_element(sums->permits.begin(), sums->permits.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  EXPECT_GE(longest->second, kHandlerTakes / 2) << "it waits for most of the other partition's handler";
}

}  // namespace
}  // namespace turnstile
