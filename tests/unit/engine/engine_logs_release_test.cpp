// A consumer that releases a partition before it has begun to read the other log that Kafka has under its name.

#include "tests/support/forwarding_store.hpp"
#include "tests/unit/engine/engine_logs_fixture.hpp"
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

/// Refuses one call: the second claim, which is that of the new log, or the record of what begins under it.
class RefusesOnce final : public ForwardingStore {
 public:
  RefusesOnce(std::shared_ptr<ports::Store> inner, bool the_claim)
      : ForwardingStore(std::move(inner)), the_claim_(the_claim) {}
  std::vector<ports::PartitionClaim> claim_partitions(const std::string& group,
                                                      std::span<const TopicPartition> partitions,
                                                      std::chrono::milliseconds lock_timeout) override {
    if (++claims_ == 2 && the_claim_ && !refused.exchange(true)) throw StoreBusy("another session holds the lock");
    return ForwardingStore::claim_partitions(group, partitions, lock_timeout);
  }
  std::int32_t begin_incarnation(const Fence& fence, Offset first, std::int32_t at_least) override {
    if (!the_claim_ && !refused.exchange(true)) throw StoreBusy("another session holds the lock");
    return ForwardingStore::begin_incarnation(fence, first, at_least);
  }
  std::atomic<bool> refused{false};

 private:
  const bool the_claim_;
  std::atomic<int> claims_{0};
};

class UnclaimedLog : public EngineLogs, public ::testing::WithParamInterface<bool> {
 protected:
  /// A consumer reads 30 records, finds another log, cannot claim it or begin it, and ends. Starts the next one.
  void leave(const std::function<void()>& change) {
    topic("t", 1);
    produce(30, "m");
    const auto store = std::make_shared<RefusesOnce>(inbox, GetParam());
    Consumer app(config(), Backends{broker, store});
    app.topic("t", noting(by_place)).handle_signals(false).logger(logger);
    auto thread = start(app);
    ASSERT_TRUE(eventually([&] { return ran_all("m", 30) && all_committed("t", 1); })) << log_text();
    change();
    ASSERT_TRUE(eventually([&] { return store->refused.load(); }, 20s)) << log_text();
    app.stop();
    thread.join();
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

INSTANTIATE_TEST_SUITE_P(Refuses, UnclaimedLog, ::testing::Bool());

}  // namespace
}  // namespace turnstile
