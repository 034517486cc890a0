// The state of a consumer in numbers, with the in-memory broker and store.

#include "turnstile/status.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <optional>

#include "tests/support/eventually.hpp"
#include "tests/unit/engine/engine_fixture.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;
using test::Door;
using test::eventually;

/// Keeps the last state, and counts rebalances.
class Watcher final : public Observer {
 public:
  void on_status(const Status& status) noexcept override {
    const std::lock_guard lock(mutex_);
    last_ = status;
  }
  void on_rebalance(const RebalanceReport& report) noexcept override {
    const std::lock_guard lock(mutex_);
    rebalances_.push_back(report.partitions);
  }
  std::optional<Status> last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }
  std::vector<std::int64_t> rebalances() const {
    const std::lock_guard lock(mutex_);
    return rebalances_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Status> last_;
  std::vector<std::int64_t> rebalances_;
};

class StatusTest : public test::EngineTest {
 protected:
  void run(Pipeline pipeline) {
    app = consumer("t", std::move(pipeline), config());
    app->observe(watcher);
    thread = start(*app);
  }
  void TearDown() override {
    if (app) app->stop();
    if (thread.joinable()) thread.join();
  }
  /// The state of a partition. Absent: this process does not have it.
  std::optional<PartitionStatus> at(std::int32_t partition) const {
    for (const auto& status : app->status().partitions) {
      if (status.at.partition == partition) return status;
    }
    return std::nullopt;
  }

  std::shared_ptr<Watcher> watcher = std::make_shared<Watcher>();
  std::unique_ptr<Consumer> app;
  std::thread thread;
};

TEST_F(StatusTest, tells_what_runs_and_what_waits) {
  topic("t", 2);
  publish("t", 10);
  Door door;
  std::atomic<int> begun{0};
  run(Pipeline([&](const Message&, Context&) {
        ++begun;
        door.wait();
      }) |
      transactional() | limit(1));
  ASSERT_TRUE(eventually([&] { return begun == 1 && app->status().partitions.size() == 2; })) << log_text();
  const Status status = app->status();
  EXPECT_EQ(status.health.state, Health::State::running);
  EXPECT_TRUE(status.in_group);
  EXPECT_EQ(status.store_available, true);
  ASSERT_EQ(status.running.size(), 1U);
  ASSERT_EQ(status.limiters.size(), 1U);
  EXPECT_EQ(status.limiters[0].name, "t");
  EXPECT_EQ(status.limiters[0].state.limit, 1);
  EXPECT_EQ(status.limiters[0].state.in_use, 1);
  ASSERT_EQ(status.threads.size(), 1U);
  EXPECT_LT(status.threads[0].quiet, 60s);
  ASSERT_TRUE(eventually([&] {
    const auto one = at(status.running[0].at.partition);
    return one && one->lag() && one->in_flight > 0;
  }));
  const auto one = at(status.running[0].at.partition);
  EXPECT_EQ(one->state, PartitionStatus::State::running);
  EXPECT_EQ(one->lag(), one->in_flight);
  EXPECT_GE(one->running, 1);
  door.open();
  EXPECT_TRUE(eventually([&] {
    const auto first = at(0), second = at(1);
    return first && second && first->lag() == 0 && second->lag() == 0 && first->behind == 0ms;
  }));
  EXPECT_TRUE(app->status().running.empty());
}

TEST_F(StatusTest, is_told_to_observers_while_it_runs_and_when_it_has_ended) {
  topic("t", 2);
  run(test::kEffect | transactional());
  EXPECT_TRUE(eventually([&] {
    const auto last = watcher->last();
    return last && last->partitions.size() == 2 && last->partitions[0].end == 0;
  })) << log_text();
  EXPECT_TRUE(eventually([&] { return watcher->rebalances() == std::vector<std::int64_t>{2}; }));
  app->stop();
  thread.join();
  EXPECT_EQ(watcher->last()->health.state, Health::State::stopped);
  EXPECT_TRUE(watcher->last()->partitions.empty());
  EXPECT_FALSE(watcher->last()->in_group);
}

TEST_F(StatusTest, knows_no_end_while_kafka_does_not_answer) {
  topic("t", 1);
  broker->refuse_lookups(true);
  run(Pipeline([](const Message&) {}));
  ASSERT_TRUE(eventually([&] { return watcher->last() && watcher->last()->partitions.size() == 1; })) << log_text();
  EXPECT_EQ(watcher->last()->partitions[0].lag(), std::nullopt);
  EXPECT_TRUE(eventually([&] { return watcher->last()->kafka_silent.has_value(); }));
  EXPECT_EQ(watcher->last()->store_available, std::nullopt) << "no topic needs it";
}

TEST(PartitionStatusTest, has_no_lag_below_zero) {
  PartitionStatus status;
  EXPECT_EQ(status.lag(), std::nullopt);
  status.position = 7;
  EXPECT_EQ(status.lag(), std::nullopt);
  status.end = 9;
  EXPECT_EQ(status.lag(), 2);
  status.end = 5;
  EXPECT_EQ(status.lag(), 0) << "the end was asked for earlier";
  status.position = std::numeric_limits<Offset>::min();
  status.end = std::numeric_limits<Offset>::max();
  EXPECT_EQ(status.lag(), std::numeric_limits<Offset>::max()) << "a broker that answers anything";
}

}  // namespace
}  // namespace turnstile
