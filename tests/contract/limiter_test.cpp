// What every implementation of the Limiter port must do. A backend adds itself to `backends` and writes nothing else.

#include "turnstile/ports/limiter.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "turnstile/error.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;

struct Backend {
  const char* name;
  std::shared_ptr<Limiters> (*make)();
};
const Backend backends[] = {{"local", make_local_limiters}};

constexpr auto patience = 20s;  // far above what any backend needs; only a failing test waits as long

class LimiterContract : public ::testing::TestWithParam<Backend> {
 protected:
  std::shared_ptr<Limiters> limiters_ = GetParam().make();
};

/// Counts calls, and lets a test wait for them.
class Calls {
 public:
  std::function<void()> counter() {
    return [this] {
      const std::lock_guard lock(mutex_);
      ++count_;
      changed_.notify_all();
    };
  }
  bool wait_for(int least) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return count_ >= least; });
  }
  int count() {
    const std::lock_guard lock(mutex_);
    return count_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

std::string refusal(Limiters& limiters, const std::string& name, std::int64_t limit) {
  try {
    limiters.open(name, limit);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_P(LimiterContract, gives_out_as_many_permits_as_the_limit) {
  const auto limiter = limiters_->open("psp", 2);
  EXPECT_EQ(limiter->name(), "psp");
  const Permit first = limiter->try_acquire();
  const Permit second = limiter->try_acquire();
  EXPECT_TRUE(first);
  EXPECT_TRUE(second);
  EXPECT_NE(first.token(), second.token());
  EXPECT_FALSE(limiter->try_acquire());
  EXPECT_EQ(limiter->state().in_use, 2);
}

TEST_P(LimiterContract, a_permit_comes_back_when_it_is_given_back_or_ends_its_life) {
  const auto limiter = limiters_->open("psp", 1);
  Permit permit = limiter->try_acquire();
  permit.give_back();
  EXPECT_FALSE(permit);
  permit.give_back();  // twice is once
  EXPECT_EQ(limiter->state().in_use, 0);
  { const Permit scoped = limiter->try_acquire(); }
  EXPECT_EQ(limiter->state().in_use, 0);
  EXPECT_TRUE(limiter->try_acquire());
}

TEST_P(LimiterContract, a_moved_permit_is_given_back_once) {
  const auto limiter = limiters_->open("psp", 2);
  Permit first = limiter->try_acquire();
  Permit second = std::move(first);
  EXPECT_TRUE(second);
  EXPECT_EQ(limiter->state().in_use, 1);
  second = limiter->try_acquire();  // the one it held goes back
  EXPECT_EQ(limiter->state().in_use, 1);
  second = Permit();
  EXPECT_EQ(limiter->state().in_use, 0);
}

TEST_P(LimiterContract, a_permit_outlives_those_who_gave_it_out) {
  Permit permit = limiters_->open("psp", 1)->try_acquire();
  limiters_.reset();
  EXPECT_TRUE(permit);
  EXPECT_FALSE(permit.lost().stop_requested());
  permit.give_back();
}

TEST_P(LimiterContract, remembers_the_most_that_was_in_use) {
  const auto limiter = limiters_->open("psp", 5);
  {
    const Permit a = limiter->try_acquire(), b = limiter->try_acquire(), c = limiter->try_acquire();
    EXPECT_EQ(limiter->state().most_in_use, 3);
  }
  const Permit again = limiter->try_acquire();
  EXPECT_EQ(limiter->state().limit, 5);
  EXPECT_EQ(limiter->state().in_use, 1);
  EXPECT_EQ(limiter->state().most_in_use, 3);
}

TEST_P(LimiterContract, equal_names_are_the_same_limiter) {
  const Permit permit = limiters_->open("psp", 1)->try_acquire();
  EXPECT_FALSE(limiters_->open("psp", 1)->try_acquire());
  EXPECT_TRUE(limiters_->open("smtp", 1)->try_acquire());
}

TEST_P(LimiterContract, one_name_with_two_limits_is_refused_with_both) {
  limiters_->open("psp", 64);
  const std::string why = refusal(*limiters_, "psp", 32);
  EXPECT_NE(why.find("'psp'"), std::string::npos) << why;
  EXPECT_NE(why.find("64"), std::string::npos) << why;
  EXPECT_NE(why.find("32"), std::string::npos) << why;
  EXPECT_EQ(limiters_->open("psp", 64)->state().limit, 64);
}

TEST_P(LimiterContract, a_limit_that_lets_nothing_run_is_refused) {
  for (const std::int64_t limit : {0, -1}) {
    const std::string why = refusal(*limiters_, "psp", limit);
    EXPECT_NE(why.find("'psp'"), std::string::npos) << why;
    EXPECT_NE(why.find("at least 1"), std::string::npos) << why;
  }
  EXPECT_EQ(limiters_->open("psp", 3)->state().limit, 3) << "a refused limit must leave nothing behind";
}

TEST_P(LimiterContract, who_asks_while_permits_are_free_is_woken) {
  const auto limiter = limiters_->open("psp", 1);
  Calls calls;
  limiter->when_free(calls.counter());
  EXPECT_TRUE(calls.wait_for(1));
}

TEST_P(LimiterContract, who_waits_is_woken_when_a_permit_comes_back_and_not_before) {
  const auto limiter = limiters_->open("psp", 1);
  Permit permit = limiter->try_acquire();
  Calls calls;
  limiter->when_free(calls.counter());
  EXPECT_EQ(calls.count(), 0);
  permit.give_back();
  EXPECT_TRUE(calls.wait_for(1));
}

// A waiter that takes its permit while it is woken, as an engine would.
class Taker {
 public:
  Taker(std::shared_ptr<Limiter> limiter, std::vector<int>& order, int number)
      : limiter_(std::move(limiter)), order_(order), number_(number) {}
  void ask() {
    limiter_->when_free([this] {
      permit_ = limiter_->try_acquire();
      if (permit_) order_.push_back(number_);
      else ask();
    });
  }
  void give_back() { permit_.give_back(); }

 private:
  std::shared_ptr<Limiter> limiter_;
  std::vector<int>& order_;
  int number_;
  Permit permit_;
};

TEST_P(LimiterContract, waiters_are_served_in_the_order_in_which_they_asked) {
  const auto limiter = limiters_->open("psp", 1);
  std::vector<int> order;
  Taker first(limiter, order, 1), second(limiter, order, 2), third(limiter, order, 3);
  Permit permit = limiter->try_acquire();
  for (auto* taker : {&first, &second, &third}) taker->ask();
  permit.give_back();
  EXPECT_EQ(order, std::vector<int>({1}));
  first.give_back();
  second.give_back();
  EXPECT_EQ(order, std::vector<int>({1, 2, 3}));
  third.give_back();
  EXPECT_EQ(limiter->state().in_use, 0);
  EXPECT_EQ(limiter->state().most_in_use, 1);
}

// Trap 33 within one process: the one who is woken first wants nothing any more, and those behind it must not sleep on.
TEST_P(LimiterContract, a_waiter_that_has_lost_its_interest_holds_up_nobody) {
  const auto limiter = limiters_->open("psp", 1);
  Permit permit = limiter->try_acquire();
  Calls uninterested, next;
  limiter->when_free(uninterested.counter());
  limiter->when_free(next.counter());
  permit.give_back();
  EXPECT_TRUE(uninterested.wait_for(1));
  EXPECT_TRUE(next.wait_for(1));
}

TEST_P(LimiterContract, a_permit_may_be_given_back_on_another_thread) {
  const auto limiter = limiters_->open("psp", 1);
  Permit permit = limiter->try_acquire();
  std::thread([moved = std::move(permit)]() mutable { moved.give_back(); }).join();
  EXPECT_TRUE(limiter->try_acquire());
}

// Every thread runs its share under a permit; the limit is counted from outside, by the handlers themselves.
TEST_P(LimiterContract, under_load_the_limit_holds_and_nobody_sleeps_for_ever) {
  constexpr int limit = 3, threads = 8, rounds = 2'000;
  const auto limiter = limiters_->open("psp", limit);
  std::atomic<int> running{0}, most{0}, rounds_left{threads * rounds};
  const auto work = [&] {
    for (int i = 0; i < rounds; ++i) {
      Permit permit = limiter->try_acquire();
      while (!permit) {
        // Shared with the waker, which may call after this thread has gone on.
        const auto woken = std::make_shared<Calls>();
        limiter->when_free([woken] { woken->counter()(); });
        if (!woken->wait_for(1)) return;
        permit = limiter->try_acquire();
      }
      const int now = ++running;
      for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
      }
      std::this_thread::yield();  // so that others come to ask while the permits are out
      --running;
      --rounds_left;
    }
  };
  {
    std::vector<std::jthread> all;
    for (int i = 0; i < threads; ++i) all.emplace_back(work);
  }
  EXPECT_EQ(rounds_left, 0) << "a waiter was never woken";
  EXPECT_LE(most, limit);
  EXPECT_LE(limiter->state().most_in_use, limit);
  EXPECT_EQ(limiter->state().in_use, 0);
}

INSTANTIATE_TEST_SUITE_P(Limiters, LimiterContract, ::testing::ValuesIn(backends),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace turnstile
