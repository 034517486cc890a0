// The contract of every implementation of the port Limiter (limiter_fixture.cpp lists them). For limits over several
// processes see limiter_cluster_test.cpp.

#include "turnstile/ports/limiter.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/contract/limiter_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "turnstile/error.hpp"

namespace turnstile::test {
namespace {

class LimiterContract : public ::testing::TestWithParam<LimiterBackend> {
 protected:
  void SetUp() override {
    if (const auto why = GetParam().missing()) GTEST_SKIP() << *why;
    world_ = GetParam().make();
    limiters_ = world_->join();
  }
  /// No caller gets a permit, however long it tries.
  bool is_used_up(const std::shared_ptr<ports::Limiter>& limiter) {
    return !eventually([&] { return static_cast<bool>(limiter->try_acquire()); }, world_->settles_in());
  }

  std::unique_ptr<LimiterFixture> world_;
  std::shared_ptr<ports::Limiters> limiters_;
};

std::string refusal(ports::Limiters& limiters, const std::string& name, std::int64_t limit) {
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
  const Permit first = acquire(limiter);
  const Permit second = acquire(limiter);
  EXPECT_TRUE(first);
  EXPECT_TRUE(second);
  EXPECT_NE(first.token(), second.token());
  EXPECT_TRUE(is_used_up(limiter));
  EXPECT_EQ(limiter->state().in_use, 2);
}

TEST_P(LimiterContract, a_permit_comes_back_when_it_is_given_back_or_ends_its_life) {
  const auto limiter = limiters_->open("psp", 1);
  Permit permit = acquire(limiter);
  permit.give_back();
  EXPECT_FALSE(permit);
  permit.give_back();  // a second call does nothing
  EXPECT_EQ(limiter->state().in_use, 0);
  { const Permit scoped = acquire(limiter); }
  EXPECT_EQ(limiter->state().in_use, 0);
  EXPECT_TRUE(acquire(limiter));
}

TEST_P(LimiterContract, a_moved_permit_is_given_back_once) {
  const auto limiter = limiters_->open("psp", 2);
  Permit first = acquire(limiter);
  Permit second = std::move(first);
  EXPECT_TRUE(second);
  EXPECT_EQ(limiter->state().in_use, 1);
  second = acquire(limiter);  // the held permit is released
  EXPECT_EQ(limiter->state().in_use, 1);
  second = Permit();
  EXPECT_EQ(limiter->state().in_use, 0);
}

TEST_P(LimiterContract, a_permit_outlives_those_who_gave_it_out) {
  Permit permit = acquire(limiters_->open("psp", 1));
  limiters_.reset();
  EXPECT_TRUE(permit);
  EXPECT_FALSE(permit.lost().stop_requested());
  permit.give_back();
}

TEST_P(LimiterContract, remembers_the_most_that_was_in_use) {
  const auto limiter = limiters_->open("psp", 5);
  {
    const Permit a = acquire(limiter), b = acquire(limiter), c = acquire(limiter);
    EXPECT_EQ(limiter->state().most_in_use, 3);
  }
  const Permit again = acquire(limiter);
  EXPECT_EQ(limiter->state().limit, 5);
  EXPECT_EQ(limiter->state().in_use, 1);
  EXPECT_EQ(limiter->state().most_in_use, 3);
}

TEST_P(LimiterContract, equal_names_are_the_same_limiter) {
  const Permit permit = acquire(limiters_->open("psp", 1));
  EXPECT_TRUE(permit);
  EXPECT_TRUE(is_used_up(limiters_->open("psp", 1)));
  EXPECT_TRUE(acquire(limiters_->open("smtp", 1)));
}

TEST_P(LimiterContract, one_name_with_two_limits_is_refused_with_both) {
  const auto kept = limiters_->open("psp", 64);
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
  Permit permit = acquire(limiter);
  Calls calls;
  limiter->when_free(calls.counter());
  EXPECT_FALSE(calls.wait_for(1, world_->settles_in()));
  permit.give_back();
  EXPECT_TRUE(calls.wait_for(1));
}

/// Numbers in the order of arrival. Thread-safe.
class Order {
 public:
  void add(int number) {
    const std::lock_guard lock(mutex_);
    order_.push_back(number);
  }
  std::vector<int> first(std::size_t count) {
    eventually([&] { return numbers().size() >= count; });
    return numbers();
  }

 private:
  std::vector<int> numbers() {
    const std::lock_guard lock(mutex_);
    return order_;
  }
  std::mutex mutex_;
  std::vector<int> order_;
};

// A waiter that takes its permit when it is woken, as an engine would.
class Taker {
 public:
  Taker(std::shared_ptr<ports::Limiter> limiter, Order& order, int number)
      : limiter_(std::move(limiter)), order_(order), number_(number) {}
  void ask() {
    limiter_->when_free([this] {
      permit_ = limiter_->try_acquire();
      if (permit_) order_.add(number_);
      else ask();
    });
  }
  void give_back() { permit_.give_back(); }

 private:
  std::shared_ptr<ports::Limiter> limiter_;
  Order& order_;
  int number_;
  Permit permit_;
};

TEST_P(LimiterContract, waiters_are_served_in_the_order_in_which_they_asked) {
  const auto limiter = limiters_->open("psp", 1);
  Order order;
  Taker first(limiter, order, 1), second(limiter, order, 2), third(limiter, order, 3);
  Permit permit = acquire(limiter);
  for (auto* taker : {&first, &second, &third}) taker->ask();
  permit.give_back();
  EXPECT_EQ(order.first(1), std::vector<int>({1}));
  first.give_back();
  EXPECT_EQ(order.first(2), std::vector<int>({1, 2}));
  second.give_back();
  EXPECT_EQ(order.first(3), std::vector<int>({1, 2, 3}));
  third.give_back();
  EXPECT_EQ(limiter->state().in_use, 0);
  EXPECT_EQ(limiter->state().most_in_use, 1);
}

// Hazard: late-grant within one process: the waiter that is woken first no longer needs a permit. The waiters behind it
// must not stay asleep.
TEST_P(LimiterContract, a_waiter_that_has_lost_its_interest_holds_up_nobody) {
  const auto limiter = limiters_->open("psp", 1);
  Permit permit = acquire(limiter);
  Calls uninterested, next;
  limiter->when_free(uninterested.counter());
  limiter->when_free(next.counter());
  permit.give_back();
  EXPECT_TRUE(uninterested.wait_for(1));
  EXPECT_TRUE(next.wait_for(1));
}

TEST_P(LimiterContract, a_request_that_was_withdrawn_leaves_nothing) {
  auto limiter = limiters_->open("psp", 1);
  const std::weak_ptr<ports::Limiter> seen = limiter;
  Permit permit = acquire(limiter);
  for (int i = 0; i < 10; ++i) {
    const auto withdraw =
        limiter->acquire_later(1, Priority::normal, [](const Permit&) { ADD_FAILURE() << "it was withdrawn"; });
    EXPECT_TRUE(withdraw());
    EXPECT_FALSE(withdraw()) << "a second call is too late";
  }
  EXPECT_EQ(limiter->state().waiting, 0);
  permit.give_back();
  EXPECT_TRUE(acquire(limiter)) << "a request that was withdrawn holds up the next one";
  limiter.reset();
  EXPECT_TRUE(eventually([&] { return seen.expired(); })) << "a request that was withdrawn keeps its limiter";
}

TEST_P(LimiterContract, a_permit_may_be_given_back_on_another_thread) {
  const auto limiter = limiters_->open("psp", 1);
  Permit permit = acquire(limiter);
  std::thread([moved = std::move(permit)]() mutable { moved.give_back(); }).join();
  EXPECT_TRUE(acquire(limiter));
}

// Every thread runs its share under a permit. The handlers themselves count how many run at once.
TEST_P(LimiterContract, under_load_the_limit_holds_and_nobody_sleeps_for_ever) {
  constexpr int limit = 3, threads = 8, rounds = 2'000;
  const auto limiter = limiters_->open("psp", limit);
  std::atomic<int> running{0}, most{0}, rounds_left{threads * rounds};
  const auto work = [&] {
    for (int i = 0; i < rounds; ++i) {
      Permit permit = limiter->try_acquire();
      while (!permit) {
        Calls woken;
        limiter->when_free(woken.counter());
        if (!woken.wait_for(1)) return;
        permit = limiter->try_acquire();
      }
      const int now = ++running;
      for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
      }
      std::this_thread::yield();  // so that others request permits while all are in use
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

INSTANTIATE_TEST_SUITE_P(Limiters, LimiterContract,
                         ::testing::ValuesIn(limiter_backends().begin(), limiter_backends().end()),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace turnstile::test
