// A consumer that releases a partition before it has begun to read the other log that Kafka has under its name.

#include "tests/support/forwarding_store.hpp"
#include "tests/unit/engine/engine_log_changes_fixture.hpp"
#include "turnstile/error.hpp"

namespace turnstile {
namespace {

using namespace test;
using ::testing::HasSubstr;

class ReleasedLog : public EngineLogs, public ::testing::WithParamInterface<Pipeline (*)(Pipeline)> {};

/// The message that runs when the process finds the cut takes effect before the partition is released, and is below the
/// cut: the next owner must not run it again.
TEST_P(ReleasedLog, has_what_took_effect_since_the_last_watermark) {
  produce_and_hold_the_sixth();
  auto app = consumer("t", noting(GetParam()) | batch(1), config());
  auto thread = start(*app);
  ASSERT_NO_FATAL_FAILURE(cut_off_while_the_sixth_runs());
  app->stop();
  ASSERT_TRUE(eventually([&] { return log_text().find("stopping: ") != std::string::npos; }));
  door.open();
  thread.join();
  const TopicPartition at{"t", 0};
  EXPECT_THAT(broker->open_consumer()->committed({&at, 1}, 1s).front()->metadata, HasSubstr("turnstile:0@0,1@"))
      << "where the new log begins";
  auto next = consumer("t", noting(GetParam()), config());
  thread = start(*next);
  EXPECT_TRUE(eventually([&] { return ran_all("m", 20) && ran_all("instead-", 40, 20); }, 10s)) << log_text();
  next->stop();
  thread.join();
  EXPECT_EQ(ran().size(), 40U) << "m5 ran " << ran().count("m5") << " times" << log_text();
}

INSTANTIATE_TEST_SUITE_P(
    Each, ReleasedLog,
    ::testing::Values([](Pipeline p) { return std::move(p) | transactional() | id_from("offset"); },
                      [](Pipeline p) { return std::move(p) | by_offset(); }));

/// Kafka does not answer whether the topic is still the same.
TEST_F(EngineLogs, a_released_partition_commits_no_offset_that_may_belong_to_another_topic) {
  topic("t", 1);
  produce(30, "m");
  auto app = consumer("t", noting([](Pipeline p) { return std::move(p) | by_offset(); }), config());
  auto thread = start(*app);
  ASSERT_TRUE(eventually([&] { return ran_all("m", 30) && all_committed("t", 1); })) << log_text();
  broker->refuse_lookups(true);
  produce(40, "m", 30);
  ASSERT_TRUE(eventually([&] { return ran_all("m", 40); })) << log_text();
  app->stop();
  thread.join();
  EXPECT_EQ(broker->committed({"t", 0}), 30);
}

/// Writes no watermark from some time on.
class KeepsWatermark final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  std::vector<ports::WatermarkState> advance_watermarks(std::span<const ports::WatermarkUpdate> updates) override {
    if (keeps) throw StoreBusy("another session holds the lock");
    return ForwardingStore::advance_watermarks(updates);
  }
  std::atomic<bool> keeps{false};
};

TEST_P(ReleasedLog, runs_nothing_twice_whose_watermark_could_not_be_written) {
  produce_and_hold_the_sixth();
  const auto store = std::make_shared<KeepsWatermark>(inbox);
  Consumer app(config(), Backends{broker, store});
  app.topic("t", noting(GetParam()) | batch(1) | ordered_by(Order::partition)).handle_signals(false).logger(logger);
  auto thread = start(app);
  ASSERT_NO_FATAL_FAILURE(cut_off_while_the_sixth_runs());
  store->keeps = true;
  door.open();
  EXPECT_TRUE(eventually([&] { return ran_all("m", 20) && ran_all("instead-", 40, 20); }, 10s)) << log_text();
  app.stop();
  thread.join();
  EXPECT_EQ(ran().size(), 40U) << log_text();
}

/// Holds up the first watermark that is written.
class HoldsWatermark final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  std::vector<ports::WatermarkState> advance_watermarks(std::span<const ports::WatermarkUpdate> updates) override {
    if (!held.exchange(true)) {
      door.wait();
      written = true;
    }
    return ForwardingStore::advance_watermarks(updates);
  }
  std::int32_t begin_incarnation(const Fence& fence, Offset first, std::int32_t at_least) override {
    if (!written) begun_before = true;
    return ForwardingStore::begin_incarnation(fence, first, at_least);
  }
  Door door;
  std::atomic<bool> held{false}, written{false}, begun_before{false};
};

/// Otherwise the old log's watermark would be written into the new log, under the same fence.
TEST_F(EngineLogs, a_log_does_not_begin_while_a_watermark_of_the_old_one_is_written) {
  produce_and_hold_the_sixth();
  const auto store = std::make_shared<HoldsWatermark>(inbox);
  Consumer app(config(), Backends{broker, store});
  app.topic("t", noting([](Pipeline p) { return std::move(p) | by_offset(); }) | batch(1));
  app.handle_signals(false).logger(logger);
  auto thread = start(app);
  EXPECT_TRUE(eventually([&] { return store->held.load(); })) << log_text();
  cut_off_while_the_sixth_runs();
  app.stop();
  EXPECT_TRUE(eventually([&] { return log_text().find("stopping: ") != std::string::npos; }));
  door.open();
  EXPECT_FALSE(eventually([&] { return store->begun_before.load(); }, 500ms));
  store->door.open();
  thread.join();
  EXPECT_FALSE(store->begun_before);
}

enum class Fails : std::uint8_t {
  claim,  ///< the second claim, which is that of the new log
  begin,  ///< the record of what begins under it
  answer  ///< only the answer to that: the store has recorded it
};

/// Fails one call.
class FailsOnce final : public ForwardingStore {
 public:
  FailsOnce(std::shared_ptr<ports::Store> inner, Fails what) : ForwardingStore(std::move(inner)), what_(what) {}
  std::vector<ports::PartitionClaim> claim_partitions(const std::string& group,
                                                      std::span<const TopicPartition> partitions,
                                                      const ports::ClaimWait& wait) override {
    if (++claims_ == 2 && what_ == Fails::claim && !failed.exchange(true))
      throw StoreBusy("another session holds the lock");
    return ForwardingStore::claim_partitions(group, partitions, wait);
  }
  std::int32_t begin_incarnation(const Fence& fence, Offset first, std::int32_t at_least) override {
    if (what_ == Fails::begin && !failed.exchange(true)) throw StoreBusy("another session holds the lock");
    const std::int32_t begun = ForwardingStore::begin_incarnation(fence, first, at_least);
    if (what_ == Fails::answer && !failed.exchange(true)) throw StoreUnavailable("the answer was lost");
    return begun;
  }
  std::atomic<bool> failed{false};

 private:
  const Fails what_;
  std::atomic<int> claims_{0};
};

class UnclaimedLog : public EngineLogs, public ::testing::WithParamInterface<Fails> {
 protected:
  /// A consumer reads 30 records, finds another log, cannot claim it or begin it, and ends. Starts the next one.
  /// `after`: happens in between.
  void leave(
      const std::function<void()>& change, const std::function<void()>& after = [] {}) {
    topic("t", 1);
    produce(30, "m");
    const auto store = std::make_shared<FailsOnce>(inbox, GetParam());
    Consumer app(config(), Backends{broker, store});
    app.topic("t", noting(by_place)).handle_signals(false).logger(logger);
    auto thread = start(app);
    ASSERT_TRUE(eventually([&] { return ran_all("m", 30) && all_committed("t", 1); })) << log_text();
    change();
    ASSERT_TRUE(eventually([&] { return store->failed.load(); }, 20s)) << log_text();
    app.stop();
    thread.join();
    after();
    next_ = consumer("t", noting(by_place), config());
    thread_ = start(*next_);
  }
  void TearDown() override {
    if (next_) next_->stop();
    if (thread_.joinable()) thread_.join();
  }
  static Pipeline by_place(Pipeline p) { return std::move(p) | by_offset(); }

 private:
  std::unique_ptr<Consumer> next_;
  std::thread thread_;
};

/// Only the process that ended knew of it: the group has no offset any more, and the new log is longer than the old
/// watermark.
TEST_P(UnclaimedLog, of_a_recreated_topic_is_read_by_the_next_owner) {
  leave([&] { replace(100); });
  EXPECT_TRUE(eventually([&] { return ran_all("another-", 100); }, 10s)) << ran().size() << log_text();
}

TEST_P(UnclaimedLog, that_was_cut_off_is_read_by_the_next_owner) {
  leave([&] {
    broker->truncate({{"t", 0}, 28});
    produce(40, "instead-", 28);
  });
  EXPECT_TRUE(eventually([&] { return ran_all("instead-", 40, 28); }, 10s)) << ran().size() << log_text();
}

/// It is still shorter than what the group had committed of the old one.
TEST_P(UnclaimedLog, that_was_cut_off_and_is_short_is_read_by_the_next_owner) {
  const auto cut_off = [&] {
    broker->truncate({{"t", 0}, 20});
    produce(25, "instead-", 20);
  };
  leave(cut_off, [&] { produce(28, "instead-", 25); });
  EXPECT_TRUE(eventually([&] { return ran_all("instead-", 28, 20); }, 10s)) << ran().size() << log_text();
  EXPECT_EQ(ran().size(), 38U) << "nothing runs twice" << log_text();
}

INSTANTIATE_TEST_SUITE_P(Each, UnclaimedLog, ::testing::Values(Fails::claim, Fails::begin, Fails::answer));

/// Claims nothing while it is busy, but for a process that ends.
class BusyUntilTheEnd final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  std::vector<ports::PartitionClaim> claim_partitions(const std::string& group,
                                                      std::span<const TopicPartition> partitions,
                                                      const ports::ClaimWait& wait) override {
    if (busy && !ends()) throw StoreBusy("another session holds the lock");
    return ForwardingStore::claim_partitions(group, partitions, wait);
  }
  std::atomic<bool> busy{false};
  std::function<bool()> ends;
};

/// Only Kafka's offset tells the next owner which messages are in doubt.
TEST_F(EngineLogs, of_a_log_that_the_store_has_forgotten_the_groups_offset_stays) {
  topic("t", 1);
  produce(10, "m");
  const auto store = std::make_shared<BusyUntilTheEnd>(inbox);
  store->ends = [this] { return log_text().find("stopping: ") != std::string::npos; };
  Consumer app(config(), Backends{broker, store});
  app.topic("t", noting([](Pipeline p) { return std::move(p) | leased(); })).handle_signals(false).logger(logger);
  auto thread = start(app);
  ASSERT_TRUE(eventually([&] { return inbox->watermark(1) == 10; })) << log_text();
  const auto replica = inbox->replica();
  produce(30, "m", 10);
  ASSERT_TRUE(eventually([&] { return broker->committed({"t", 0}) == 30; })) << log_text();
  broker->truncate({{"t", 0}, 28});
  produce(40, "new-", 28);
  ASSERT_TRUE(eventually([&] { return ran_all("new-", 40, 28) && broker->committed({"t", 0}) == 40; })) << log_text();
  store->busy = true;
  broker->truncate({{"t", 0}, 39});
  produce(45, "third-", 39);
  const auto doubts = [&] {
    const std::string log = log_text(), sign = "Kafka may have another topic";
    return log.find(sign, log.find(sign) + 1) != std::string::npos;
  };
  ASSERT_TRUE(eventually(doubts)) << log_text();
  inbox->fail_over(replica);
  app.stop();
  thread.join();
  EXPECT_EQ(broker->committed({"t", 0}), 40) << log_text();
}

/// Kafka refuses the offsets of the log that a process has begun. So the group's offset belongs to the old log, and the
/// process that takes over has not seen that log.
class UncommittedLog : public EngineLogs, public ::testing::WithParamInterface<Pipeline (*)(Pipeline)> {
 protected:
  void SetUp() override { topic("t", 1); }
  /// A consumer runs 30 messages, of which Kafka takes the offsets up to `committed`. It begins the log that is cut off
  /// at `end`, and runs its records up to `to`. Then it ends.
  void begin_log(int committed, int end, int to) {
    produce(committed, "m");
    start_next();
    ASSERT_TRUE(eventually([&] { return broker->committed({"t", 0}) == committed; })) << log_text();
    broker->refuse_commits(100'000);
    produce(30, "m", committed);
    ASSERT_TRUE(eventually([&] { return ran_all("m", 30) && inbox->watermark(1) == 30; })) << log_text();
    broker->truncate({{"t", 0}, end});
    produce(to, "instead-", end);
    ASSERT_TRUE(eventually([&] { return ran_all("instead-", to, end); }, 10s)) << log_text();
    stop();
    broker->refuse_commits(0);
    ASSERT_EQ(broker->committed({"t", 0}), committed);
  }
  void start_next() {
    app_ = consumer("t", noting(GetParam()), config());
    thread_ = start(*app_);
  }
  void stop() {
    if (!thread_.joinable()) return;
    app_->stop();
    thread_.join();
  }
  void TearDown() override { stop(); }

 private:
  std::unique_ptr<Consumer> app_;
  std::thread thread_;
};

TEST_P(UncommittedLog, is_read_from_its_watermark_where_it_ends_below_the_groups_offset) {
  ASSERT_NO_FATAL_FAILURE(begin_log(30, 20, 22));
  produce(27, "instead-", 22);
  start_next();
  EXPECT_TRUE(eventually(
      [&] {
        return ran_all("instead-", 27, 20) && broker->committed({"t", 0}) == 27;
      },
      10s))
      << log_text();
  stop();
  EXPECT_EQ(ran().size(), 37U) << "nothing runs twice" << log_text();
}

TEST_P(UncommittedLog, is_read_from_its_watermark_where_the_groups_offset_is_lower) {
  ASSERT_NO_FATAL_FAILURE(begin_log(10, 28, 40));
  produce(45, "instead-", 40);
  start_next();
  EXPECT_TRUE(eventually(
      [&] {
        return ran_all("instead-", 45, 28) && broker->committed({"t", 0}) == 45;
      },
      10s))
      << log_text();
  stop();
  EXPECT_EQ(ran().size(), 47U) << "nothing runs twice" << log_text();
}

INSTANTIATE_TEST_SUITE_P(
    Each, UncommittedLog,
    ::testing::Values([](Pipeline p) { return std::move(p) | transactional() | id_from("offset"); },
                      [](Pipeline p) { return std::move(p) | by_offset(); },
                      [](Pipeline p) { return std::move(p) | leased() | id_from("offset"); }));

}  // namespace
}  // namespace turnstile
