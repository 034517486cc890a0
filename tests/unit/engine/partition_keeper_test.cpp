// What the keeper does besides the polling thread: late claims, and a watchdog that no store can hold up.

#include "engine/partition_keeper.hpp"

#include <gtest/gtest.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <string>

#include "tests/support/eventually.hpp"
#include "tests/support/forwarding_store.hpp"
#include "turnstile/decorators.hpp"
#include "turnstile/testing/inbox.hpp"

namespace turnstile::detail {
namespace {

using namespace std::chrono_literals;
using test::eventually;

/// A database that hangs: claims and watermarks wait until the test releases them.
class HangingStore final : public test::ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  std::vector<ports::PartitionClaim> claim_partitions(const std::string& group,
                                                      std::span<const TopicPartition> partitions,
                                                      const ports::ClaimWait& wait) override {
    hang();
    return ForwardingStore::claim_partitions(group, partitions, wait);
  }
  void go_on() {
    const std::lock_guard lock(mutex_);
    goes_on_ = true;
    changed_.notify_all();
  }
  int calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  void hang() {
    std::unique_lock lock(mutex_);
    ++calls_;
    changed_.wait_for(lock, 30s, [this] { return goes_on_; });
  }
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool goes_on_ = false;
  int calls_ = 0;
};

class KeeperTest : public ::testing::Test {
 protected:
  KeeperTest() {
    TopicRunner::Services services;
    services.store = store_;
    services.run_log = run_log_;
    TopicSettings settings;
    settings.mode = Mode::transactional;
    settings.handler_timeout = 100ms;
    topic_ = std::make_unique<TopicState>(
        plan_topic("t", settings), [](const Message&) {} | transactional(), store_->register_handler("t"), services,
        nullptr);
    lane_ = std::make_shared<LaneState>(*topic_, OwnedPartition{.at = {"t", 0}, .fence = {}});
    lane_->phase = LaneState::Phase::claiming;
    scheduler_.open(lane_);
    PartitionKeeper::Calls calls;
    calls.claimed = [this](const LanePtr&, const ports::PartitionClaim&) { ++claimed_; };
    keeper_ = std::make_unique<PartitionKeeper>(PartitionKeeper::Settings{.group = "g", .stall_after = 200ms},
                                                scheduler_, store_, run_log_, std::move(calls));
  }
  ~KeeperTest() override { store_->go_on(); }
  [[nodiscard]] std::string log() const {
    std::string text;
    for (const auto& line : lines_->last_formatted()) text += line;
    return text;
  }

  const std::shared_ptr<testing::MemoryInbox> memory_ = std::make_shared<testing::MemoryInbox>();
  const std::shared_ptr<HangingStore> store_ = std::make_shared<HangingStore>(memory_);
  const std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> lines_ =
      std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(100);
  const std::shared_ptr<RunLog> run_log_ =
      std::make_shared<RunLog>(std::make_shared<spdlog::logger>("test", lines_), "test");
  Scheduler scheduler_{Window{}, run_log_, [] {}};
  std::unique_ptr<TopicState> topic_;
  LanePtr lane_;
  std::atomic<int> claimed_{0};
  std::unique_ptr<PartitionKeeper> keeper_;
};

// If the partition were released before the claim's answer, the late claim would raise the epoch above that of the next
// owner.
TEST_F(KeeperTest, a_partition_is_not_let_go_while_its_claim_is_under_way) {
  ASSERT_TRUE(eventually([&] { return store_->calls() == 1; }));
  scheduler_.drain({&lane_, 1}, std::chrono::steady_clock::now(), [] { return false; });
  auto let_go = std::async(std::launch::async, [&] { keeper_->await_claims({&lane_, 1}); });
  EXPECT_EQ(let_go.wait_for(300ms), std::future_status::timeout);
  store_->go_on();
  ASSERT_EQ(let_go.wait_for(20s), std::future_status::ready);
  // No other claim follows if the keeper is not claiming again.
  scheduler_.locked([&] { lane_->claim_at = {}; });
  EXPECT_FALSE(eventually([&] { return store_->calls() > 1; }, 800ms));
}

TEST_F(KeeperTest, the_watchdog_speaks_while_the_store_hangs) {
  ASSERT_TRUE(eventually([&] { return store_->calls() == 1; }));
  ASSERT_TRUE(eventually([&] { return log().find("no progress for") != std::string::npos; })) << log();
  WorkerSlot& slot = scheduler_.add_worker();
  scheduler_.locked([&] { slot.lanes = {lane_}; });
  OwnedMessage owned;
  owned.topic = "t";
  const auto token = slot.watch.start(Message(owned));
  EXPECT_TRUE(eventually([&] { return token.stop_requested(); })) << log();
  slot.watch.finish();
  scheduler_.locked([&] { slot.lanes.clear(); });
}

}  // namespace
}  // namespace turnstile::detail
