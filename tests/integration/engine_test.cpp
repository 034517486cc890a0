// Order, limits and the watchdog on the real Apache Kafka, as the handlers themselves measure them.

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

#include "tests/support/postgres_schema.hpp"
#include "tests/support/running.hpp"
#include "tests/support/world.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

/// Counts the handlers that run at the moment, in total and for each key.
class Gauge {
 public:
  void work(const Message& message, std::chrono::milliseconds time) {
    const std::string key(message.key().value_or(""));
    {
      const std::lock_guard lock(mutex_);
      most_ = std::max(most_, ++inside_);
      most_of_a_key_ = std::max(most_of_a_key_, ++by_key_[key]);
      auto& last = last_[key];
      if (message.offset() < last) ++backwards_;
      last = message.offset();
    }
    std::this_thread::sleep_for(time);  // the work, not a wait
    const std::lock_guard lock(mutex_);
    --by_key_[key];
    --inside_;
    ++done_;
  }
  [[nodiscard]] int most() const { return locked(most_); }
  [[nodiscard]] int most_of_a_key() const { return locked(most_of_a_key_); }
  [[nodiscard]] int backwards() const { return locked(backwards_); }
  [[nodiscard]] int done() const { return locked(done_); }

 private:
  int locked(const int& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }
  mutable std::mutex mutex_;
  int inside_ = 0, most_ = 0, most_of_a_key_ = 0, backwards_ = 0, done_ = 0;
  std::map<std::string, int> by_key_;
  std::map<std::string, Offset> last_;
};

struct OrderCase {
  const char* order;
  bool side_by_side;  ///< whether several keys of one partition run at once
  bool same_key_at_once;
};
void PrintTo(const OrderCase& order, std::ostream* out) { *out << order.order; }

class Orders : public ::testing::TestWithParam<OrderCase> {};

TEST_P(Orders, are_kept_and_no_stricter_than_asked) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  for (int i = 0; i < 120; ++i) world.publish("m" + std::to_string(i), "fine", "k" + std::to_string(i % 4));
  Gauge gauge;
  Running consumer(world.config("order = \"" + std::string(GetParam().order) + "\"\nlimit = 8"), [&](Consumer& app) {
    app.topic(world.topic(), [&](const Message& message) { gauge.work(message, 10ms); });
  });
  ASSERT_TRUE(eventually([&] { return gauge.done() == 120; })) << consumer.log_text();
  EXPECT_EQ(gauge.most() > 1, GetParam().side_by_side) << "most at once: " << gauge.most();
  EXPECT_EQ(gauge.most_of_a_key() > 1, GetParam().same_key_at_once) << "most of a key: " << gauge.most_of_a_key();
  if (!GetParam().same_key_at_once) {
    EXPECT_EQ(gauge.backwards(), 0);
  }
  EXPECT_LE(gauge.most(), 8);
}

INSTANTIATE_TEST_SUITE_P(Each, Orders,
                         ::testing::Values(OrderCase{"partition", false, false}, OrderCase{"key", true, false},
                                           OrderCase{"none", true, true}),
                         [](const auto& c) { return std::string(c.param.order); });

TEST(Limits, hold_for_each_topic_by_itself) {
  TURNSTILE_NEEDS_SERVERS();
  World world(4);
  const std::string other = world.add_topic("other", 4);
  for (int i = 0; i < 200; ++i) {
    for (const auto& topic : {world.topic(), other}) {
      OwnedMessage message;
      message.topic = topic;
      message.partition = i % 4;
      message.headers = {{"message-id", std::to_string(i)}};
      world.publish(message);
    }
  }
  Gauge three, two;
  const std::string more = "[topics.\"" + other + "\"]\nlimit = 2\norder = \"none\"\nhandler_timeout = \"5s\"\n";
  Running consumer(world.config("limit = 3\norder = \"none\"", more), [&](Consumer& app) {
    app.topic(world.topic(), [&](const Message& message, Context& context) {
      three.work(message, 5ms);
      make_effect(world.schema(), message, context);
    } | transactional() | limit(99));  // the configuration overrides the code
    app.topic(other, [&](const Message& message) { two.work(message, 5ms); });
  });
  ASSERT_TRUE(eventually([&] { return three.done() >= 200 && two.done() == 200; })) << consumer.log_text();
  ASSERT_TRUE(eventually([&] { return world.effects().rows == 200; }));
  EXPECT_EQ(three.most(), 3) << "reached, and never exceeded";
  EXPECT_EQ(two.most(), 2);
}

TEST(Limits, are_shared_by_topics_that_name_the_same_limiter) {
  TURNSTILE_NEEDS_SERVERS();
  World world(2);
  const std::string other = world.add_topic("other", 2);
  for (int i = 0; i < 100; ++i) {
    for (const auto& topic : {world.topic(), other}) {
      OwnedMessage message;
      message.topic = topic;
      message.partition = i % 2;
      world.publish(message);
    }
  }
  Gauge both;
  const std::string more = "[topics.\"" + other + "\"]\norder = \"none\"\nhandler_timeout = \"5s\"\n";
  Running consumer(world.config("order = \"none\"", more), [&](Consumer& app) {
    for (const auto& topic : {world.topic(), other}) {
      app.topic(topic, [&](const Message& message) { both.work(message, 5ms); } | limit("psp", 2));
    }
  });
  ASSERT_TRUE(eventually([&] { return both.done() == 200; })) << consumer.log_text();
  EXPECT_EQ(both.most(), 2);
}

TEST(Watchdog, sets_the_stop_token_of_a_handler_that_runs_too_long_and_names_its_message) {
  TURNSTILE_NEEDS_SERVERS();
  World world(WorldOptions{.partitions = 1, .handler_timeout = "500ms"});
  world.publish("slow", "wait");
  world.publish("next", "fine");
  std::atomic<int> stopped{0};
  Running consumer(world.config(), [&](Consumer& app) {
    app.topic(world.topic(), [&](const Message& message, Context& context) -> Outcome {
      if (message.text() == "wait" && context.attempt() == 1) {
        std::mutex mutex;
        std::condition_variable_any never;
        std::unique_lock lock(mutex);
        if (never.wait_for(lock, context.stop_token(), 20s, [] { return false; })) return Outcome::done();
        stopped += context.stop_token().stop_requested() ? 1 : 0;
        return Outcome::retry_after(1ms, "asked to stop");
      }
      if (context.stop_token().stop_requested()) return Outcome::dead_letter("the token of another run");
      return Outcome::done();
    } | retry(exponential{1ms, 3}) | dead_letter());
  });
  ASSERT_TRUE(eventually([&] { return world.caught_up(); })) << consumer.log_text();
  EXPECT_EQ(stopped, 1);
  EXPECT_EQ(
      consumer.lines_with("the handler has run for longer than handler_timeout (500 ms), and its stop_token is set"),
      1);
  EXPECT_EQ(consumer.lines_with("raise handler_timeout code=handler_overdue topic=" + world.topic() +
                                " partition=0 offset=0"),
            1)
      << consumer.log_text();
  EXPECT_EQ(consumer.lines_with("dead letter to '"), 0) << consumer.log_text();
}

TEST(Watchdog, names_the_message_that_holds_a_partition) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  for (int i = 0; i < 3; ++i) world.publish("m" + std::to_string(i), i == 1 ? "hold" : "fine");
  std::atomic<bool> hold{true};
  Running consumer(world.config("order = \"none\"", "[consumer]\nstall_after = \"500ms\"\n"), [&](Consumer& app) {
    app.topic(world.topic(), [&](const Message& message) -> Outcome {
      if (message.text() == "hold" && hold) return Outcome::retry_after(50ms, "held");
      return Outcome::done();
    });
  });
  const auto said = [&] {
    const std::string text = consumer.log_text();
    const auto at = text.find("this message holds the partition");
    return at != std::string::npos &&
           text.substr(at, text.find('\n', at) - at).find(" topic=" + world.topic() + " partition=0 offset=1 ") !=
               std::string::npos;
  };
  EXPECT_TRUE(eventually(said)) << consumer.log_text();
  hold = false;
  EXPECT_TRUE(eventually([&] { return world.caught_up(); })) << consumer.log_text();
}

/// The host of the last owner is gone, or its process is stopped, in the middle of a transaction.
TEST(Watchdog, says_that_a_partition_cannot_be_claimed_while_its_last_owner_has_a_transaction_open) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  const Config config =
      world.config("mode = \"transactional\"", "lock_timeout = \"300ms\"\n[consumer]\nstall_after = \"500ms\"\n");
  const auto set_up = [&](Consumer& app) { app.topic(world.topic(), [](const Message&, Context&) {}); };
  world.publish("one", "fine");
  Running first(config, set_up);
  EXPECT_TRUE(eventually([&] { return world.caught_up(); })) << first.log_text();
  EXPECT_EQ(first.stop(), "");
  Sql last_owner(*postgres_url());
  last_owner.exec("BEGIN; SELECT * FROM " + world.schema() + ".fence FOR SHARE");
  world.publish("two", "fine");
  Running next(config, set_up);
  EXPECT_TRUE(next.says("another session holds a lock")) << next.log_text();
  EXPECT_TRUE(next.says("the partition could not be claimed in the database")) << next.log_text();
  EXPECT_TRUE(next.says("a row of " + world.schema() + ".fence is locked by pid ")) << next.log_text();
  EXPECT_FALSE(world.caught_up());
  last_owner.exec("ROLLBACK");
  EXPECT_TRUE(eventually([&] { return world.caught_up(); })) << next.log_text();
  EXPECT_EQ(next.stop(), "");
}

TEST(ModeNone, needs_no_database_and_delivers_all) {
  TURNSTILE_NEEDS_SERVERS();
  World world(2);
  const auto records = world.publish(200);
  std::mutex mutex;
  std::set<std::string> seen;
  std::atomic<std::int64_t> runs{0};
  Config config = world.config("order = \"key\"");
  config.postgres.reset();
  Running consumer(config, [&](Consumer& app) {
    app.topic(world.topic(), [&](const Message& message, Context& context) {
      EXPECT_THROW(static_cast<void>(context.tx()), std::logic_error);
      EXPECT_FALSE(context.fence().has_value());
      const std::lock_guard lock(mutex);
      seen.insert(std::string(message.header("message-id").value_or("")));
      ++runs;
    });
  });
  ASSERT_TRUE(eventually([&] { return world.caught_up(); })) << consumer.log_text();
  EXPECT_EQ(consumer.stop(), "");
  EXPECT_EQ(seen.size(), 200U);
  EXPECT_EQ(runs, records)
      << "mode at_least_once knows no duplicates: every record runs, none twice while nothing fails";
}

}  // namespace
}  // namespace turnstile::test
