// The pool between the domain's member and the threads of a process. No permit is lost or created, whatever the threads
// do at the same time.

#include "permits/permit_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace turnstile::detail {
namespace {

using tokens::Count;
using tokens::Micros;
using tokens::Order;

constexpr Micros kNoEnd = std::numeric_limits<Micros>::max();

Order an_order(Order::Kind kind, Count total) { return {kind, "psp", total}; }

/// Takes all free permits, one at a time.
Count take_all(PermitPool& pool) {
  Count taken = 0;
  while (pool.try_take(1)) ++taken;
  return taken;
}

/// Threads that take and give back permits as fast as they can.
class HotThreads {
 public:
  HotThreads(PermitPool& pool, int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, &pool] {
        while (!over_.load(std::memory_order_relaxed)) {
          if (const auto taken = pool.try_take(1)) pool.give_back(taken.token, 1);
          rounds_.fetch_add(1, std::memory_order_relaxed);
        }
      });
    }
  }
  ~HotThreads() {
    over_ = true;
    for (auto& thread : threads_) thread.join();
  }
  /// Waits until the threads have done something since the last call.
  void wait() {
    for (const auto before = std::exchange(seen_, rounds_.load()); rounds_.load() == before;) std::this_thread::yield();
  }

 private:
  std::atomic<bool> over_{false};
  std::atomic<std::uint64_t> rounds_{0};
  std::uint64_t seen_ = 0;
  std::vector<std::thread> threads_;
};

TEST(PermitPool, loses_no_permit_when_deadlines_pass_while_threads_give_back) {
  PermitPool pool([] { return Micros{0}; }, [] {});
  pool.open_until(kNoEnd);
  pool.order(an_order(Order::Kind::open, 4));
  {
    HotThreads hot(pool, 2);
    for (int i = 0; i < 10'000; ++i) {
      if (i % 500 == 0) hot.wait();
      pool.cancel();
    }
  }
  EXPECT_EQ(pool.surrendered(), 0U);
  EXPECT_EQ(take_all(pool), 4U);
}

TEST(PermitPool, keeps_the_sum_of_free_in_use_and_surrendered_whatever_is_ordered_meanwhile) {
  PermitPool pool([] { return Micros{0}; }, [] {});
  pool.open_until(kNoEnd);
  Count opened = 8, surrendered = 0;
  pool.order(an_order(Order::Kind::open, opened));
  {
    HotThreads hot(pool, 2);
    for (int i = 0; i < 5'000; ++i) {
      if (i % 500 == 0) hot.wait();
      if (i % 3 == 0) pool.cancel();
      pool.order(an_order(Order::Kind::surrender, surrendered += 3));
      pool.order(an_order(Order::Kind::open, opened += 3));
    }
  }
  // No thread has a permit: all that was ordered has been surrendered, and the rest is free.
  EXPECT_EQ(pool.surrendered(), surrendered);
  EXPECT_EQ(take_all(pool), opened - surrendered);
}

/// All permits are in use. Each waiting request records when it is served.
class PermitLine : public ::testing::Test {
 protected:
  PermitLine() {
    pool_.open_until(kNoEnd);
    pool_.order(an_order(Order::Kind::open, 2));
    held_ = pool_.try_take(2);
  }
  std::uint64_t wait(const std::string& name, PermitPool::Party party, Count count = 1, bool urgent = false) {
    return pool_.take_later(
        count, urgent,
        [this, name, count](const PermitPool::Taken& taken) {
          served_ += name;
          out_.emplace_back(taken.token, count);
        },
        party);
  }
  /// Gives the permits back one after another, including those that are granted meanwhile, until no request waits.
  std::string serve_all() {
    if (held_) pool_.give_back(std::exchange(held_.token, 0), 2);
    while (!out_.empty()) {
      const auto [token, count] = out_.front();
      out_.pop_front();
      pool_.give_back(token, count);
    }
    return served_;
  }

  Micros now_ = 1;
  PermitPool pool_{[this] { return now_; }, [] {}};
  PermitPool::Taken held_;
  std::string served_;
  std::deque<std::pair<std::uint64_t, Count>> out_;
};

TEST_F(PermitLine, serves_two_parties_in_turn_however_many_of_each_wait) {
  const auto service = pool_.add_party(true);
  for (int i = 0; i < 6; ++i) wait("s", service);
  for (int i = 0; i < 3; ++i) wait("c", 0);
  EXPECT_EQ(serve_all(), "scscscsss");
}

TEST_F(PermitLine, counts_permits_and_not_requests) {
  const auto service = pool_.add_party(true);
  for (int i = 0; i < 2; ++i) wait("S", service, 2);
  for (int i = 0; i < 5; ++i) wait("c", 0);
  EXPECT_EQ(serve_all(), "SccSccc");
}

TEST_F(PermitLine, serves_urgent_ones_of_all_parties_first) {
  const auto service = pool_.add_party(true);
  wait("c", 0);
  wait("s", service);
  wait("S", service, 2, true);
  wait("C", 0, 1, true);
  EXPECT_EQ(serve_all(), "SCcs");
}

TEST_F(PermitLine, is_not_held_up_by_a_request_above_the_limit_until_the_limit_is_raised) {
  wait("4", 0, 4);
  wait("1", 0);
  pool_.limit(2);
  EXPECT_EQ(pool_.demand().least, 1U);
  EXPECT_EQ(pool_.waiting(), 1U);
  EXPECT_EQ(serve_all(), "1");
  EXPECT_TRUE(pool_.try_take(1)) << "nobody waits who could be served";
  pool_.limit(4);
  EXPECT_EQ(pool_.demand().least, 4U);
  pool_.order(an_order(Order::Kind::open, 6));
  EXPECT_EQ(served_, "14");
}

/// A request for 2 has been served. The next one comes when it ends.
TEST_F(PermitLine, reports_how_many_running_callers_took_at_once_while_nobody_waits) {
  EXPECT_EQ(pool_.demand().least, 2U);
  pool_.limit(1);
  EXPECT_EQ(pool_.demand().least, 1U) << "more can never be granted";
  pool_.limit(4);
  wait("1", 0);
  EXPECT_EQ(pool_.demand().least, 1U);
  pool_.order(an_order(Order::Kind::open, 3));
  EXPECT_EQ(served_, "1");
  EXPECT_EQ(pool_.demand().least, 1U) << "one of the two uses a single permit";
  serve_all();
  EXPECT_EQ(pool_.demand().least, 1U);
}

TEST_F(PermitLine, gives_nothing_to_a_party_that_outlives_a_fence_before_it_is_admitted) {
  const auto service = pool_.add_party(true);
  pool_.admit(false);
  wait("s", service);
  wait("c", 0);
  EXPECT_EQ(serve_all(), "c");
  EXPECT_FALSE(pool_.try_take(1, service));
  pool_.admit(true);
  EXPECT_EQ(served_, "cs");
}

TEST_F(PermitLine, wants_what_a_failed_try_wanted_for_a_moment) {
  EXPECT_EQ(pool_.demand().wants, 2U);
  EXPECT_FALSE(pool_.try_take(2));
  pool_.refused(2);
  EXPECT_EQ(pool_.demand().wants, 4U);
  EXPECT_EQ(pool_.demand().least, 2U);
  now_ += PermitPool::kTryCounts;
  EXPECT_EQ(pool_.demand().wants, 2U);
  pool_.refused(1);
  EXPECT_EQ(pool_.demand().wants, 4U) << "as many again as are in use: a program that tries grows quickly";
  serve_all();
  EXPECT_TRUE(pool_.try_take(1));
  EXPECT_EQ(pool_.demand().wants, 1U) << "a try that succeeds ends the wish";
}

TEST_F(PermitLine, forgets_those_who_wait_for_a_party_that_leaves) {
  const auto service = pool_.add_party(true);
  wait("s", service);
  wait("c", 0);
  pool_.remove_party(service);
  EXPECT_EQ(pool_.waiting(), 1U);
  EXPECT_EQ(serve_all(), "c");
}

}  // namespace
}  // namespace turnstile::detail
