// The contract of a limit over all processes, for each cluster-wide backend. A Limiters object stands for a process.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/contract/limiter_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "turnstile/ports/limiter.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

std::vector<LimiterBackend> cluster_wide() {
  std::vector<LimiterBackend> wide;
  for (const auto& backend : limiter_backends()) {
    if (backend.cluster_wide) wide.push_back(backend);
  }
  return wide;
}

// A broker tells its clients its own address, which bypasses any proxy.
constexpr const char* kNoCable = "cannot cut one process off from a broker; the same log in memory can";

class LimiterCluster : public ::testing::TestWithParam<LimiterBackend> {
 protected:
  void SetUp() override {
    if (const auto why = GetParam().missing()) GTEST_SKIP() << *why;
    world_ = GetParam().make();
  }
  /// The limiter as another process sees it.
  std::shared_ptr<ports::Limiter> join(std::int64_t limit) { return world_->join()->open("psp", limit); }
  bool gets_nothing(const std::shared_ptr<ports::Limiter>& limiter) { return !acquire(limiter, world_->settles_in()); }
  static bool is_lost(const Permit& permit) { return permit.lost().stop_requested(); }

  std::unique_ptr<LimiterFixture> world_;
};

TEST_P(LimiterCluster, the_limit_holds_over_two_processes) {
  const auto one = join(3), other = join(3);
  Permit a = acquire(one), b = acquire(one), c = acquire(other);
  EXPECT_TRUE(a && b && c);
  EXPECT_TRUE(gets_nothing(other));
  EXPECT_TRUE(gets_nothing(one));
  a.give_back();
  EXPECT_TRUE(acquire(other)) << "what one gives back, the other can have";
  EXPECT_FALSE(is_lost(b) || is_lost(c));
}

TEST_P(LimiterCluster, what_nobody_uses_goes_to_who_can) {
  const auto one = join(2), other = join(2);
  {
    const Permit a = acquire(one), b = acquire(one);
    EXPECT_TRUE(a && b);
  }
  const auto begin = steady_clock::now();
  const Permit c = acquire(other), d = acquire(other);
  EXPECT_TRUE(c && d);
  EXPECT_LT(steady_clock::now() - begin, world_->lease()) << "given back, not expired";
}

TEST_P(LimiterCluster, permits_outlive_their_lease_while_their_process_lives) {
  const auto one = join(1), other = join(1);
  const Permit permit = acquire(one);
  ASSERT_TRUE(permit);
  EXPECT_FALSE(acquire(other, 2 * world_->lease()));
  EXPECT_FALSE(is_lost(permit));
  EXPECT_EQ(one->state().in_use, 1);
}

TEST_P(LimiterCluster, a_process_that_ends_gives_back_at_once) {
  auto one = join(1);
  const auto other = join(1);
  Permit permit = acquire(one);
  ASSERT_TRUE(permit);
  permit.give_back();
  one.reset();
  const auto begin = steady_clock::now();
  EXPECT_TRUE(acquire(other));
  EXPECT_LT(steady_clock::now() - begin, world_->lease() / 2);
}

// The permits of a dead process return at the end of its lease, and not before. If the process only seemed dead, its
// `lost` is set before another process has its permit.
TEST_P(LimiterCluster, permits_of_who_is_cut_off_come_back_with_the_lease_and_not_before) {
  const auto limiters = world_->join_by_a_cable();
  if (!limiters) GTEST_SKIP() << kNoCable;
  const auto one = limiters->open("psp", 1), other = join(1);
  const Permit permit = acquire(one);
  ASSERT_TRUE(permit);
  EXPECT_TRUE(gets_nothing(other));
  world_->cut(true);
  const auto cut_at = steady_clock::now();
  const Permit next = acquire(other, 4 * world_->lease());
  ASSERT_TRUE(next);
  EXPECT_TRUE(is_lost(permit)) << "two run, and the first was not told";
  // Its last renewal was at most a quarter of the lease ago.
  EXPECT_GE(steady_clock::now() - cut_at, world_->lease() * 3 / 4 - 100ms);
  EXPECT_LT(steady_clock::now() - cut_at, 2 * world_->lease());
  EXPECT_EQ(one->state().in_use, 0) << "what is lost is not held";
  EXPECT_FALSE(one->try_acquire());
  world_->cut(false);
}

TEST_P(LimiterCluster, who_is_cut_off_is_told_through_lost_and_goes_on_when_it_is_back) {
  const auto limiters = world_->join_by_a_cable();
  if (!limiters) GTEST_SKIP() << kNoCable;
  const auto one = limiters->open("psp", 2);
  Permit permit = acquire(one);
  ASSERT_TRUE(permit);
  Calls told;
  const std::stop_callback on_lost(permit.lost(), told.counter());
  world_->cut(true);
  EXPECT_TRUE(told.wait_for(1)) << "the callback runs, nobody has to ask";
  EXPECT_FALSE(one->try_acquire());
  world_->cut(false);
  const Permit next = acquire(one);
  EXPECT_TRUE(next);
  EXPECT_FALSE(is_lost(next));
  EXPECT_NE(next.token(), permit.token());
}

TEST_P(LimiterCluster, a_late_release_changes_nothing) {
  const auto limiters = world_->join_by_a_cable();
  if (!limiters) GTEST_SKIP() << kNoCable;
  const auto one = limiters->open("psp", 1), other = join(1), third = join(1);
  Permit late = acquire(one);
  ASSERT_TRUE(late);
  EXPECT_TRUE(late.holds());
  world_->cut(true);
  const Permit now = acquire(other, 4 * world_->lease());
  ASSERT_TRUE(now);
  EXPECT_TRUE(now.holds());
  EXPECT_FALSE(late.holds());
  world_->cut(false);
  late.give_back();
  EXPECT_EQ(one->state().in_use, 0);
  EXPECT_FALSE(acquire(third, world_->lease())) << "the permit that was released late is another's";
  EXPECT_FALSE(is_lost(now));
  EXPECT_EQ(other->state().in_use, 1);
}

TEST_P(LimiterCluster, lowered_below_what_is_in_use_nothing_is_revoked_and_nothing_granted_until_it_fits) {
  const auto one = join(4), other = join(4);
  std::vector<Permit> held;
  for (int i = 0; i < 4; ++i) held.push_back(acquire(one));
  ASSERT_TRUE(held.back());
  world_->set_limit("psp", 2);
  EXPECT_TRUE(eventually([&] { return one->state().limit == 2; }));
  held.erase(held.begin());  // 3 of 2
  EXPECT_TRUE(gets_nothing(other));
  held.erase(held.begin());  // 2 of 2
  EXPECT_TRUE(gets_nothing(other));
  for (const auto& permit : held) EXPECT_FALSE(is_lost(permit));
  EXPECT_EQ(one->state().in_use, 2);
  held.erase(held.begin());  // 1 of 2
  const Permit fits = acquire(other);
  EXPECT_TRUE(fits);
  EXPECT_TRUE(gets_nothing(other));
}

TEST_P(LimiterCluster, a_limit_of_nothing_pauses_and_a_raised_one_lets_more_run) {
  const auto one = join(1);
  Permit permit = acquire(one);
  ASSERT_TRUE(permit);
  world_->set_limit("psp", 0);
  EXPECT_TRUE(eventually([&] { return one->state().limit == 0; }));
  EXPECT_FALSE(is_lost(permit));
  permit.give_back();
  // It knows the limit a moment before its pool does, and until then takes the permit that it still holds again.
  EXPECT_TRUE(eventually([&] { return gets_nothing(one); }));
  world_->set_limit("psp", 3);
  std::vector<Permit> held;
  for (int i = 0; i < 3; ++i) held.push_back(acquire(one));
  EXPECT_TRUE(held.back());
  EXPECT_TRUE(gets_nothing(one));
  world_->set_limit("psp", 1'000'000'000);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(held.emplace_back(acquire(one)));
  EXPECT_EQ(one->state().in_use, 6);
}

TEST_P(LimiterCluster, the_lowest_value_that_a_live_process_is_configured_with_is_the_limit) {
  auto low = join(2);
  { ASSERT_TRUE(acquire(low)); }
  const auto high = join(4);
  std::vector<Permit> held;
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(held.emplace_back(acquire(high)));
  EXPECT_EQ(high->state().limit, 2);
  EXPECT_FALSE(acquire(high, 2 * world_->lease())) << "a process lives, although it needs no permits";
  low.reset();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(held.emplace_back(acquire(high))) << "the lower value ended with its process";
  EXPECT_EQ(high->state().limit, 4);

  const auto lower = join(3);  // while 4 are in use: none is revoked, and none is granted until they fit
  EXPECT_TRUE(gets_nothing(lower));
  EXPECT_TRUE(eventually([&] { return high->state().limit == 3; }));
  held.pop_back();  // 3 of 3
  EXPECT_TRUE(gets_nothing(lower));
  for (const auto& permit : held) EXPECT_FALSE(is_lost(permit));
  held.pop_back();  // 2 of 3
  EXPECT_TRUE(acquire(lower));
}

TEST_P(LimiterCluster, the_value_of_who_is_cut_off_counts_until_its_lease_ends) {
  const auto limiters = world_->join_by_a_cable();
  if (!limiters) GTEST_SKIP() << kNoCable;
  const auto low = limiters->open("psp", 1), high = join(3);
  const Permit permit = acquire(low);
  ASSERT_TRUE(permit);
  EXPECT_TRUE(gets_nothing(high));
  world_->cut(true);
  EXPECT_TRUE(gets_nothing(high));
  std::vector<Permit> held;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(held.emplace_back(acquire(high, 4 * world_->lease())));
  EXPECT_EQ(high->state().limit, 3);
  world_->cut(false);
  EXPECT_TRUE(eventually([&] { return high->state().limit == 1; })) << "it lives again";
  EXPECT_TRUE(gets_nothing(low));
  for (const auto& still : held) EXPECT_FALSE(is_lost(still));
}

/// Threads that take a permit, run, and release it, until they are stopped.
class Crew {
 public:
  Crew(std::vector<std::shared_ptr<ports::Limiter>> processes, int threads_each) : served_(processes.size()) {
    for (std::size_t i = 0; i < processes.size(); ++i) {
      for (int n = 0; n < threads_each; ++n) {
        threads_.emplace_back(
            [this, limiter = processes[i], i](const std::stop_token& stop) { work(limiter, i, stop); });
      }
    }
  }
  ~Crew() { end(); }
  void end() {
    for (auto& thread : threads_) thread.request_stop();
    threads_.clear();
  }
  [[nodiscard]] int most() const { return most_; }
  [[nodiscard]] int served(std::size_t process) const { return served_[process]; }

 private:
  void work(const std::shared_ptr<ports::Limiter>& limiter, std::size_t process, const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const Permit permit = acquire(limiter, 200ms);
      if (!permit) continue;
      const int now = ++running_;
      for (int seen = most_; seen < now && !most_.compare_exchange_weak(seen, now);) {
      }
      std::this_thread::sleep_for(2ms);  // the work
      --running_;
      ++served_[process];
    }
  }
  std::atomic<int> running_{0}, most_{0};
  std::vector<std::atomic<int>> served_;
  std::vector<std::jthread> threads_;
};

TEST_P(LimiterCluster, under_load_the_limit_holds_and_every_process_is_served) {
  constexpr int limit = 4, enough = 200;
  Crew crew({join(limit), join(limit), join(limit)}, 4);
  for (std::size_t process : {0U, 1U, 2U}) {
    EXPECT_TRUE(eventually([&] { return crew.served(process) >= enough; })) << "process " << process;
  }
  crew.end();
  EXPECT_LE(crew.most(), limit);
  EXPECT_EQ(crew.most(), limit) << "and all of it is used";
}

TEST_P(LimiterCluster, processes_take_turns_when_they_outnumber_the_permits) {
  constexpr int enough = 100;
  Crew crew({join(1), join(1), join(1)}, 2);
  for (std::size_t process : {0U, 1U, 2U}) {
    EXPECT_TRUE(eventually([&] { return crew.served(process) >= enough; })) << "process " << process;
  }
  crew.end();
  EXPECT_EQ(crew.most(), 1);
}

TEST_P(LimiterCluster, a_limit_that_moves_under_load_is_never_exceeded_once_it_fits) {
  const auto one = join(6), other = join(6);
  ASSERT_TRUE(acquire(one));  // so that the limiter is known
  Crew crew({one, other}, 6);
  for (const int limit : {2, 5, 0, 1, 6}) {
    world_->set_limit("psp", limit);
    const int before = crew.served(0) + crew.served(1);
    if (limit == 0) continue;
    EXPECT_TRUE(eventually([&] { return crew.served(0) + crew.served(1) > before + 100; })) << limit;
  }
  crew.end();
  EXPECT_LE(crew.most(), 6);
}

INSTANTIATE_TEST_SUITE_P(Limiters, LimiterCluster, ::testing::ValuesIn(cluster_wide()),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace turnstile::test
