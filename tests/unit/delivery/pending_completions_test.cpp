// Results of leased messages that could not be recorded while the store was away.

#include "delivery/pending_completions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <optional>
#include <thread>

#include "tests/support/captured_log.hpp"
#include "tests/support/eventually.hpp"
#include "turnstile/error.hpp"
#include "turnstile/ports/store.hpp"

namespace turnstile::detail {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kNoneWaits = "No result of this process waits for PostgreSQL any more";

/// A store that is away at first.
class LateClaims final : public ports::Claims {
 public:
  std::vector<ports::Claim> claim(const ports::ClaimScope&, std::span<const ports::InboxEntry>) override { return {}; }
  std::vector<bool> begin(HandlerId, const MessageId&, std::span<const ports::HeldClaim>) override { return {}; }
  std::vector<bool> renew(HandlerId, const MessageId&, std::chrono::milliseconds,
                          std::span<const ports::HeldClaim>) override {
    return {};
  }
  std::vector<bool> end(HandlerId, const MessageId&, std::span<const ports::ClaimEnd> ends) override {
    ++tries;
    if (away) throw StoreUnavailable("away");
    return std::vector<bool>(ends.size(), true);
  }
  std::atomic<int> tries{0};
  std::atomic<bool> away{true};
};

class PendingCompletionsTest : public ::testing::Test {
 protected:
  void add(const std::string& id) {
    late->add({{1}, MessageId::from("owner"), {"t", 0}, {{.claim = {MessageId::from(id), 1}}}, wait()});
  }
  std::shared_ptr<const PendingCompletions::Wait> wait() {
    return std::make_shared<PendingCompletions::Wait>(*late, [] {});
  }
  void wait_for_a_try() const {
    for (int i = 0; i < 1'000 && claims->tries == 0; ++i) std::this_thread::sleep_for(1ms);
  }

  test::CapturedLog log;
  const std::shared_ptr<LateClaims> claims = std::make_shared<LateClaims>();
  std::optional<PendingCompletions> late{
      std::in_place, claims, std::make_shared<RunLog>(std::make_shared<spdlog::logger>("t", log.sink()), "test")};
};

TEST_F(PendingCompletionsTest, records_at_its_end_what_the_store_takes_again) {
  add("one");
  add("two");
  wait_for_a_try();
  claims->away = false;
  late.reset();
  EXPECT_THAT(log.str(), Not(HasSubstr("not recorded")));
  EXPECT_THAT(log.str(), HasSubstr(kNoneWaits));
  EXPECT_GE(claims->tries, 3);
}

/// The last line with the code result_pending tells whether the process may be stopped.
TEST_F(PendingCompletionsTest, says_once_the_last_result_is_recorded_that_none_waits) {
  add("one");
  PendingCompletions another(claims,
                             std::make_shared<RunLog>(std::make_shared<spdlog::logger>("t", log.sink()), "test"));
  auto of_a_unit = std::make_shared<const PendingCompletions::Wait>(another, [] {});
  claims->away = false;
  ASSERT_TRUE(test::eventually([&] { return log.str().find("their results are recorded now") != std::string::npos; }));
  EXPECT_THAT(log.str(), Not(HasSubstr(kNoneWaits))) << "a unit of another consumer has one";
  of_a_unit.reset();
  EXPECT_THAT(log.str(), HasSubstr(kNoneWaits));
}

TEST_F(PendingCompletionsTest, reports_at_its_end_what_the_store_did_not_take) {
  add("one");
  add("two");
  wait_for_a_try();
  late.reset();
  EXPECT_THAT(log.str(), HasSubstr("Shutting down with 1 finished messages not recorded (PostgreSQL unavailable)"));
  EXPECT_THAT(log.str(), Not(HasSubstr(kNoneWaits)));
  EXPECT_LE(claims->tries, 4) << "the first that fails is the last";
}

}  // namespace
}  // namespace turnstile::detail
