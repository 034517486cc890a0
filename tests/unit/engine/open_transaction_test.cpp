// A partition whose records are hidden from consumers, because a producer's transaction is open, with the in-memory
// broker and store.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "tests/support/eventually.hpp"
#include "tests/support/forwarding_broker.hpp"
#include "tests/unit/engine/engine_log_changes_fixture.hpp"
#include "tests/unit/engine/poll_loop_fixture.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Offset kNone = std::numeric_limits<Offset>::max();

/// A producer's transaction in partition 0.
struct HidingTransaction {
  std::atomic<Offset> from{kNone};         ///< its first record; kNone: it has ended
  std::atomic<int> asked_for_log_ends{0};  ///< how often
};

/// Has isolation.level=read_committed.
class Committed final : public test::ForwardingConsumer {
 public:
  Committed(std::unique_ptr<ports::BrokerConsumer> inner, HidingTransaction& transaction)
      : ForwardingConsumer(std::move(inner)), transaction_(transaction) {}
  std::unique_ptr<ports::Block> take(const TopicPartition& from, std::size_t most) override {
    return transaction_.from == kNone ? ForwardingConsumer::take(from, most) : nullptr;
  }
  std::optional<Offset> read_up_to(const TopicPartition& of) override {
    return transaction_.from == kNone ? ForwardingConsumer::read_up_to(of) : std::nullopt;
  }
  std::vector<std::optional<std::pair<Offset, Offset>>> bounds(std::span<const TopicPartition> of,
                                                               std::chrono::milliseconds timeout) override {
    auto bounds = ForwardingConsumer::bounds(of, timeout);
    for (auto& known : bounds) {
      if (known) known->second = std::min(known->second, transaction_.from.load());
    }
    return bounds;
  }
  std::vector<std::optional<Offset>> log_ends(std::span<const TopicPartition> of,
                                              std::chrono::milliseconds timeout) override {
    ++transaction_.asked_for_log_ends;
    return ForwardingConsumer::log_ends(of, timeout);
  }
  std::vector<std::optional<ports::PartitionEnd>> ends(std::span<const TopicPartition> of,
                                                       std::chrono::milliseconds timeout) override {
    auto ends = ForwardingConsumer::ends(of, timeout);
    for (auto& known : ends) {
      if (known) known->readable = std::min(known->readable, transaction_.from.load());
    }
    return ends;
  }

 private:
  HidingTransaction& transaction_;
};

struct ReadBefore {
  const char* name;
  Pipeline (*over)(Pipeline);
};

class HangingTransaction : public test::EngineLogs {
 protected:
  void TearDown() override { stop(); }
  void run(Pipeline pipeline) {
    Config c = config();
    c.consumer.stall_after = 200ms;
    app = std::make_unique<Consumer>(c, Backends{kafka, inbox});
    app->topic("t", std::move(pipeline)).observe(counts).handle_signals(false).logger(logger);
    thread = start(*app);
  }
  void stop() {
    if (app) app->stop();
    if (thread.joinable()) thread.join();
  }
  PartitionStatus partition() const {
    const auto all = app->status().partitions;
    return all.empty() ? PartitionStatus{} : all.front();
  }

  const std::shared_ptr<test::ForwardingBroker<Committed, HidingTransaction>> kafka =
      std::make_shared<test::ForwardingBroker<Committed, HidingTransaction>>(broker);
  HidingTransaction& transaction = kafka->state;
  std::unique_ptr<Consumer> app;
  std::thread thread;
};

class OpenTransaction : public HangingTransaction, public ::testing::WithParamInterface<ReadBefore> {};

/// The first consumer had isolation.level=read_uncommitted, and the second one does not.
TEST_P(OpenTransaction, that_was_read_before_is_no_sign_that_records_were_cut_off) {
  topic("t", 1);
  produce(30, "m");
  run(noting(GetParam().over));
  ASSERT_TRUE(eventually([&] { return ran_all("m", 30) && broker->committed({"t", 0}) == 30; })) << log_text();
  stop();
  transaction.from = 10;
  run(noting(GetParam().over));
  ASSERT_TRUE(eventually([&] { return partition().end == 30 && partition().position == 30; })) << log_text();
  transaction.from = kNone;
  produce(31, "m", 30);
  ASSERT_TRUE(eventually([&] { return broker->committed({"t", 0}) == 31; })) << log_text();
  stop();
  EXPECT_EQ(ran().size(), 31U) << log_text();
  EXPECT_THAT(log_text(), Not(HasSubstr("cut off")));
}

/// A question with a client of its own would delay each rebalance.
TEST_P(OpenTransaction, is_not_looked_for_where_all_that_was_read_can_be_read) {
  topic("t", 1);
  produce(30, "m");
  run(noting(GetParam().over));
  ASSERT_TRUE(eventually([&] { return ran_all("m", 30) && broker->committed({"t", 0}) == 30; })) << log_text();
  stop();
  produce(31, "m", 30);
  transaction.from = 30;
  run(noting(GetParam().over));
  ASSERT_TRUE(eventually([&] { return partition().end == 31 && partition().position == 30; })) << log_text();
  EXPECT_EQ(transaction.asked_for_log_ends, 0);
}

INSTANTIATE_TEST_SUITE_P(Each, OpenTransaction,
                         ::testing::Values(ReadBefore{"ids", [](Pipeline p) { return std::move(p) | transactional(); }},
                                           ReadBefore{"by_offset",
                                                      [](Pipeline p) { return std::move(p) | by_offset(); }},
                                           ReadBefore{"leased", [](Pipeline p) { return std::move(p) | leased(5s); }}),
                         [](const auto& c) { return std::string(c.param.name); });

/// The loop reads with isolation.level=read_uncommitted, and the broker's settings are others.
struct OpenTransactionInLoop : test::PollLoopWatermark {
  std::unique_ptr<PollLoop> loop() {
    auto loop = std::make_unique<PollLoop>(Config{}, Backends{kafka, inbox});
    loop->topic("t", insert() | by_offset()).logger(logger);
    return loop;
  }
  const std::shared_ptr<test::ForwardingBroker<Committed, HidingTransaction>> kafka =
      std::make_shared<test::ForwardingBroker<Committed, HidingTransaction>>(broker);
};

TEST_F(OpenTransactionInLoop, is_no_sign_of_another_log_where_its_records_were_handled) {
  const auto first = loop();
  for (Offset offset = 0; offset < 12; ++offset) EXPECT_EQ(handle(*first, offset), Settled::done) << offset;
  first->revoked(at);
  kafka->state.from = 3;
  const auto next = loop();
  for (Offset offset = 2; offset < 12; ++offset) EXPECT_EQ(handle(*next, offset), Settled::duplicate) << offset;
  EXPECT_THAT(log_text(), Not(HasSubstr("recreated")));
}

TEST_F(HangingTransaction, is_reported_with_what_to_do_until_it_ends) {
  topic("t", 1);
  produce(4, "m");
  run(test::kEffect | transactional());
  ASSERT_TRUE(eventually([&] { return broker->committed({"t", 0}) == 4; })) << log_text();
  transaction.from = 4;
  produce(504, "m", 4);
  ASSERT_TRUE(eventually([&] { return !app->health().problems.empty(); })) << log_text();
  const auto problem = app->health().problems.front();
  EXPECT_EQ(problem.at, (TopicPartition{"t", 0}));
  EXPECT_THAT(problem.reason,
              HasSubstr("a producer's transaction that began at offset 4 is open and hides 500 offsets"));
  EXPECT_THAT(problem.reason, HasSubstr("describe-producers --topic t --partition 0"));
  EXPECT_THAT(problem.reason, HasSubstr("abort --topic t --partition 0 --start-offset 4"));
  EXPECT_EQ(partition().lag(), 500);
  EXPECT_TRUE(eventually([&] { return log_text().find("code=partition_stalled") != std::string::npos; })) << log_text();
  EXPECT_THAT(log_text(), HasSubstr("consumers get no record from there on before it ends"));
  transaction.from = kNone;
  EXPECT_TRUE(broker->wait_committed({{"t", 0}, 504}, 20s));
  EXPECT_TRUE(eventually([&] { return app->health().problems.empty() && partition().lag() == 0; })) << log_text();
}

}  // namespace
}  // namespace turnstile
