// Paused topics, partitions and keys of a consumer, with the in-memory broker and store.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>

#include "tests/support/eventually.hpp"
#include "tests/support/forwarding_store.hpp"
#include "tests/unit/engine/engine_fixture.hpp"
#include "turnstile/error.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class StatusCounter final : public Observer {
 public:
  void on_status(const Status&) noexcept override { ++reports; }
  std::atomic<int> reports{0};
};

/// A store whose pauses the test can make unavailable. `fail` may throw.
class FailingPauses final : public test::ForwardingStore, public ports::Pauses {
 public:
  explicit FailingPauses(std::shared_ptr<ports::Store> inner) : ForwardingStore(inner), pauses_(inner->pauses()) {}
  std::shared_ptr<ports::Pauses> pauses() override { return {std::shared_ptr<void>(), this}; }
  std::vector<ports::Pause> active() override {
    ++asked;
    const std::lock_guard lock(mutex_);
    if (fail_) fail_();
    return pauses_->active();
  }
  void begin(const ports::Pause& pause) override { pauses_->begin(pause); }
  bool end(const ports::PausedPart& part) override { return pauses_->end(part); }
  void fail(std::function<void()> fail) {
    const std::lock_guard lock(mutex_);
    fail_ = std::move(fail);
  }
  std::atomic<int> asked{0};

 private:
  const std::shared_ptr<ports::Pauses> pauses_;
  std::mutex mutex_;
  std::function<void()> fail_;
};

class PauseTest : public test::EngineTest {
 protected:
  void SetUp() override {
    topic("t", 2);
    settings.consumer.stall_after = 200ms;
  }
  void run(Pipeline pipeline) {
    app = std::make_unique<Consumer>(settings, Backends{broker, store});
    app->topic("t", std::move(pipeline)).observe(counts).observe(reports).handle_signals(false).logger(logger);
    thread = start(*app);
  }
  void TearDown() override {
    if (app) app->stop();
    if (thread.joinable()) thread.join();
  }
  void pause(const ports::PausedPart& part, std::optional<std::chrono::milliseconds> left = {}) {
    inbox->pauses()->begin({.part = part, .by = "anna", .why = "the bank is down", .left = left});
  }
  void resume(const ports::PausedPart& part) { EXPECT_TRUE(inbox->pauses()->end(part)); }
  bool logged(const std::string& line) { return log_text().find(line) != std::string::npos; }
  /// The polling thread and the watchdog have gone round for a second at least.
  bool time_passes() {
    const int before = reports->reports;
    return eventually([&] { return reports->reports >= before + 2; });
  }

  Config settings = config();
  std::shared_ptr<FailingPauses> store = std::make_shared<FailingPauses>(inbox);
  std::shared_ptr<StatusCounter> reports = std::make_shared<StatusCounter>();
  std::unique_ptr<Consumer> app;
  std::thread thread;
};

TEST_F(PauseTest, nothing_of_a_paused_topic_starts_and_nothing_is_stalled) {
  pause({"t"});
  publish("t", 20);
  run(test::kEffect | transactional());
  ASSERT_TRUE(eventually([&] { return app->status().partitions.size() == 2; })) << log_text();
  ASSERT_TRUE(time_passes());
  const Status status = app->status();
  EXPECT_EQ(counts->done, 0);
  EXPECT_EQ(counts->stalled_at, -1);
  EXPECT_TRUE(status.health.is_ready());
  EXPECT_TRUE(status.health.problems.empty());
  for (const auto& partition : status.partitions) {
    EXPECT_TRUE(partition.paused);
    EXPECT_EQ(partition.in_flight, 0) << "it is not read";
  }
  ASSERT_EQ(status.pauses.size(), 1U);
  EXPECT_EQ(status.pauses[0].by, "anna");
  EXPECT_THAT(log_text(), AllOf(HasSubstr("topic t is paused by anna since "), HasSubstr("(the bank is down)"),
                                HasSubstr("turnstile topics resume t ends the pause"), HasSubstr("code=topic_paused")));
  resume({"t"});
  EXPECT_TRUE(eventually([&] { return counts->done == 20 && all_committed("t", 2); })) << log_text();
  EXPECT_TRUE(logged("topic t is no longer paused"));
  EXPECT_TRUE(app->status().pauses.empty());
}

TEST_F(PauseTest, a_message_in_memory_waits_and_what_runs_ends) {
  settings.consumer.workers = 1;
  publish("t", 20);
  test::Door door;
  std::atomic<int> runs{0};
  run(Pipeline([&](const Message&, Context&) {
        ++runs;
        door.wait();
      }) |
      transactional() | batch(1));
  ASSERT_TRUE(eventually([&] { return runs == 1; })) << log_text();
  pause({"t"});
  ASSERT_TRUE(eventually([&] { return app->status().pauses.size() == 1; }));
  door.open();
  ASSERT_TRUE(eventually([&] { return counts->done == 1; }));
  counts->stalled_at = -1;  // the handler took long
  ASSERT_TRUE(time_passes());
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(counts->stalled_at, -1);
  resume({"t"});
  EXPECT_TRUE(eventually([&] { return counts->done == 20 && all_committed("t", 2); })) << log_text();
  EXPECT_EQ(runs, 20);
}

TEST_F(PauseTest, a_partition_and_a_key_hold_nothing_else) {
  pause({"t", 0});
  pause({"t", {}, "3"});
  publish("t", 70);
  std::int64_t expected = 0;
  for (const auto& record : broker->records("t")) expected += record.partition == 1 && record.key != "3" ? 1 : 0;
  run(test::kEffect | transactional() | ordered_by(Order::key));
  ASSERT_TRUE(eventually([&] { return counts->done == expected; })) << log_text();
  ASSERT_TRUE(time_passes());
  EXPECT_EQ(counts->done, expected);
  EXPECT_EQ(counts->stalled_at, -1);
  EXPECT_TRUE(logged("partition 0 of topic t is paused"));
  EXPECT_TRUE(logged("a key of topic t is paused"));
  EXPECT_FALSE(logged("\"3\"")) << "logs have no keys";
  resume({"t", 0});
  resume({"t", {}, "3"});
  EXPECT_TRUE(eventually([&] { return counts->done == 70 && all_committed("t", 2); })) << log_text();
}

TEST_F(PauseTest, of_other_topics_and_of_circuit_breakers_elsewhere_nothing_is_paused) {
  pause({"other"});
  pause({"t", {}, {}, "another group"}, 1h);
  publish("t", 10);
  run(test::kEffect | transactional());
  EXPECT_TRUE(eventually([&] { return counts->done == 10; })) << log_text();
  EXPECT_TRUE(app->status().pauses.empty());
}

TEST_F(PauseTest, a_pause_stays_and_ends_while_the_store_is_unavailable) {
  pause({"t"});
  publish("t", 10);
  run(Pipeline([](const Message&, Context&) {}));
  ASSERT_TRUE(eventually([&] { return app->status().pauses.size() == 1; })) << log_text();
  const auto fail = [] { throw StoreUnavailable("connection refused"); };
  store->fail(fail);
  const int asked = store->asked;
  ASSERT_TRUE(eventually([&] { return store->asked >= asked + 2; }));
  EXPECT_EQ(counts->done, 0);
  const std::string lines = log_text();
  EXPECT_THAT(lines, HasSubstr("code=pauses_unknown"));
  EXPECT_EQ(lines.find("pauses_unknown"), lines.rfind("pauses_unknown")) << "once";
  store->fail({});
  EXPECT_TRUE(eventually([&] { return logged("tells again what is paused"); }));
  pause({"t"}, 3s);
  ASSERT_TRUE(eventually([&] {
    const auto pauses = app->status().pauses;
    return pauses.empty() || pauses[0].until;
  }));
  store->fail(fail);
  EXPECT_TRUE(eventually([&] { return counts->done == 10; })) << log_text();
}

TEST_F(PauseTest, what_needs_the_store_waits_until_it_has_told_what_is_paused) {
  pause({"t"});
  publish("t", 10);
  store->fail([] { throw StoreUnavailable("connection refused"); });
  run(test::kEffect | transactional());
  ASSERT_TRUE(eventually([&] { return app->status().partitions.size() == 2; })) << log_text();
  ASSERT_TRUE(time_passes());
  EXPECT_EQ(counts->done, 0);
  store->fail({});
  ASSERT_TRUE(eventually([&] { return app->status().pauses.size() == 1; }));
  EXPECT_EQ(counts->done, 0);
  resume({"t"});
  EXPECT_TRUE(eventually([&] { return counts->done == 10; })) << log_text();
}

TEST_F(PauseTest, what_was_paused_during_an_outage_does_not_start_after_it) {
  run(test::kEffect | transactional());
  ASSERT_TRUE(eventually([&] { return app->status().partitions.size() == 2; })) << log_text();
  store->fail([] { throw StoreUnavailable("connection refused"); });
  ASSERT_TRUE(eventually([&] { return logged("code=pauses_unknown"); })) << log_text();
  ASSERT_TRUE(time_passes());  // until the partitions know it
  pause({"t"});
  publish("t", 10);
  ASSERT_TRUE(time_passes());
  EXPECT_EQ(counts->done, 0);
  store->fail({});
  ASSERT_TRUE(eventually([&] { return app->status().pauses.size() == 1; })) << log_text();
  ASSERT_TRUE(time_passes());
  EXPECT_EQ(counts->done, 0);
  resume({"t"});
  EXPECT_TRUE(eventually([&] { return counts->done == 10; })) << log_text();
}

TEST_F(PauseTest, without_a_right_on_the_table_nothing_is_paused) {
  pause({"t"});
  publish("t", 10);
  store->fail([] { throw std::runtime_error("permission denied for table pause"); });
  run(test::kEffect | transactional());
  EXPECT_TRUE(eventually([&] { return counts->done == 10; })) << log_text();
  EXPECT_THAT(log_text(), AllOf(HasSubstr("permission denied for table pause"), HasSubstr("code=pauses_unknown")));
}

TEST_F(PauseTest, a_consumer_that_needs_no_store_needs_no_table) {
  publish("t", 10);
  store->fail([] { throw SchemaError(Code::schema_outdated, "there is no table pause"); });
  run(Pipeline([](const Message&, Context&) {}));
  EXPECT_TRUE(eventually([&] { return counts->done == 10; })) << log_text();
  EXPECT_EQ(store->asked, 1);
  EXPECT_FALSE(logged("code=pauses_unknown"));
}

}  // namespace
}  // namespace turnstile
