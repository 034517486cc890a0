// What a consumer reports about itself, and what it does if it cannot continue, with the in-memory broker and store.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/support/captured_log.hpp"
#include "tests/support/eventually.hpp"
#include "turnstile/error.hpp"
#include "turnstile/ports/limiter.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/testing/harness.hpp"
#include "turnstile/testing/inbox.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using ::testing::HasSubstr;
using testing::MemoryBroker;
using testing::MemoryInbox;
using ::testing::Not;

/// Limiters within the process. They report the state that the test sets.
class ToldLimiters final : public ports::Limiters {
 public:
  std::shared_ptr<ports::Limiter> open(const std::string& name, std::int64_t limit) override;
  LimitersHealth health() const override {
    const std::lock_guard lock(mutex_);
    return health_;
  }
  void say(LimitersHealth::State state, std::string why) {
    const std::lock_guard lock(mutex_);
    health_ = {state, std::move(why)};
  }
  std::atomic<bool> shut{false};           ///< there are no permits
  std::atomic<std::int64_t> limit_now{1};  ///< the limit in the states of the limiters

 private:
  mutable std::mutex mutex_;
  LimitersHealth health_;
};

class ToldLimiter final : public ports::Limiter {
 public:
  ToldLimiter(std::string name, ToldLimiters& told) : name_(std::move(name)), told_(told) {}
  const std::string& name() const noexcept override { return name_; }
  Permit try_acquire() override { return told_.shut ? Permit() : Permit(shared_from_this(), 1, {}); }
  void when_free(std::function<void()>) override {}
  ports::LimiterState state() const override { return {.limit = told_.limit_now, .in_use = 0, .most_in_use = 0}; }

 protected:
  void release(std::uint64_t) noexcept override {}

 private:
  const std::string name_;
  ToldLimiters& told_;
};

std::shared_ptr<ports::Limiter> ToldLimiters::open(const std::string& name, std::int64_t) {
  return std::make_shared<ToldLimiter>(name, *this);
}

class HealthTest : public ::testing::Test {
 protected:
  ~HealthTest() override { stop_all(); }

  void publish(int n, std::int32_t partition, const std::optional<std::string>& id_prefix) {
    for (int i = 0; i < n; ++i) {
      OwnedMessage message;
      message.topic = "t";
      message.partition = partition;
      message.payload = "p";
      if (id_prefix) message.headers = {{"message-id", *id_prefix + std::to_string(i)}};
      broker->produce(message);
    }
  }
  Config config() {
    Config c;
    c.kafka["group.id"] = "billing";
    c.consumer.commit_interval = 20ms;
    c.consumer.stall_after = 200ms;
    c.consumer.drain_timeout = 5s;
    return c;
  }
  Consumer& start(Pipeline pipeline, const Config& c) {
    auto& app = *apps_.emplace_back(std::make_unique<Consumer>(c, Backends{broker, inbox, limiters}));
    app.topic("t", std::move(pipeline)).handle_signals(false).logger(logger);
    threads_.emplace_back([this, &app] {
      try {
        app.run();
      } catch (const Halted& e) {
        const std::lock_guard lock(mutex_);
        halted_ = e.what();
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex_);
        failure_ = e.what();
      }
    });
    return app;
  }
  void stop_all() {
    for (auto& app : apps_) app->stop();
    for (auto& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  std::string halted() {
    const std::lock_guard lock(mutex_);
    return halted_;
  }
  std::string log() {
    logger->flush();
    return text.str();
  }
  std::size_t times_logged(const std::string& what) {
    const std::string all = log();
    std::size_t times = 0;
    for (auto at = all.find(what); at != std::string::npos; at = all.find(what, at + 1)) ++times;
    return times;
  }
  /// Whether it reports a partition for this reason in the end.
  static bool reports(const Consumer& app, const std::string& reason) {
    return eventually([&] { return problem(app.health(), reason).has_value(); });
  }
  static std::optional<PartitionProblem> problem(const Health& health, const std::string& reason) {
    for (const auto& problem : health.problems) {
      if (problem.reason.find(reason) != std::string::npos) return problem;
    }
    return std::nullopt;
  }

  std::shared_ptr<MemoryBroker> broker = std::make_shared<MemoryBroker>("billing");
  std::shared_ptr<MemoryInbox> inbox = std::make_shared<MemoryInbox>();
  std::shared_ptr<ToldLimiters> limiters = std::make_shared<ToldLimiters>();
  test::CapturedLog text;
  std::shared_ptr<spdlog::logger> logger = std::make_shared<spdlog::logger>("test", text.sink());
  std::vector<std::unique_ptr<Consumer>> apps_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::string halted_, failure_;
};

const auto kNothing = [](const Message&) {};

constexpr const char* kGone = "the token log was deleted: stop all members, and start them again";

// --- a consumer that cannot continue ---------------------------------------------------------------------------------

TEST_F(HealthTest, says_in_which_state_it_is) {
  broker->create_topic("t", 2);
  Consumer idle(config(), Backends{broker, inbox, limiters});
  EXPECT_EQ(idle.health().state, Health::State::idle);
  EXPECT_FALSE(idle.health().is_ready());
  Consumer& app = start(kNothing | transactional(), config());
  EXPECT_TRUE(eventually([&] { return app.health().state == Health::State::running; }));
  const Health health = app.health();
  EXPECT_EQ(health.partitions, 2u);
  EXPECT_TRUE(health.problems.empty());
  EXPECT_TRUE(health.is_live() && health.is_ready());
  EXPECT_THAT(health.name, ::testing::MatchesRegex("billing@.+:[0-9]+"));
  EXPECT_THAT(log(), HasSubstr("member=" + health.name)) << "the process has one name";
  stop_all();
  EXPECT_EQ(app.health().state, Health::State::stopped);
}

TEST_F(HealthTest, ends_when_its_limiters_have_halted) {
  broker->create_topic("t", 1);
  Consumer& app = start(kNothing | transactional() | limit(1), config());
  ASSERT_TRUE(eventually([&] { return app.health().state == Health::State::running; }));
  limiters->say(LimitersHealth::State::halted, kGone);
  EXPECT_TRUE(eventually([&] { return !halted().empty(); }));
  EXPECT_EQ(halted(), kGone);
  EXPECT_EQ(app.health().state, Health::State::halted);
  EXPECT_EQ(app.health().reason, kGone);
  EXPECT_FALSE(app.health().is_live());
  EXPECT_THAT(log(), HasSubstr("this consumer cannot continue: " + std::string(kGone)));
}

TEST_F(HealthTest, a_halted_consumer_that_stays_releases_its_partitions_and_repeats_why) {
  broker->create_topic("t", 2);
  Config stays = config();
  stays.consumer.when_halted = HaltPolicy::release;
  stays.consumer.stall_after = 50ms;
  struct Told final : Observer {
    void on_status(const Status& status) noexcept override { last = status.health.state; }
    std::atomic<Health::State> last{Health::State::idle};
  };
  const auto told = std::make_shared<Told>();
  Consumer& app = start(kNothing | transactional() | limit(1) | observe(told), stays);
  ASSERT_TRUE(eventually([&] { return app.health().partitions == 2; }));
  limiters->say(LimitersHealth::State::halted, kGone);
  EXPECT_TRUE(eventually([&] { return times_logged("is halted, has left the group and does nothing") >= 3; })) << log();
  EXPECT_EQ(app.health().state, Health::State::halted);
  EXPECT_EQ(halted(), "") << "run() goes on";
  EXPECT_TRUE(eventually([&] { return told->last == Health::State::halted; })) << "metrics show it";

  limiters = std::make_shared<ToldLimiters>();
  publish(3, 0, "m");
  Consumer& other = start(kNothing | transactional() | limit(1), config());
  EXPECT_TRUE(broker->wait_committed({{"t", 0}, 3}, 20s)) << "another member has its partitions";
  EXPECT_EQ(other.health().partitions, 2u);
  stop_all();
  EXPECT_EQ(app.health().state, Health::State::halted);
}

TEST_F(HealthTest, a_halted_consumer_that_stays_records_the_results_that_wait) {
  broker->create_topic("t", 1);
  Config stays = config();
  stays.consumer.when_halted = HaltPolicy::release;
  stays.consumer.drain_timeout = 10ms;
  publish(1, 0, "m");
  start(Pipeline([this](const Message&) { inbox->set_unavailable(true); }) | leased() | limit(1), stays);
  ASSERT_TRUE(eventually([&] { return times_logged("its result could not be recorded; retrying") == 1; })) << log();
  limiters->say(LimitersHealth::State::halted, kGone);
  ASSERT_TRUE(eventually([&] { return times_logged("has left the group and does nothing") >= 1; })) << log();
  inbox->set_unavailable(false);
  EXPECT_TRUE(eventually([&] { return times_logged("their results are recorded now") == 1; })) << log();
  EXPECT_EQ(times_logged("The process ends before"), 0U) << log();
}

TEST_F(HealthTest, a_poll_loop_tells_its_caller_instead_of_waiting_for_ever) {
  broker->create_topic("t", 1);
  limiters->shut = true;
  limiters->say(LimitersHealth::State::halted, kGone);
  PollLoop loop(config(), Backends{broker, inbox, limiters});
  loop.topic("t", kNothing | transactional() | limit("psp", 1)).logger(logger);
  OwnedMessage message;
  message.topic = "t";
  message.headers = {{"message-id", "1"}};
  try {
    loop.handle(Message(message));
    FAIL() << "it was handled without a permit";
  } catch (const Halted& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("psp"), HasSubstr(kGone)));
  }
}

TEST_F(HealthTest, a_poll_loop_says_that_it_has_no_admin_endpoint) {
  Backends backends{broker, inbox, limiters};
  backends.serve = [](const AdminView&) { return nullptr; };
  PollLoop loop(config(), backends);
  loop.topic("t", kNothing | transactional()).logger(logger);
  OwnedMessage message;
  message.topic = "t";
  message.headers = {{"message-id", "1"}};
  loop.handle(Message(message));
  EXPECT_EQ(times_logged("a PollLoop has no admin endpoint"), 1U) << log();
}

TEST_F(HealthTest, says_that_it_waits_for_partitions) {
  broker->create_topic("t", 1);
  start(kNothing | transactional(), config());
  ASSERT_TRUE(eventually([&] { return apps_[0]->health().partitions == 1; }));
  Consumer& second = start(kNothing | transactional(), config());
  EXPECT_TRUE(
      eventually([&] { return times_logged("no partition of t was assigned to this consumer for 200ms") == 1; }));
  EXPECT_TRUE(eventually([&] {
    return (apps_[0]->health().state == Health::State::waiting) != (second.health().state == Health::State::waiting);
  }));
}

// --- what holds a partition ------------------------------------------------------------------------------------------

TEST_F(HealthTest, a_paused_limit_is_named_and_not_the_message) {
  broker->create_topic("t", 1);
  limiters->shut = true;
  limiters->limit_now = 0;
  publish(1, 0, "m");
  Consumer& app = start(kNothing | transactional() | limit("psp", 1), config());
  EXPECT_TRUE(reports(app, "limiter 'psp' is paused")) << log();
  EXPECT_TRUE(eventually([&] { return times_logged("s: limiter 'psp' is paused") >= 1; })) << log();
}

TEST_F(HealthTest, a_permit_that_is_waited_for_is_named) {
  broker->create_topic("t", 1);
  limiters->shut = true;
  limiters->limit_now = 7;
  publish(1, 0, "m");
  Consumer& app = start(kNothing | transactional() | limit("psp", 7), config());
  EXPECT_TRUE(reports(app, "it waits for a permit of limiter 'psp': of 7 at once this process uses 0")) << log();
}

TEST_F(HealthTest, a_token_log_that_is_out_of_reach_is_named) {
  broker->create_topic("t", 1);
  limiters->shut = true;
  limiters->say(LimitersHealth::State::cut_off, "nothing has come back from t.tokens");
  publish(1, 0, "m");
  Consumer& app = start(kNothing | transactional() | limit("psp", 7), config());
  EXPECT_TRUE(reports(app, "nothing has come back from t.tokens")) << log();
  EXPECT_FALSE(app.health().is_ready());
  EXPECT_TRUE(app.health().is_live()) << "it recovers by itself";
}

TEST_F(HealthTest, a_database_that_is_away_is_named) {
  broker->create_topic("t", 1);
  Consumer& app = start(kNothing | transactional(), config());
  ASSERT_TRUE(eventually([&] { return app.health().partitions == 1; }));
  publish(1, 0, "first");
  ASSERT_TRUE(broker->wait_committed({{"t", 0}, 1}, 20s)) << "the partition is claimed";
  inbox->set_unavailable(true);
  publish(1, 0, "m");
  EXPECT_TRUE(reports(app, "the database cannot be used")) << log();
  EXPECT_THAT(app.health().reason, HasSubstr("the database cannot be used"));
  inbox->set_unavailable(false);
  EXPECT_TRUE(broker->wait_committed({{"t", 0}, 2}, 20s));
  EXPECT_TRUE(eventually([&] { return app.health().problems.empty() && app.health().is_ready(); }));
}

TEST_F(HealthTest, a_handler_that_runs_is_named) {
  broker->create_topic("t", 1);
  std::atomic<bool> go{false};
  const auto slow = [&](const Message&) { eventually([&] { return go.load(); }); };
  publish(3, 0, "m");
  Consumer& app = start(slow | transactional(), config());
  EXPECT_TRUE(reports(app, "this message holds the partition: its handler has been running for")) << log();
  go = true;
  stop_all();
}

TEST_F(HealthTest, a_message_that_is_retried_is_named) {
  broker->create_topic("t", 1);
  publish(1, 0, "m");
  const auto fails = [](const Message&) { throw std::runtime_error("no"); };
  Consumer& app = start(fails | transactional() | retry(exponential{20s, 3}), config());
  EXPECT_TRUE(reports(app, "its last run failed, and the next one begins in")) << log();
}

// --- dead letters in a row -------------------------------------------------------------------------------------------

TEST_F(HealthTest, a_line_about_a_message_names_its_trace) {
  broker->create_topic("t", 1);
  OwnedMessage message;
  message.topic = "t";
  message.headers = {{"message-id", "m"}, {"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}};
  broker->produce(message);
  start(Pipeline([](const Message&) { throw std::runtime_error("no"); }) | transactional() | retry(exponential{20s, 3}),
        config());
  EXPECT_TRUE(eventually([&] { return times_logged("attempt 1 failed") == 1; })) << log();
  EXPECT_THAT(log(), HasSubstr("trace_id=4bf92f3577b34da6a3ce929d0e0e4736"));
}

TEST_F(HealthTest, a_wrong_id_source_stops_the_partition_before_all_of_it_is_dead) {
  for (const Order order : {Order::partition, Order::key, Order::none}) {
    broker = std::make_shared<MemoryBroker>("billing");
    inbox = std::make_shared<MemoryInbox>();
    broker->create_topic("t", 2);
    broker->create_topic("t.dlq", 1);
    publish(500, 0, std::nullopt);
    publish(50, 1, "m");
    Consumer& app = start(
        kNothing | transactional() | ordered_by(order) | dead_letter() | stop_after_dead(20) | batch(50), config());
    ASSERT_TRUE(reports(app, "missing_id")) << log();
    EXPECT_TRUE(broker->wait_committed({{"t", 1}, 50}, 20s)) << "the other partition goes on";
    EXPECT_TRUE(broker->wait_records("t.dlq", 20, 20s));
    EXPECT_EQ(broker->records("t.dlq").size(), 20u);
    const auto stopped = problem(app.health(), "missing_id");
    ASSERT_TRUE(stopped);
    EXPECT_EQ(stopped->at, (TopicPartition{"t", 0}));
    EXPECT_THAT(stopped->reason, HasSubstr("message_id = \"key\""));
    // Without the order of the partition, several workers make dead letters at the same time, and leave gaps below
    // them.
    if (order == Order::partition) {
      EXPECT_EQ(stopped->offset, 20);
      EXPECT_TRUE(broker->wait_committed({{"t", 0}, 20}, 20s));
    }
    EXPECT_LE(broker->committed({"t", 0}).value_or(0), 20);
    app.stop();
  }
  stop_all();
  EXPECT_EQ(times_logged("partition stopped: 20 messages in a row"), 3u) << "once each\n" << log();
}

TEST_F(HealthTest, dead_letters_between_good_ones_stop_nothing) {
  broker->create_topic("t", 1);
  broker->create_topic("t.dlq", 1);
  for (int i = 0; i < 30; ++i) {
    publish(19, 0, std::nullopt);
    publish(1, 0, "m" + std::to_string(i));
  }
  start(kNothing | transactional() | dead_letter() | stop_after_dead(20), config());
  EXPECT_TRUE(broker->wait_committed({{"t", 0}, 600}, 20s)) << log();
  EXPECT_EQ(broker->records("t.dlq").size(), 570u);
}

TEST_F(HealthTest, a_handler_that_fails_for_every_message_stops_the_partition) {
  broker->create_topic("t", 1);
  broker->create_topic("t.dlq", 1);
  publish(100, 0, "m");
  const auto fails = [](const Message&) { throw std::runtime_error("no such table"); };
  Consumer& app =
      start(fails | transactional() | retry(exponential{1ms, 1}) | dead_letter() | stop_after_dead(10), config());
  EXPECT_TRUE(reports(app, "10 messages in a row became dead letters for the same reason, failed")) << log();
  EXPECT_EQ(broker->records("t.dlq").size(), 10u);
  EXPECT_THAT(log(), HasSubstr("for the messages that are dead letters already: turnstile dlq replay --all --topic "));
}

/// In mode at_least_once, a dead letter has no row that `turnstile dlq replay` could use.
TEST_F(HealthTest, a_partition_that_stopped_in_mode_none_names_the_topic_of_its_dead_letters) {
  broker->create_topic("t", 1);
  broker->create_topic("t.dlq", 1);
  publish(100, 0, "m");
  const auto fails = [](const Message&) { throw std::runtime_error("no such table"); };
  Consumer& app = start(fails | retry(exponential{1ms, 1}) | dead_letter() | stop_after_dead(10), config());
  EXPECT_TRUE(reports(app, "publish the records in the topic 't.dlq' to 't' again")) << log();
  EXPECT_THAT(log(), Not(HasSubstr("turnstile dlq replay")));
}

TEST_F(HealthTest, a_topic_may_be_told_never_to_stop) {
  broker->create_topic("t", 1);
  broker->create_topic("t.dlq", 1);
  publish(300, 0, std::nullopt);
  start(kNothing | transactional() | dead_letter() | stop_after_dead(0), config());
  EXPECT_TRUE(broker->wait_committed({{"t", 0}, 300}, 20s)) << log();
}

TEST(HealthOfAHarness, tells_its_caller_that_too_many_died_in_a_row) {
  testing::Harness h{kNothing | transactional() | dead_letter() | stop_after_dead(3)};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(h.deliver(testing::message_without_id()), Settled::dead_letter);
  EXPECT_THROW(h.deliver(testing::message_without_id()), Halted);
  EXPECT_EQ(h.deliver(testing::message("good")), Settled::done);
  EXPECT_EQ(h.deliver(testing::message_without_id()), Settled::dead_letter) << "one went well between";
}

// --- at the start ----------------------------------------------------------------------------------------------------

TEST_F(HealthTest, the_start_shows_what_the_settings_come_to) {
  broker->create_topic("t", 1);
  broker->create_topic("failed", 1);
  Config c = config();
  c.topics["t"].order = Order::key;
  Consumer& app = start(kNothing | transactional() | limit("psp", 3) | retry(exponential{100ms, 4}) | id_from("key") |
                            dead_letter("failed") | break_on({.percent = 20}),
                        c);
  ASSERT_TRUE(eventually([&] { return app.health().partitions == 1; }));
  EXPECT_THAT(log(),
              HasSubstr("topic t: handler t, mode transactional, ids from key, order key, limit 3 as psp, 4 attempts, "
                        "100ms to 30s apart, then dead letter to failed, circuit breaker opens for 30s when 20% of at "
                        "least 20 calls within 10s fail"));
  EXPECT_THAT(log(), Not(HasSubstr("retried forever")));
}

TEST_F(HealthTest, a_retry_that_never_ends_is_told_of_at_the_start) {
  broker->create_topic("t", 1);
  Consumer& app = start(kNothing | transactional() | retry(exponential{100ms, 4}), config());
  ASSERT_TRUE(eventually([&] { return app.health().partitions == 1; }));
  EXPECT_THAT(
      log(), HasSubstr("topic t: retry is set to 4 attempts, but without a dead_letter a message that fails is retried "
                       "forever and blocks its partition"));
}

// --- check() ---------------------------------------------------------------------------------------------------------

TEST_F(HealthTest, check_looks_with_the_handlers_of_the_program) {
  broker->create_topic("t", 1);
  Backends backends{broker, inbox, limiters};
  std::optional<TopicSettings> seen;
  backends.look = [&](const Config& c, Findings& findings) {
    if (c.topics.contains("t")) seen = c.topics.at("t");
    findings.ok("a server", "answers");
  };
  Consumer app(config(), std::move(backends));
  app.topic("t", kNothing | transactional() | handler_id("charge") | limit(3));
  app.topic("u", kNothing | transactional() | handler_id("charge"));
  const auto findings = app.check();
  ASSERT_TRUE(seen) << "a topic that only the code names";
  EXPECT_EQ(seen->handler, "charge");
  EXPECT_EQ(seen->limit, 3);
  const auto problem = std::find_if(findings.begin(), findings.end(),
                                    [](const Finding& f) { return f.level == Finding::Level::problem; });
  ASSERT_NE(problem, findings.end());
  EXPECT_THAT(problem->text, HasSubstr("handler id 'charge' also belongs to topic 't'"));
  EXPECT_EQ(findings.back().subject, "a server");
}

TEST_F(HealthTest, check_tells_of_partitions_that_do_not_go_on) {
  broker->create_topic("t", 1);
  limiters->shut = true;
  limiters->limit_now = 0;
  publish(1, 0, "m");
  Consumer& app = start(kNothing | transactional() | limit("psp", 1), config());
  ASSERT_TRUE(reports(app, "limiter 'psp' is paused"));
  const auto findings = app.check();
  EXPECT_EQ(findings.back().subject, "partition t[0]");
  EXPECT_THAT(findings.back().text, HasSubstr("limiter 'psp' is paused"));
}

}  // namespace
}  // namespace turnstile
