// Permits are lost at their deadline, also while the domain's thread stands in a call.

#include "permits/loss_watch.hpp"

#include <gtest/gtest.h>

#include <future>

#include "tests/unit/permits/token_domain_fixture.hpp"
#include "turnstile/log.hpp"

namespace turnstile::detail {
namespace {

using test::eventually;

/// A log whose next call stands still as soon as the log is away, as Kafka's client does.
class Stuck final : public ports::TokenLog {
 public:
  Stuck(std::shared_ptr<testing::MemoryTokenTopic> topic, std::shared_future<void> released)
      : topic_(topic), log_(topic), released_(std::move(released)) {}
  std::optional<Snapshot> snapshot(std::int64_t before) override { return log_.snapshot(before); }
  std::int64_t begin() override { return log_.begin(); }
  std::int64_t end() override { return log_.end(); }
  void seek(std::int64_t position) override { log_.seek(position); }
  std::vector<Record> read(std::chrono::milliseconds timeout) override { return log_.read(timeout); }
  void append(std::string bytes) override { log_.append(std::move(bytes)); }
  bool failed() override {
    if (topic_->is_away()) released_.wait();
    return log_.failed();
  }
  [[nodiscard]] std::string why_failed() const override { return log_.why_failed(); }
  void save(std::int64_t position, std::string snapshot) override { log_.save(position, std::move(snapshot)); }
  [[nodiscard]] std::int64_t saved() const override { return log_.saved(); }
  void trim(std::int64_t below) override { log_.trim(below); }
  void wake() noexcept override { log_.wake(); }
  void flush(std::chrono::milliseconds timeout) override { log_.flush(timeout); }
  [[nodiscard]] std::string name() const override { return log_.name(); }

 private:
  const std::shared_ptr<testing::MemoryTokenTopic> topic_;
  testing::MemoryTokenLog log_;
  const std::shared_future<void> released_;
};

TEST(LossWatch, tells_the_users_of_permits_while_a_call_of_the_domains_thread_hangs) {
  test::Cluster cluster;
  std::promise<void> released;
  const auto domain = join_token_domain(std::make_unique<Stuck>(cluster.topic, released.get_future().share()),
                                        cluster.settings, cluster.quiet);
  ASSERT_TRUE(domain->wait_until_joined(std::chrono::seconds(20)));
  const auto psp = domain->open("psp", 2);
  const auto held = test::take_all(*psp, 2);
  cluster.topic->away(true);
  EXPECT_TRUE(eventually([&] { return held.front().lost().stop_requested(); }));
  EXPECT_FALSE(held.front().holds());
  released.set_value();
}

class LossWatchByHand : public ::testing::Test {
 protected:
  LossWatchByHand() {
    pool_->order({.kind = tokens::Order::Kind::open, .limiter = "psp", .total = 1});
    pool_->open_until(1'000);
    watch_->watch({{.name = "psp", .pool = pool_}});
  }

  tokens::Micros now_ = 1;
  const std::shared_ptr<PermitPool> pool_ = std::make_shared<PermitPool>([this] { return now_; }, [] {});
  const std::shared_ptr<LossWatch> watch_ = std::make_shared<LossWatch>([this] { return now_; });
};

TEST_F(LossWatchByHand, acts_once_on_the_last_deadline) {
  const auto taken = pool_->try_take(1);
  watch_->extend(100);
  watch_->extend(200);
  watch_->extend(150);
  EXPECT_EQ(watch_->held_until(), 200);
  now_ = 199;
  watch_->look();
  EXPECT_FALSE(taken.lost.stop_requested());
  now_ = 200;
  watch_->look();
  EXPECT_TRUE(taken.lost.stop_requested());
  watch_->extend(200);
  EXPECT_EQ(watch_->held_until(), 0) << "it was acted on";
  watch_->extend(201);
  EXPECT_EQ(watch_->held_until(), 201);
}

TEST_F(LossWatchByHand, ends_reserves_at_their_own_deadline) {
  now_ = 1'000;
  pool_->reserve(1);
  pool_->reserve_until(2'000);
  watch_->extend(1'500);
  watch_->reserve_until(2'000);
  const auto taken = pool_->try_take(1);
  ASSERT_TRUE(taken);
  now_ = 1'999;
  watch_->look();
  EXPECT_FALSE(taken.lost.stop_requested());
  now_ = 2'000;
  watch_->look();
  EXPECT_TRUE(taken.lost.stop_requested());
}

}  // namespace
}  // namespace turnstile::detail
