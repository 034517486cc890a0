// The purger declares how long ids are needed, waits for its turn, and yields to other work.

#include "inbox/purger.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <deque>

#include "tests/support/captured_log.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/forwarding_store.hpp"
#include "turnstile/error.hpp"
#include "turnstile/testing/inbox.hpp"
#include "turnstile/topic_settings.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

/// Answers the steps as the test sets it, and counts them. The in-memory store does the rest.
class SteppedStore final : public ForwardingStore {
 public:
  SteppedStore() : ForwardingStore(std::make_shared<turnstile::testing::MemoryInbox>()) {}
  KeptIds keep_ids(HandlerId handler, std::optional<std::chrono::seconds> keep_for) override {
    ++said;
    auto kept = ForwardingStore::keep_ids(handler, keep_for);
    const std::lock_guard lock(mutex_);
    last_said_ = keep_for;
    kept.all_since = all_since_;
    return kept;
  }
  std::optional<std::chrono::seconds> last_said() {
    const std::lock_guard lock(mutex_);
    return last_said_;
  }
  ports::PurgeStep purge_step(std::int64_t) override {
    ++steps;
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw StoreUnavailable(failure_);
    if (answers_.empty()) return {0, 24h, false};
    const ports::PurgeStep step = answers_.front();
    answers_.pop_front();
    return step;
  }

  void answer(std::deque<ports::PurgeStep> answers) {
    const std::lock_guard lock(mutex_);
    answers_ = std::move(answers);
  }
  void fail(const std::string& why) {
    const std::lock_guard lock(mutex_);
    failure_ = why;
  }
  void forget_before(Timestamp time) {
    const std::lock_guard lock(mutex_);
    all_since_ = time;
  }

  std::atomic<int> said{0};
  std::atomic<int> steps{0};

 private:
  std::mutex mutex_;
  std::deque<ports::PurgeStep> answers_;
  std::string failure_;
  std::optional<Timestamp> all_since_;
  std::optional<std::chrono::seconds> last_said_;
};

class CleanerTest : public ::testing::Test {
 protected:
  CleanerTest() {
    const auto sink = out_.sink();
    run_log_ = std::make_shared<detail::RunLog>(std::make_shared<spdlog::logger>("purger", sink), "member");
  }
  std::shared_ptr<detail::HandlerRetention> retention(std::optional<std::chrono::seconds> keep_for) {
    return std::make_shared<detail::HandlerRetention>(*store_, store_->register_handler("charge"), "charge", keep_for);
  }
  void start(detail::Purger::Settings settings, std::shared_ptr<detail::HandlerRetention> handler) {
    purger_ = std::make_unique<detail::Purger>(settings, std::vector{std::move(handler)}, store_, run_log_);
  }
  /// The log after the purger has ended.
  std::string log() {
    purger_.reset();
    return out_.str();
  }
  static int count(const std::string& text, const std::string& what) {
    int found = 0;
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
    return found;
  }

  static inline const detail::Purger::Settings kQuick{
      .purge = true, .most = 100, .say_every = 10ms, .look_first = 10ms, .look_every = 10ms};
  test::CapturedLog out_;
  std::shared_ptr<detail::RunLog> run_log_;
  std::shared_ptr<SteppedStore> store_ = std::make_shared<SteppedStore>();
  std::unique_ptr<detail::Purger> purger_;
};

TEST_F(CleanerTest, goes_on_while_there_is_more_and_then_says_how_much) {
  store_->answer({{100, 0ms, false}, {100, 0ms, false}, {7, 0ms, false}, {0, 24h, false}});
  start(kQuick, retention(1h));
  EXPECT_TRUE(eventually([&] { return store_->steps >= 4; }));
  EXPECT_THAT(log(), HasSubstr("deleted 207 ids"));
  EXPECT_EQ(store_->steps, 4) << "then it sleeps for minutes";
}

TEST_F(CleanerTest, leaves_the_rest_to_a_rival) {
  store_->answer({{0, 0ms, true}});
  auto settings = kQuick;
  settings.look_every = 50ms;
  start(settings, retention(1h));
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(eventually([&] { return store_->steps >= 2; }));
  EXPECT_GE(std::chrono::steady_clock::now() - began, 25ms) << "half of look_every, at least";
}

TEST_F(CleanerTest, with_purge_off_it_only_says_how_long_ids_are_needed) {
  auto settings = kQuick;
  settings.purge = false;
  start(settings, retention(1h));
  EXPECT_TRUE(eventually([&] { return store_->said >= 4; }));
  log();
  EXPECT_EQ(store_->steps, 0);
}

TEST_F(CleanerTest, hears_how_far_back_ids_are_known) {
  const auto handler = retention(1h);
  EXPECT_EQ(handler->all_since(), Timestamp::min());
  start(kQuick, handler);
  const Timestamp since(std::chrono::milliseconds(1'700'000'000'123));
  store_->forget_before(since);
  EXPECT_TRUE(eventually([&] { return handler->all_since() == since; }));
}

TEST_F(CleanerTest, says_a_trouble_once_and_goes_on) {
  store_->fail("the database is away");
  start(kQuick, retention(1h));
  EXPECT_TRUE(eventually([&] { return store_->steps >= 5; }));
  store_->answer({{3, 0ms, false}});
  store_->fail("");
  const int before = store_->steps;
  EXPECT_TRUE(eventually([&] { return store_->steps >= before + 2; }));
  const std::string text = log();
  EXPECT_THAT(text, HasSubstr("deleted 3 ids"));
  EXPECT_EQ(count(text, "the database is away"), 1) << text;
}

TEST_F(CleanerTest, says_nothing_of_an_outage_that_is_soon_over) {
  store_->fail("the database is away");
  auto settings = kQuick;
  settings.look_every = 300ms;
  start(settings, retention(1h));
  EXPECT_TRUE(eventually([&] { return store_->steps >= 1; }));
  store_->fail("");
  EXPECT_TRUE(eventually([&] { return store_->steps >= 2; }));
  EXPECT_THAT(log(), Not(HasSubstr("the database is away")));
}

TEST_F(CleanerTest, says_when_others_need_ids_for_longer) {
  retention(14 * 24h);
  start(kQuick, retention(24h));
  EXPECT_THAT(
      log(),
      HasSubstr(
          "ids of handler charge are kept for 14 d, as other or earlier consumers have declared; this process needs them for 1 d"));
  store_ = std::make_shared<SteppedStore>();
  out_.clear();
  start(kQuick, retention(24h));
  EXPECT_THAT(log(), Not(HasSubstr("consumers have declared")));
}

TEST_F(CleanerTest, says_when_forever_ends) {
  retention(std::nullopt);
  start(kQuick, retention(24h));
  EXPECT_THAT(log(),
              HasSubstr("kept for ever, as other or earlier consumers have declared; this process needs them for "
                        "1 d. A declaration of forever ends 8 days after it was last made"));
}

TEST_F(CleanerTest, declares_a_duration_as_soon_as_it_is_known) {
  std::atomic<int> asked{0};
  const auto handler =
      std::make_shared<detail::HandlerRetention>(*store_, store_->register_handler("charge"), "charge", std::nullopt,
                                                 [&]() -> std::optional<detail::HandlerRetention::Needed> {
                                                   switch (++asked) {
                                                     case 1: throw std::runtime_error("no broker answers");
                                                     case 2: return std::nullopt;
                                                     default: return detail::HandlerRetention::Needed{15 * 24h};
                                                   }
                                                 });
  EXPECT_EQ(store_->last_said(), std::nullopt) << "unknown is forever";
  start(kQuick, handler);
  EXPECT_TRUE(eventually([&] { return store_->last_said() == std::chrono::seconds(15 * 24h); }));
  EXPECT_EQ(handler->keep_for(), std::chrono::seconds(15 * 24h));
  const int said = store_->said;
  EXPECT_TRUE(eventually([&] { return store_->said >= said + 2; }));
  EXPECT_EQ(asked, 3) << "it is known";
  const std::string text = log();
  EXPECT_EQ(count(text, "the retention of the topic of handler charge is known now: its ids are needed for 15 d"), 1)
      << text;
}

TEST_F(CleanerTest, ends_at_once_while_it_sleeps) {
  start({.say_every = 1h, .look_first = 1h, .look_every = 1h}, retention(1h));
  const auto began = std::chrono::steady_clock::now();
  purger_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 5s);
}

TEST(KeepIdsByDefault, is_a_day_longer_than_a_record_can_stay) {
  constexpr auto kEver = std::chrono::milliseconds::max();
  EXPECT_EQ(keep_ids_by_default(1h, 1h), kKeepIdsByDefault) << "8 days at least";
  EXPECT_EQ(keep_ids_by_default(7 * 24h, 7 * 24h), 15 * 24h) << "Kafka's defaults";
  EXPECT_EQ(keep_ids_by_default(30 * 24h, std::nullopt), 38 * 24h);
  EXPECT_EQ(longest_stay(1h, 2h), 3h);
  EXPECT_EQ(keep_ids_by_default(kEver, 1h), std::nullopt);
  EXPECT_EQ(keep_ids_by_default(std::nullopt, 1h), std::nullopt);
  EXPECT_EQ(keep_ids_by_default(7 * 24h, kEver), std::nullopt);
  EXPECT_EQ(keep_ids_by_default(std::chrono::milliseconds(std::int64_t{1} << 62), 1h), std::nullopt);
}

}  // namespace
}  // namespace turnstile::test
