// Tokens without a handler: which answer a request gets, and what happens to a token that is held for too long.

#include "turnstile/token_service.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <future>
#include <mutex>
#include <thread>

#include "tests/support/eventually.hpp"
#include "turnstile/error.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;
using test::eventually;

constexpr auto kPatience = 20s;

/// Runs when the test tells it to.
class ByHand final : public ExpiryStrategy {
 public:
  explicit ByHand(Run& run) : run_(run) {}
  void start(Run run) override { run_ = std::move(run); }
  void stop() override { run_ = nullptr; }

 private:
  Run& run_;
};

class Tokens : public ::testing::Test {
 protected:
  Tokens() { tokens_.limit("psp", 2); }
  TokenAnswer ask(std::int64_t count = 1, std::chrono::milliseconds timeout = 0ms) {
    return tokens_.request("psp", count, Priority::normal, timeout);
  }
  static Granted granted(TokenAnswer answer) { return std::get<Granted>(std::move(answer)); }
  static Refused::Why why(const TokenAnswer& answer) { return std::get<Refused>(answer).why; }

  TokenService tokens_{make_local_limiters()};
};

TEST_F(Tokens, are_given_out_up_to_the_limit_and_again_when_they_are_released) {
  const auto first = granted(ask()), second = granted(ask());
  EXPECT_NE(first.token, second.token);
  EXPECT_TRUE(std::holds_alternative<TimedOut>(ask()));
  EXPECT_EQ(tokens_.release(first.token), ReleaseAnswer::released);
  EXPECT_TRUE(std::holds_alternative<Granted>(ask()));
}

TEST_F(Tokens, may_stand_for_several_permits) {
  const auto both = granted(ask(2));
  EXPECT_TRUE(std::holds_alternative<TimedOut>(ask()));
  tokens_.release(both.token);
  const auto one = granted(ask());
  EXPECT_TRUE(std::holds_alternative<TimedOut>(ask(2))) << "one is not enough for two";
}

TEST_F(Tokens, are_refused_with_a_reason_where_waiting_would_not_help) {
  EXPECT_EQ(why(ask(3)), Refused::Why::bad_count);
  EXPECT_EQ(why(ask(0)), Refused::Why::bad_count);
  EXPECT_EQ(why(ask(-1)), Refused::Why::bad_count);
  const auto unknown = tokens_.request("pspp", 1, Priority::normal, kPatience);
  EXPECT_EQ(why(unknown), Refused::Why::unknown_limiter);
  EXPECT_NE(std::get<Refused>(unknown).text.find("'pspp'"), std::string::npos);
}

TEST_F(Tokens, answer_for_each_wrong_release_and_keep_what_it_was) {
  const auto mine = granted(ask());
  TokenService other{make_local_limiters()};
  EXPECT_EQ(other.release(mine.token), ReleaseAnswer::foreign);
  EXPECT_EQ(other.keep(mine.token), KeepAnswer::foreign);
  const TokenId never{mine.token.service, mine.token.number + 100};
  EXPECT_EQ(tokens_.release(never), ReleaseAnswer::unknown);
  EXPECT_EQ(tokens_.keep(never), KeepAnswer::unknown);
  EXPECT_EQ(tokens_.keep(mine.token), KeepAnswer::kept);
  EXPECT_EQ(tokens_.release(mine.token), ReleaseAnswer::released);
  EXPECT_EQ(tokens_.release(mine.token), ReleaseAnswer::already);
  EXPECT_EQ(tokens_.keep(mine.token), KeepAnswer::already);
  EXPECT_EQ(granted(ask(2)).token.number, mine.token.number + 1) << "released twice, it came back once";
  EXPECT_TRUE(std::holds_alternative<TimedOut>(ask()));
}

TEST_F(Tokens, keep_their_limiter_when_it_is_made_known_again) {
  const auto both = granted(ask(2));
  std::atomic<bool> got{false};
  std::jthread waits([&] { got = std::holds_alternative<Granted>(ask(1, kPatience)); });
  EXPECT_TRUE(eventually([&] { return tokens_.waiting() == 1; }));
  tokens_.limit("psp", 2);
  tokens_.release(both.token);
  waits.join();
  EXPECT_TRUE(got);
  tokens_.limit("psp", 2);
  EXPECT_EQ(tokens_.outstanding().at(0).limiter, "psp");
  EXPECT_THROW(tokens_.limit("psp", 3), Error);
  EXPECT_TRUE(std::holds_alternative<Granted>(ask())) << "of the 2";
  EXPECT_TRUE(std::holds_alternative<TimedOut>(ask())) << "no third";
}

TEST_F(Tokens, are_handed_to_those_who_wait_in_their_order_and_urgent_ones_first) {
  const auto both = granted(ask(2));
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> order;
  std::vector<std::jthread> threads;
  const auto wait_as = [&](int number, Priority priority) {
    threads.emplace_back([&, number, priority] {
      const auto answer = tokens_.request("psp", 2, priority, kPatience);
      {
        const std::lock_guard lock(mutex);
        order.push_back(number);
        changed.notify_all();
      }
      tokens_.release(std::get<Granted>(answer).token);
    });
    EXPECT_TRUE(eventually([&] { return tokens_.waiting() == static_cast<std::size_t>(number); }));
  };
  wait_as(1, Priority::normal);
  wait_as(2, Priority::normal);
  wait_as(3, Priority::urgent);
  tokens_.release(both.token);
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, kPatience, [&] { return order.size() == 3; }));
  EXPECT_EQ(order, (std::vector<int>{3, 1, 2}));
}

TEST_F(Tokens, that_come_too_late_leak_nothing) {
  const auto both = granted(ask(2));
  EXPECT_TRUE(std::holds_alternative<TimedOut>(ask(1, 1ms)));
  tokens_.release(both.token);
  EXPECT_TRUE(std::holds_alternative<Granted>(ask(2))) << "the one that gave up holds nothing";
  EXPECT_EQ(tokens_.counts().timed_out, 1u);
}

TEST_F(Tokens, are_waited_for_without_end_where_the_timeout_is_the_longest_there_is) {
  const auto both = granted(ask(2));
  std::atomic<bool> got{false};
  std::jthread waits([&] { got = std::holds_alternative<Granted>(ask(1, std::chrono::milliseconds::max())); });
  EXPECT_TRUE(eventually([&] { return tokens_.waiting() == 1; }));
  tokens_.release(both.token);
  waits.join();
  EXPECT_TRUE(got);
  EXPECT_EQ(tokens_.counts().timed_out, 0U);
}

TEST_F(Tokens, are_waited_for_no_longer_once_the_callers_stop_token_is_set) {
  const auto both = granted(ask(2));
  std::stop_source stop;
  std::atomic<bool> cancelled{false};
  std::jthread waits([&] {
    const auto answer = tokens_.request("psp", 1, Priority::normal, std::chrono::milliseconds::max(), stop.get_token());
    cancelled = why(answer) == Refused::Why::cancelled;
  });
  EXPECT_TRUE(eventually([&] { return tokens_.waiting() == 1; }));
  stop.request_stop();
  waits.join();
  EXPECT_TRUE(cancelled);
  EXPECT_EQ(why(tokens_.request("psp", 1, Priority::normal, kPatience, stop.get_token())), Refused::Why::cancelled);
  EXPECT_FALSE(tokens_.acquire("psp", kPatience, stop.get_token()));
  tokens_.release(both.token);
  EXPECT_TRUE(std::holds_alternative<Granted>(ask(2))) << "nothing was taken";
}

/// Two users of one limit in one process: a consumer's topic and the service.
TEST(TokenQueue, is_shared_fairly_with_others_in_the_process_who_never_wait_long) {
  const auto limiters = make_local_limiters();
  TokenService tokens{limiters};
  tokens.limit("psp", 2);
  const auto handlers = limiters->open_for_partitions("psp", 2);
  // Each worker does what a consumer does: it takes a permit if one is free, and waits otherwise. Two workers always
  // want one.
  std::atomic<bool> over{false};
  std::vector<std::jthread> workers;
  for (int i = 0; i < 2; ++i) {
    workers.emplace_back([&] {
      while (!over) {
        std::mutex mutex;
        std::condition_variable come;
        Permit permit = handlers->try_acquire_fairly(1);
        if (!permit) {
          handlers->acquire_later(1, Priority::normal, [&](Permit one) {
            const std::lock_guard lock(mutex);
            permit = std::move(one);
            come.notify_one();
          });
        }
        std::unique_lock lock(mutex);
        come.wait(lock, [&] { return static_cast<bool>(permit); });
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    const auto answer = tokens.request("psp", 2, i % 2 == 0 ? Priority::urgent : Priority::normal, kPatience);
    over = over || !std::holds_alternative<Granted>(answer);
    ASSERT_TRUE(std::holds_alternative<Granted>(answer)) << "round " << i;
    tokens.release(std::get<Granted>(answer).token);
  }
  over = true;
}

TEST(TokenQueue, has_an_end) {
  TokenService tokens{make_local_limiters(), {.most_waiting = 1}};
  tokens.limit("psp", 1);
  const auto held = std::get<Granted>(tokens.request("psp", 1, Priority::normal, 0ms));
  std::jthread waits([&] {
    const auto answer = tokens.request("psp", 1, Priority::normal, kPatience);
    tokens.release(std::get<Granted>(answer).token);
  });
  EXPECT_TRUE(eventually([&] { return tokens.waiting() == 1; }));
  const auto refused = tokens.request("psp", 1, Priority::normal, kPatience);
  EXPECT_EQ(std::get<Refused>(refused).why, Refused::Why::queue_full);
  tokens.release(held.token);
}

TEST(TokenQueue, is_told_when_the_service_ends) {
  auto tokens = std::make_unique<TokenService>(make_local_limiters());
  tokens->limit("psp", 1);
  auto held = tokens->acquire("psp", 0ms);
  std::atomic<bool> stopped{false};
  std::jthread waits([&, service = tokens.get()] {
    const auto answer = service->request("psp", 1, Priority::normal, kPatience);
    stopped = std::get<Refused>(answer).why == Refused::Why::stopped;
  });
  EXPECT_TRUE(eventually([&] { return tokens->waiting() == 1; }));
  tokens.reset();
  waits.join();
  EXPECT_TRUE(stopped);
}

/// Like the limiters of connect(), this is not a TokenDomain: callers know only the port.
class HaltingLimiters final : public ports::Limiters {
 public:
  std::shared_ptr<ports::Limiter> open(const std::string& name, std::int64_t limit) override {
    return of_->open(name, limit);
  }
  LimitersHealth health() const override {
    if (halted) return {LimitersHealth::State::halted, "the token log was deleted: start all members again"};
    return {};
  }
  std::atomic<bool> halted{false};

 private:
  const std::shared_ptr<ports::Limiters> of_ = make_local_limiters();
};

class HaltedTokens : public ::testing::Test {
 protected:
  HaltedTokens() { tokens_.limit("psp", 1); }
  static void expect_no_more_starts(const TokenAnswer& answer) {
    const auto* refused = std::get_if<Refused>(&answer);
    ASSERT_NE(refused, nullptr);
    EXPECT_EQ(refused->why, Refused::Why::no_more_starts);
    EXPECT_NE(refused->text.find("start all members again"), std::string::npos) << refused->text;
  }
  std::shared_ptr<HaltingLimiters> limiters_ = std::make_shared<HaltingLimiters>();
  TokenService tokens_{limiters_};
};

TEST_F(HaltedTokens, are_refused_to_those_who_ask) {
  const auto held = std::get<Granted>(tokens_.request("psp", 1, Priority::normal, 0ms));
  limiters_->halted = true;
  expect_no_more_starts(tokens_.request("psp", 1, Priority::normal, 0ms));
  expect_no_more_starts(tokens_.request("psp", 1, Priority::normal, kPatience));
  EXPECT_FALSE(tokens_.acquire("psp", kPatience));
  EXPECT_EQ(tokens_.counts().refused, 2U);
  EXPECT_EQ(tokens_.release(held.token), ReleaseAnswer::released);
}

/// Such callers once waited forever.
TEST_F(HaltedTokens, are_refused_to_those_who_wait_already) {
  const auto held = std::get<Granted>(tokens_.request("psp", 1, Priority::normal, 0ms));
  std::promise<TokenAnswer> answer;
  std::promise<bool> acquired;
  std::thread([&] {
    answer.set_value(tokens_.request("psp", 1, Priority::normal, std::chrono::milliseconds::max()));
  }).detach();
  std::thread([&] {
    acquired.set_value(static_cast<bool>(tokens_.acquire("psp", std::chrono::milliseconds::max())));
  }).detach();
  ASSERT_TRUE(eventually([&] { return tokens_.waiting() == 2; }));
  limiters_->halted = true;
  auto answered = answer.get_future();
  auto came = acquired.get_future();
  const bool all = answered.wait_for(kPatience) == std::future_status::ready &&
                   came.wait_for(kPatience) == std::future_status::ready;
  EXPECT_TRUE(all);
  if (!all) std::_Exit(1);  // their threads use objects that would be destroyed here
  expect_no_more_starts(answered.get());
  EXPECT_FALSE(came.get());
  EXPECT_EQ(tokens_.waiting(), 0U);
  limiters_->halted = false;
  EXPECT_EQ(tokens_.release(held.token), ReleaseAnswer::released);
  EXPECT_TRUE(tokens_.acquire("psp", 0ms)) << "those who gave up hold nothing";
}

class HeldPermits : public ::testing::TestWithParam<OnHold> {
 protected:
  HeldPermits() { tokens_.limit("psp", 1); }
  bool free() { return static_cast<bool>(tokens_.acquire("psp", 0ms)); }
  /// Runs until something has expired.
  void expire() {
    EXPECT_TRUE(eventually([&, before = tokens_.counts()] {
      run_(1'000, 1s);
      const auto now = tokens_.counts();
      return now.held_too_long != before.held_too_long || now.taken_back != before.taken_back;
    }));
  }

  ExpiryStrategy::Run run_;
  TokenService tokens_{
      make_local_limiters(), {.hold_timeout = 20ms, .on_hold = GetParam()}, std::make_unique<ByHand>(run_)};
  Granted held_ = [this] {
    tokens_.limit("psp", 1);
    return std::get<Granted>(tokens_.request("psp", 1, Priority::normal, 0ms));
  }();
};

TEST_P(HeldPermits, for_too_long_is_cancelled_kept_or_taken_back_as_the_policy_says) {
  expire();
  EXPECT_EQ(tokens_.counts().held_too_long, 1u);
  EXPECT_EQ(held_.lost.stop_requested(), GetParam() != OnHold::keep);
  EXPECT_EQ(free(), GetParam() == OnHold::release);
  EXPECT_EQ(tokens_.keep(held_.token), GetParam() == OnHold::keep      ? KeepAnswer::kept
                                       : GetParam() == OnHold::release ? KeepAnswer::expired
                                                                       : KeepAnswer::lost);
}

TEST_P(HeldPermits, past_the_hard_bound_is_taken_back_whatever_the_policy) {
  EXPECT_TRUE(eventually([&] {
    run_(1'000, 1s);
    return tokens_.counts().taken_back == 1;
  }));
  EXPECT_TRUE(held_.lost.stop_requested());
  EXPECT_TRUE(free());
  EXPECT_EQ(tokens_.release(held_.token), ReleaseAnswer::expired);
  EXPECT_EQ(tokens_.release(held_.token), ReleaseAnswer::expired);
  EXPECT_TRUE(free()) << "and it comes back once";
}

std::string name_of(const ::testing::TestParamInfo<OnHold>& tested) {
  switch (tested.param) {
    case OnHold::cancel: return "cancel";
    case OnHold::keep: return "keep";
    case OnHold::release: return "release";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(Each, HeldPermits, ::testing::Values(OnHold::cancel, OnHold::keep, OnHold::release), name_of);

TEST(Expiry, handles_no_more_at_once_than_it_may_and_says_how_many_are_left) {
  ExpiryStrategy::Run run;
  TokenService tokens{
      make_local_limiters(), {.hold_timeout = 1ms, .on_hold = OnHold::release}, std::make_unique<ByHand>(run)};
  tokens.limit("psp", 5'000);
  for (int i = 0; i < 5'000; ++i) (void)tokens.request("psp", 1, Priority::normal, 0ms);
  std::size_t left = 0;
  EXPECT_TRUE(eventually([&] {
    const auto before = tokens.counts().taken_back;
    left = run(1'000, 1s);
    EXPECT_LE(tokens.counts().taken_back - before, 1'000u);
    return tokens.counts().taken_back == 5'000;
  }));
  EXPECT_EQ(left, 0u);
}

TEST(Expiry, runs_by_itself_periodically) {
  TokenService tokens{make_local_limiters(), {.hold_timeout = 1ms, .on_hold = OnHold::release}};
  tokens.limit("psp", 1);
  (void)tokens.request("psp", 1, Priority::normal, 0ms);
  EXPECT_TRUE(static_cast<bool>(tokens.acquire("psp", kPatience)));
}

TEST(TokenIds, are_texts_and_back) {
  const TokenId id{0xfedcba9876543210, 18'446'744'073'709'551'615ULL};
  EXPECT_EQ(parse_token_id(to_text(id)), id);
  for (const char* text : {"", "-", "12", "12-", "-12", "xy-1", "12-1x", "12-99999999999999999999999"})
    EXPECT_EQ(parse_token_id(text), std::nullopt) << text;
}

}  // namespace
}  // namespace turnstile
