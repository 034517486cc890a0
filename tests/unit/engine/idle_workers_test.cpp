// How idle workers wait, who of them receives records, and when the polling thread must do so.

#include "engine/idle_workers.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/support/eventually.hpp"

namespace turnstile::detail {
namespace {

using test::eventually;

/// Arrivals without a consumer.
class FakeArrivals final : public ports::Arrivals {
 public:
  bool wait(SteadyTime) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return arrived_ > 0 || wakes_ > 0; });
    const bool have_come = arrived_ > 0;
    --(have_come ? arrived_ : wakes_);
    return have_come;
  }
  void listen() noexcept override { ++listens; }
  void wake(std::size_t threads) noexcept override {
    const std::lock_guard lock(mutex_);
    wakes_ += threads;
    woken_ += threads;
    changed_.notify_all();
  }
  void come() {
    const std::lock_guard lock(mutex_);
    ++arrived_;
    changed_.notify_all();
  }
  std::size_t woken() {
    const std::lock_guard lock(mutex_);
    return woken_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t arrived_ = 0, wakes_ = 0, woken_ = 0;

 public:
  std::atomic<int> listens{0};
};

class IdleWorkersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    idle_.receive(arrivals_, [this] { feed_(); });
  }
  void TearDown() override {
    {
      const std::lock_guard lock(mutex_);
      idle_.wake_all();
    }
    for (auto& worker : workers_) worker.join();
  }
  template <class F>
  auto locked(F&& f) {
    const std::lock_guard lock(mutex_);
    return f();
  }
  /// Each waits once.
  void let_wait(std::size_t workers) {
    for (std::size_t i = 0; i < workers; ++i) {
      workers_.emplace_back([this] {
        std::unique_lock lock(mutex_);
        idle_.wait(lock, SteadyTime::max());
        ++returned_;
      });
    }
    ASSERT_TRUE(eventually([&] { return locked([&] { return idle_.count() == workers; }); }));
  }

  std::mutex mutex_;
  std::shared_ptr<FakeArrivals> arrivals_ = std::make_shared<FakeArrivals>();
  IdleWorkers idle_;
  std::function<void()> feed_ = [] {};
  std::vector<std::thread> workers_;
  int returned_ = 0;
};

TEST_F(IdleWorkersTest, the_worker_that_feeds_keeps_the_records_of_the_first_partition) {
  std::vector<std::size_t> woken;
  feed_ = [&] {
    for (int i = 0; i < 3; ++i) {
      const auto changes = locked([&] { return idle_.changes(); });
      locked([&] { idle_.wake_for_records(); });
      EXPECT_NE(locked([&] { return idle_.changes(); }), changes) << "others must look again";
      woken.push_back(arrivals_->woken());
    }
  };
  let_wait(3);
  arrivals_->come();
  EXPECT_TRUE(eventually([&] { return locked([&] { return returned_ == 3; }); }));
  EXPECT_EQ(woken, (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(arrivals_->listens, 1) << "the next records wake a worker again";
}

/// Otherwise the next records, which the polling thread feeds, would wake nobody.
TEST_F(IdleWorkersTest, a_worker_for_which_nothing_was_fed_expects_nothing_any_more) {
  let_wait(2);
  arrivals_->come();
  ASSERT_TRUE(eventually([&] { return locked([&] { return returned_ == 1; }); }));
  locked([&] { idle_.wake_for_records(); });
  EXPECT_EQ(arrivals_->woken(), 1U);
}

TEST_F(IdleWorkersTest, the_polling_thread_is_told_once_that_no_worker_waits) {
  EXPECT_TRUE(idle_.leave(false)) << "it receives records from the beginning";
  let_wait(2);
  arrivals_->come();
  ASSERT_TRUE(eventually([&] { return locked([&] { return returned_ == 1; }); }));
  EXPECT_TRUE(locked([&] { return idle_.leave(false); })) << "another worker waits";
  EXPECT_EQ(arrivals_->woken(), 0U);
  EXPECT_TRUE(locked([&] { return idle_.leave(true); }));
  EXPECT_EQ(arrivals_->woken(), 1U) << "it may find a unit, too";
  ASSERT_TRUE(eventually([&] { return locked([&] { return returned_ == 2; }); }));
  EXPECT_FALSE(locked([&] { return idle_.leave(false); }));
  EXPECT_TRUE(locked([&] { return idle_.leave(false); }));
  for (auto& worker : workers_) worker.join();
  workers_.clear();
  let_wait(1);
  arrivals_->come();
  ASSERT_TRUE(eventually([&] { return locked([&] { return returned_ == 3; }); }));
  EXPECT_FALSE(locked([&] { return idle_.leave(false); }));
}

TEST_F(IdleWorkersTest, all_are_woken_and_none_beside_them) {
  let_wait(3);
  locked([&] { idle_.wake_one(); });
  ASSERT_TRUE(eventually([&] { return locked([&] { return returned_ == 1; }); }));
  locked([&] { idle_.wake_all(); });
  ASSERT_TRUE(eventually([&] { return locked([&] { return returned_ == 3; }); }));
  EXPECT_EQ(arrivals_->woken(), 3U);
  locked([&] { idle_.wake_one(); });
  EXPECT_EQ(arrivals_->woken(), 3U) << "nobody waits";
}

}  // namespace
}  // namespace turnstile::detail
