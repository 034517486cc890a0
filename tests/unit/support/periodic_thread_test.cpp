// When a periodic thread runs its step, and how it ends.

#include "support/periodic_thread.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace turnstile::detail {
namespace {

using namespace std::chrono_literals;

/// Counts the steps. A test can hold one of them.
class Steps {
 public:
  /// Call it from the step.
  void ran() {
    std::unique_lock lock(mutex_);
    ++begun_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !held_; });
    ++ended_;
    changed_.notify_all();
  }
  bool has_begun(int count) { return reaches(begun_, count); }
  bool has_ended(int count) { return reaches(ended_, count); }
  /// The next steps do not end until let_go().
  void hold() {
    const std::lock_guard lock(mutex_);
    held_ = true;
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }
  int begun() {
    const std::lock_guard lock(mutex_);
    return begun_;
  }
  int ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

 private:
  bool reaches(const int& value, int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 30s, [&] { return value >= count; });
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  int begun_ = 0, ended_ = 0;
  bool held_ = false;
};

class PeriodicThreadTest : public ::testing::Test {
 protected:
  PeriodicThread::Step then(std::function<PeriodicThread::Time()> next) {
    return [this, next = std::move(next)] {
      steps.ran();
      return next();
    };
  }
  static PeriodicThread::Time never() { return PeriodicThread::kWhenWoken; }
  Steps steps;
};

TEST_F(PeriodicThreadTest, the_step_runs_again_when_it_has_asked_for_it) {
  PeriodicThread thread(then([] { return PeriodicThread::after(1ms); }));
  thread.start();
  EXPECT_TRUE(steps.has_ended(3));
}

TEST_F(PeriodicThreadTest, no_step_runs_before_its_time) {
  std::optional<PeriodicThread::Time> asked;
  std::atomic<bool> too_early{false};
  PeriodicThread thread(then([&] {
    const auto now = std::chrono::steady_clock::now();
    if (asked && now < *asked) too_early = true;
    asked = PeriodicThread::after(5ms);
    return *asked;
  }));
  const auto first = PeriodicThread::after(5ms);
  asked = first;
  thread.start(first);
  EXPECT_TRUE(steps.has_ended(3));
  thread.stop();
  EXPECT_FALSE(too_early);
}

TEST_F(PeriodicThreadTest, a_stop_before_the_first_time_leaves_nothing_to_run) {
  PeriodicThread thread(then(never));
  thread.start(PeriodicThread::after(1h));
  thread.stop();
  EXPECT_EQ(steps.begun(), 0);
}

TEST_F(PeriodicThreadTest, a_wake_runs_the_step_before_its_time) {
  PeriodicThread thread(then([] { return PeriodicThread::after(1h); }));
  thread.start(PeriodicThread::after(1h));
  thread.wake();
  EXPECT_TRUE(steps.has_ended(1));
  thread.wake();
  EXPECT_TRUE(steps.has_ended(2));
}

TEST_F(PeriodicThreadTest, the_thread_starts_with_the_first_wake) {
  std::thread::id ran_on;
  PeriodicThread thread([&] {
    ran_on = std::this_thread::get_id();
    steps.ran();
    return never();
  });
  EXPECT_EQ(steps.begun(), 0);
  thread.wake();
  ASSERT_TRUE(steps.has_ended(1));
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

TEST_F(PeriodicThreadTest, a_wake_during_a_step_brings_another_step) {
  PeriodicThread thread(then(never));
  steps.hold();
  thread.start();
  ASSERT_TRUE(steps.has_begun(1));
  thread.wake();
  steps.let_go();
  EXPECT_TRUE(steps.has_ended(2));
}

TEST_F(PeriodicThreadTest, wakes_that_come_together_may_share_a_step) {
  PeriodicThread thread(then(never));
  steps.hold();
  thread.start();
  ASSERT_TRUE(steps.has_begun(1));
  for (int i = 0; i < 100; ++i) thread.wake();
  steps.let_go();
  ASSERT_TRUE(steps.has_ended(2));
  thread.stop();
  EXPECT_EQ(steps.ended(), 2);
}

TEST_F(PeriodicThreadTest, a_stop_waits_for_the_current_step_and_no_other_follows) {
  PeriodicThread thread(then([] { return PeriodicThread::kAtOnce; }));
  steps.hold();
  thread.start();
  ASSERT_TRUE(steps.has_begun(1));
  thread.request_stop();
  EXPECT_EQ(steps.ended(), 0) << "a request does not wait";
  auto stopped = std::async(std::launch::async, [&] {
    thread.stop();
    return steps.ended();
  });
  steps.let_go();
  EXPECT_EQ(stopped.get(), 1);
  EXPECT_EQ(steps.begun(), 1);
}

TEST_F(PeriodicThreadTest, nothing_starts_it_after_a_stop) {
  PeriodicThread thread(then(never));
  thread.stop();
  thread.start();
  thread.wake();
  thread.stop();
  EXPECT_EQ(steps.begun(), 0);
}

TEST_F(PeriodicThreadTest, its_destructor_ends_a_wait_without_an_end) {
  {
    PeriodicThread thread(then(never));
    thread.start();
    ASSERT_TRUE(steps.has_ended(1));
  }
  EXPECT_EQ(steps.begun(), 1);
}

}  // namespace
}  // namespace turnstile::detail
