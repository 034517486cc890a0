// A thread that waits for a permit gets one that is valid.

#include "permits/permit_seat.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace turnstile::detail {
namespace {

using namespace std::chrono_literals;

/// The leases of its first permits have ended when they are delivered.
class LateLimiter final : public ports::Limiter {
 public:
  explicit LateLimiter(std::uint64_t late) : late_(late) {}

  std::vector<std::uint64_t> released;

  const std::string& name() const noexcept override { return name_; }
  Permit try_acquire() override { return {shared_from_this(), ++delivered_, {}}; }
  void when_free(std::function<void()> wake) override { wake(); }
  ports::LimiterState state() const override { return {}; }
  std::uint64_t delivered() const { return delivered_; }

 private:
  void release(std::uint64_t token) noexcept override { released.push_back(token); }
  bool still_holds(std::uint64_t token) const noexcept override { return token > late_; }

  const std::uint64_t late_;
  std::uint64_t delivered_ = 0;
  const std::string name_ = "late";
};

class NoLimiters final : public ports::Limiters {
  std::shared_ptr<ports::Limiter> open(const std::string&, std::int64_t) override { return nullptr; }
};

PermitSeat::Waited wait(const std::shared_ptr<LateLimiter>& limiter, std::chrono::milliseconds patience) {
  NoLimiters limiters;
  return std::make_shared<PermitSeat>()->wait(*limiter, limiters, 1, Priority::normal,
                                              std::chrono::steady_clock::now() + patience);
}

TEST(PermitSeat, returns_a_permit_whose_lease_has_ended_and_waits_for_the_next) {
  const auto limiter = std::make_shared<LateLimiter>(2);
  const auto waited = wait(limiter, 10s);
  EXPECT_TRUE(waited.permit.holds());
  EXPECT_EQ(limiter->delivered(), 3U);
  EXPECT_EQ(limiter->released, (std::vector<std::uint64_t>{1, 2}));
}

TEST(PermitSeat, waits_for_a_valid_permit_no_longer_than_its_deadline) {
  const auto limiter = std::make_shared<LateLimiter>(1'000'000'000);
  EXPECT_FALSE(wait(limiter, 50ms).permit);
}

TEST(PermitSeat, waits_for_no_valid_permit_after_it_was_left) {
  const auto limiter = std::make_shared<LateLimiter>(1'000'000'000);
  NoLimiters limiters;
  const auto seat = std::make_shared<PermitSeat>();
  seat->leave();
  EXPECT_FALSE(
      seat->wait(*limiter, limiters, 1, Priority::normal, std::chrono::steady_clock::time_point::max()).permit);
}

}  // namespace
}  // namespace turnstile::detail
