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
  ports::ClaimCounts count(std::optional<HandlerId>) override { return {}; }
  std::atomic<int> tries{0};
  std::atomic<bool> away{true};
};

class PendingCompletionsTest : public ::testing::Test {
 protected:
  void add(const std::string& id) {
    late->add({{1}, MessageId::from("owner"), {"t", 0}, {{.claim = {MessageId::from(id), 1}}}, wait()});
  }
  std::shared_ptr<const PendingCompletions::Wait> wait() {
    auto wait = std::make_shared<PendingCompletions::Wait>(*late, TopicPartition{"t", 0}, "handler", 7);
    wait->tell("it waits");
    return wait;
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
  EXPECT_THAT(log.str(), Not(HasSubstr("result_not_recorded")));
  EXPECT_THAT(log.str(), HasSubstr(kNoneWaits));
  EXPECT_GE(claims->tries, 3);
}

/// The last line with the code result_pending tells whether the process may be stopped.
TEST_F(PendingCompletionsTest, says_once_the_last_result_is_recorded_that_none_waits) {
  add("one");
  PendingCompletions another(claims,
                             std::make_shared<RunLog>(std::make_shared<spdlog::logger>("t", log.sink()), "test"));
  auto of_a_unit = std::make_shared<const PendingCompletions::Wait>(another, TopicPartition{"t", 1}, "handler", 7);
  of_a_unit->tell("it waits, too");
  claims->away = false;
  ASSERT_TRUE(test::eventually([&] { return log.str().find("their results are recorded now") != std::string::npos; }));
  EXPECT_THAT(log.str(), Not(HasSubstr(kNoneWaits))) << "a unit of another consumer has one";
  of_a_unit.reset();
  // The wait of "one" may end only now.
  EXPECT_TRUE(test::eventually([&] { return log.str().find(kNoneWaits) != std::string::npos; })) << log.str();
}

TEST_F(PendingCompletionsTest, tells_of_a_call_that_has_no_answer) {
  const PendingCompletions::Wait silent(*late, {"t", 0}, "handler", 7);
  EXPECT_THAT(log.str(), Not(HasSubstr("result_pending")));
  EXPECT_TRUE(test::eventually([&] { return log.str().find("has not taken its result yet") != std::string::npos; }));
}

/// Otherwise the last line would say that none waits.
TEST_F(PendingCompletionsTest, mentions_a_call_without_an_answer_before_it_says_that_none_waits) {
  auto told = wait();
  const auto began = std::chrono::steady_clock::now();
  const PendingCompletions::Wait silent(*late, {"t", 0}, "handler", 8);
  ASSERT_TRUE(test::eventually([&] { return std::chrono::steady_clock::now() > began + 150ms; }));
  told.reset();
  EXPECT_THAT(log.str(), Not(HasSubstr(kNoneWaits)));
  EXPECT_THAT(log.str(), HasSubstr("has not taken its result yet"));
}

TEST_F(PendingCompletionsTest, reports_at_its_end_what_the_store_did_not_take) {
  add("one");
  add("two");
  wait_for_a_try();
  late.reset();
  EXPECT_THAT(log.str(), HasSubstr("The process ends before PostgreSQL has taken the results"));
  EXPECT_THAT(log.str(), Not(HasSubstr(kNoneWaits)));
  EXPECT_LE(claims->tries, 4) << "the first that fails is the last";
}

}  // namespace
}  // namespace turnstile::detail
