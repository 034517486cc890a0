// break_on() in a consumer, with the in-memory broker and store: in each mode a failing service costs no attempts and no
// dead letters once the circuit breaker is open.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "tests/support/eventually.hpp"
#include "tests/unit/engine/engine_fixture.hpp"
#include "turnstile/error.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct ServiceDown : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class BreakerTest : public test::EngineTest {
 protected:
  void SetUp() override {
    topic("t", 2);
    topic("t.dlq", 1);
    settings.consumer.stall_after = 200ms;
  }
  void run(Pipeline pipeline) {
    app = consumer("t", std::move(pipeline) | retry(exponential{5ms, 8, 10ms}) | dead_letter(), settings);
    thread = start(*app);
  }
  void TearDown() override {
    if (app) app->stop();
    if (thread.joinable()) thread.join();
  }
  /// Fails while the service is down, and notes the highest attempt.
  auto handler() {
    return [this](const Message&, Context& context) {
      ++calls;
      for (int seen = highest; seen < context.attempt() && !highest.compare_exchange_weak(seen, context.attempt());) {
      }
      if (down) throw ServiceDown("no answer");
    };
  }
  bool is_open() const {
    const auto breakers = app->status().breakers;
    return breakers.size() == 1 && breakers[0].is_open;
  }

  Config settings = config();
  std::atomic<bool> down{true};
  std::atomic<int> calls{0}, highest{0};
  std::unique_ptr<Consumer> app;
  std::thread thread;
  static constexpr breaking kSoon{.percent = 50, .least = 6, .window = 10s, .open_for = 150ms};
};

struct BreakerCase {
  const char* name;
  Pipeline (*in)(Pipeline);
};
void PrintTo(const BreakerCase& mode, std::ostream* out) { *out << mode.name; }

class BreakerModes : public BreakerTest, public ::testing::WithParamInterface<BreakerCase> {};

INSTANTIATE_TEST_SUITE_P(Each, BreakerModes,
                         ::testing::Values(BreakerCase{"at_least_once", [](Pipeline p) { return p; }},
                                           BreakerCase{"transactional",
                                                       [](Pipeline p) { return std::move(p) | transactional(); }},
                                           BreakerCase{"leased", [](Pipeline p) { return std::move(p) | leased(); }}),
                         [](const auto& mode) { return std::string(mode.param.name); });

TEST_P(BreakerModes, no_attempt_counts_while_it_is_open_and_all_take_effect_once) {
  publish("t", 60);
  run(GetParam().in(handler()) | break_on(kSoon));
  ASSERT_TRUE(eventually([&] { return is_open(); })) << log_text();
  const int opened_at = calls;
  // Some probes fail.
  ASSERT_TRUE(eventually([&] { return calls >= opened_at + 4; })) << log_text();
  EXPECT_LE(highest, 6) << "6 calls open it";
  EXPECT_EQ(counts->done, 0);
  EXPECT_EQ(counts->stalled_at, -1);
  EXPECT_THAT(log_text(), AllOf(HasSubstr("the circuit breaker of topic t is open"), HasSubstr("code=breaker_open")));
  down = false;
  EXPECT_TRUE(eventually([&] { return counts->done == 60 && all_committed("t", 2); })) << log_text();
  EXPECT_TRUE(eventually([&] { return !is_open(); }));
  EXPECT_THAT(log_text(), HasSubstr("is closed: its probes succeeded"));
  EXPECT_TRUE(broker->records("t.dlq").empty());
  EXPECT_LE(highest, 6);
  EXPECT_TRUE(eventually([&] { return inbox->pauses()->active().empty(); })) << "the others learn it, too";
}

TEST_P(BreakerModes, batch_handlers_have_it_too) {
  publish("t", 60);
  run(GetParam().in(Pipeline([this](std::span<const Message>, Context& context) {
    ++calls;
    highest = std::max(highest.load(), context.attempt());
    if (down) throw ServiceDown("no answer");
  })) |
      break_on<ServiceDown>(kSoon));
  ASSERT_TRUE(eventually([&] { return is_open(); })) << log_text();
  down = false;
  EXPECT_TRUE(eventually([&] { return counts->done == 60 && all_committed("t", 2); })) << log_text();
  EXPECT_TRUE(broker->records("t.dlq").empty());
}

TEST_P(BreakerModes, what_is_not_thrown_from_std_counts_without_types) {
  publish("t", 60);
  run(GetParam().in(Pipeline([this](const Message&) {
    if (down) throw 42;
  })) |
      break_on(kSoon));
  ASSERT_TRUE(eventually([&] { return is_open(); })) << log_text();
  down = false;
  EXPECT_TRUE(eventually([&] { return counts->done == 60; })) << log_text();
  EXPECT_TRUE(broker->records("t.dlq").empty());
}

TEST_P(BreakerModes, an_outcome_counts_as_a_failure) {
  publish("t", 60);
  run(GetParam().in(Pipeline(
          [this](const Message&) { return down ? Outcome::retry_after(1ms, "no answer") : Outcome::done(); })) |
      break_on(kSoon));
  ASSERT_TRUE(eventually([&] { return is_open(); })) << log_text();
  down = false;
  EXPECT_TRUE(eventually([&] { return counts->done == 60; })) << log_text();
  EXPECT_TRUE(broker->records("t.dlq").empty());
}

TEST_F(BreakerTest, other_exceptions_do_not_count) {
  publish("t", 10);
  run(Pipeline([](const Message&) { throw std::invalid_argument("a wrong message"); }) | transactional() |
      break_on<ServiceDown>(kSoon));
  EXPECT_TRUE(eventually([&] { return broker->records("t.dlq").size() == 10; })) << log_text();
  EXPECT_FALSE(is_open());
}

TEST_F(BreakerTest, a_predicate_chooses_and_may_throw) {
  publish("t", 10);
  run(Pipeline([](const Message& message) {
        if (message.header("message-id") != "m0") return;
        throw std::runtime_error("a wrong message");
      }) |
      transactional() | break_on([](const std::exception& e) -> bool { throw std::logic_error(e.what()); }, kSoon));
  EXPECT_TRUE(eventually([&] { return broker->records("t.dlq").size() == 1 && counts->done == 9; })) << log_text();
  EXPECT_FALSE(is_open());
}

TEST_F(BreakerTest, one_key_that_always_fails_does_not_open_it) {
  publish("t", 70);
  run(Pipeline([](const Message& message) {
        if (message.key() == "3") throw ServiceDown("this key");
      }) |
      transactional() | ordered_by(Order::key) | batch(1) |
      break_on({.percent = 60, .least = 40, .window = 10s, .open_for = 100ms}));
  EXPECT_TRUE(eventually([&] { return broker->records("t.dlq").size() == 10 && counts->done == 60; })) << log_text();
}

TEST_F(BreakerTest, works_in_this_process_while_the_store_is_unavailable) {
  publish("t", 30);
  run(handler() | break_on(kSoon));
  ASSERT_TRUE(eventually([&] { return app->status().partitions.size() == 2; }));
  inbox->set_unavailable(true);
  ASSERT_TRUE(eventually([&] { return is_open(); })) << log_text();
  down = false;
  EXPECT_TRUE(eventually([&] { return counts->done == 30 && !is_open(); })) << log_text();
  EXPECT_TRUE(broker->records("t.dlq").empty());
  inbox->set_unavailable(false);
  EXPECT_TRUE(eventually([&] { return inbox->pauses()->active().empty(); }));
}

TEST_F(BreakerTest, an_operator_closes_it) {
  publish("t", 30);
  run(handler() | transactional() | break_on({.percent = 50, .least = 6, .window = 10s, .open_for = 1h}));
  ASSERT_TRUE(eventually([&] { return inbox->pauses()->active().size() == 1; })) << log_text();
  EXPECT_TRUE(app->status().pauses.empty()) << "it is no operator's pause";
  down = false;
  inbox->pauses()->end(inbox->pauses()->active().front().part);
  EXPECT_TRUE(eventually([&] { return counts->done == 30; })) << log_text();
}

TEST_F(BreakerTest, a_poll_loop_refuses_it) {
  publish("t", 1);
  PollLoop loop(settings, Backends{broker, inbox});
  loop.topic("t", handler() | break_on()).logger(logger);
  const OwnedMessage message = broker->records("t").front();
  EXPECT_THROW(loop.handle(Message(message)), ConfigError);
}

}  // namespace
}  // namespace turnstile
