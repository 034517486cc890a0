// What counts as an attempt, and how often handlers run because of others.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "tests/support/eventually.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/testing/inbox.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::detail {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using ::testing::ElementsAre;
using testing::MemoryBroker;
using testing::MemoryInbox;

class Reruns final : public Observer {
 public:
  void on_batch(const BatchReport& report) noexcept override { counted += report.rerun; }
  std::atomic<std::int64_t> counted{0};
};

/// Twenty messages in one batch, of which some always fail.
class Batch {
 public:
  explicit Batch(std::set<Offset> failing) : failing_(std::move(failing)) {
    broker_->create_topic("t", 1);
    broker_->create_topic("t.dlq", 1);
    for (int i = 0; i < kMessages; ++i) {
      OwnedMessage message;
      message.topic = "t";
      message.partition = 0;
      message.headers = {{"message-id", std::to_string(i)}};
      broker_->produce(message);
    }
  }
  void run(const Pipeline& pipeline) {
    Config config;
    config.consumer.commit_interval = 20ms;
    Consumer app(config, Backends{broker_, inbox});
    auto quiet = std::make_shared<spdlog::logger>("quiet", std::make_shared<spdlog::sinks::null_sink_mt>());
    app.topic("t", pipeline | batch(kMessages) | retry(exponential{1ms, kAttempts, 1ms}) | dead_letter())
        .handle_signals(false)
        .observe(reruns)
        .logger(quiet);
    std::thread thread([&] { app.run(); });
    EXPECT_TRUE(eventually([&] { return broker_->committed({"t", 0}) == kMessages; }));
    app.stop();
    thread.join();
  }
  /// A handler of one message at a time.
  void operator()(const Message& message, const Context& context) {
    {
      const std::lock_guard lock(mutex_);
      starts[message.offset()].push_back(context.attempt());
    }
    if (failing_.contains(message.offset())) throw std::runtime_error("told to fail");
  }
  [[nodiscard]] std::int64_t most_starts_of_good_ones() const {
    std::size_t most = 0;
    for (const auto& [offset, all] : starts) most = failing_.contains(offset) ? most : std::max(most, all.size());
    return static_cast<std::int64_t>(most);
  }
  [[nodiscard]] std::int64_t reruns_of_good_ones() const {
    std::int64_t sum = 0;
    for (const auto& [offset, all] : starts)
      sum += failing_.contains(offset) ? 0 : static_cast<std::int64_t>(all.size()) - 1;
    return sum;
  }
  [[nodiscard]] std::size_t dead() const { return broker_->records("t.dlq").size(); }

  static constexpr int kMessages = 20;
  static constexpr int kAttempts = 4;
  std::map<Offset, std::vector<int>> starts;  ///< with their attempt numbers
  std::shared_ptr<Reruns> reruns = std::make_shared<Reruns>();
  std::shared_ptr<MemoryInbox> inbox = std::make_shared<MemoryInbox>();

 private:
  const std::set<Offset> failing_;
  std::mutex mutex_;
  std::shared_ptr<MemoryBroker> broker_ = std::make_shared<MemoryBroker>();
};

TEST(Attempts, count_how_often_a_message_failed_by_itself) {
  Batch batch({13});
  batch.run([&](const Message& message, Context& context) { batch(message, context); } | transactional());
  // Once in the batch, which does not count; then alone, as often as it may fail.
  EXPECT_THAT(batch.starts[13], ElementsAre(1, 1, 2, 3, 4));
  EXPECT_EQ(batch.dead(), 1U);
  EXPECT_LE(batch.most_starts_of_good_ones(), 2);
  EXPECT_EQ(batch.reruns->counted, batch.reruns_of_good_ones());
}

TEST(Attempts, of_many_that_fail_in_one_batch_do_not_multiply_the_runs_of_the_others) {
  std::set<Offset> failing;
  for (Offset offset = 1; offset < Batch::kMessages; offset += 2) failing.insert(offset);
  Batch batch(failing);
  batch.run([&](const Message& message, Context& context) { batch(message, context); } | transactional());
  EXPECT_EQ(batch.dead(), failing.size());
  EXPECT_LE(batch.most_starts_of_good_ones(), 4);
  for (const Offset offset : failing) EXPECT_LE(batch.starts[offset].size(), Batch::kAttempts + 3U) << offset;
}

/// Where all run before it is known that one has failed.
TEST(Attempts, of_deferred_statements_do_not_multiply_the_runs_of_the_others) {
  std::set<Offset> failing;
  for (Offset offset = 0; offset < Batch::kMessages; offset += 2) failing.insert(offset);
  Batch batch(failing);
  batch.inbox->fail("INSERT INTO nowhere", "42P01");
  batch.run([&](const Message& message, Context& context) {
    try {
      batch(message, context);
    } catch (const std::exception&) {
      context.defer("INSERT INTO nowhere");
    }
  } | transactional());
  EXPECT_EQ(batch.dead(), failing.size());
  EXPECT_LE(batch.most_starts_of_good_ones(), 4);
}

TEST(Attempts, count_the_same_where_a_handler_takes_several_messages) {
  Batch batch({13});
  batch.run([&](std::span<const Message> messages, Context& context) {
    for (const Message& message : messages) batch(message, context);
  } | transactional());
  EXPECT_EQ(batch.dead(), 1U);
  EXPECT_EQ(batch.starts[13].back(), Batch::kAttempts);
  // Halves of twenty: 20, 10, 5, 3, 2, 1.
  EXPECT_LE(batch.most_starts_of_good_ones(), 6);
}

TEST(Attempts, count_the_same_in_mode_leased) {
  Batch batch({13});
  batch.run([&](const Message& message, Context& context) { batch(message, context); } | leased(5s));
  EXPECT_THAT(batch.starts[13], ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(batch.most_starts_of_good_ones(), 1);
  EXPECT_EQ(batch.reruns->counted, 0);
}

}  // namespace
}  // namespace turnstile::detail
