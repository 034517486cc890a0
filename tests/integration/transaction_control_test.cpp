// Handlers that try to end the transaction of their batch. The other messages of the batch still take effect exactly
// once.

#include <gtest/gtest.h>

#include <functional>
#include <pqxx/pqxx>

#include "tests/support/running.hpp"
#include "tests/support/world.hpp"
#include "turnstile/inbox.hpp"
#include "turnstile/postgres/pqxx.hpp"
#include "turnstile/postgres/store.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

constexpr int kMessages = 20;

/// Publishes the messages before anybody reads, so that they come as batches. The tenth message does `what`.
void publish_with(World& world, const std::string& what) {
  for (int i = 0; i < kMessages; ++i) world.publish("m" + std::to_string(i), i == 9 ? what : "defer");
}

class TransactionControl : public ::testing::TestWithParam<const char*> {};

TEST_P(TransactionControl, costs_no_other_message_its_effect) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  publish_with(world, GetParam());
  Process consumer = world.consumer(world.toml("batch = 20"));
  ASSERT_TRUE(eventually([&] { return world.caught_up(); }, 60s)) << world.output();
  EXPECT_EQ(world.effects().rows, kMessages - 1);
  EXPECT_EQ(world.effects().distinct, kMessages - 1);
  EXPECT_EQ(world.query("SELECT count(*) FROM effect WHERE id = 'm9'"), "0");
  EXPECT_EQ(world.query("SELECT reason FROM dead"), "failed");
  EXPECT_NE(world.query("SELECT error FROM dead").find("2D000"), std::string::npos);
}

/// This test checks the count of the tests above. In a build that does not refuse the statements, the count must find
/// that messages are lost or doubled.
TEST_P(TransactionControl, is_found_by_the_count_where_it_is_not_refused) {
  TURNSTILE_NEEDS_SERVERS();
#if !defined(TURNSTILE_FAILPOINTS)
  GTEST_SKIP() << "this build has no failpoints";
#endif
  World world(1);
  publish_with(world, GetParam());
  const std::string toml = world.toml("batch = 20");
  Process bad = world.consumer(toml, {{"TURNSTILE_KNOWN_BAD", "handler_sql"}});
  EXPECT_EQ(bad.wait(60s), 1) << "it stops when the transaction of a batch has ended\n" << world.output();
  EXPECT_NE(world.output().find("ended the transaction"), std::string::npos) << world.output();
  Process next = world.consumer(toml);
  ASSERT_TRUE(eventually([&] { return world.caught_up(); }, 60s)) << world.output();
  const Effects effects = world.effects();
  // With units of one message, only the message itself is lost: it has neither an effect nor a dead letter.
  EXPECT_FALSE(effects.rows == kMessages - 1 && effects.distinct == kMessages - 1 &&
               world.query("SELECT count(*) FROM dead") == "1")
      << "nothing was lost or doubled, so this test proves nothing";
}

INSTANTIATE_TEST_SUITE_P(By, TransactionControl, ::testing::Values("exec:COMMIT", "queue:ROLLBACK"),
                         [](const auto& c) { return std::string(c.index == 0 ? "commit" : "rollback"); });

TEST(EndedTransaction, through_libpqxx_stops_the_consumer_with_the_place_and_the_remedy) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  publish_with(world, "mischief");
  const auto handler = [&](const Message& message, Context& context) {
    make_effect(world.schema(), message, context);
    if (message.text() == "mischief") postgres::native(context.tx()).exec("ROLLBACK AND CHAIN");
  };
  Running consumer(world.config("batch = 20"),
                   [&](Consumer& app) { app.topic(world.topic(), handler | transactional()); });
  const std::string why = consumer.failure(60s);
  EXPECT_NE(why.find(world.topic() + "[0] offset"), std::string::npos) << why;
  EXPECT_NE(why.find("Remove the statement from the handler"), std::string::npos) << why;
  EXPECT_EQ(consumer.lines_with("stopping: "), 2) << consumer.log_text();  // the reason, and the wait for handlers
  // No effect of the ended transaction is in the database without its ids, and no id without its effect.
  EXPECT_EQ(world.query("SELECT count(*) FROM effect"), world.query("SELECT count(*) FROM inbox"));
  Running healed(world.config("batch = 20"), [&](Consumer& app) {
    app.topic(world.topic(), [&](const Message& message, Context& context) {
      make_effect(world.schema(), message, context);
    } | transactional());
  });
  ASSERT_TRUE(eventually([&] { return world.effects().rows == kMessages; }, 60s)) << healed.log_text();
  EXPECT_EQ(world.effects().distinct, kMessages);
}

/// What the tenth message does becomes a failure of that message, and the other messages keep their effects. `error` is
/// a part of the error in its dead letter. The full text differs between versions of libpqxx.
void expect_one_dead(const std::function<void(Context&)>& what, const std::string& error,
                     const WorldOptions& options = {.partitions = 1},
                     const std::string& retry = "retry.attempts = 2\n") {
  World world(options);
  publish_with(world, "mischief");
  Running consumer(world.config("batch = 20\ndead_letter = \"\"\n" + retry), [&](Consumer& app) {
    app.topic(world.topic(), [&](const Message& message, Context& context) {
      make_effect(world.schema(), message, context);
      if (message.text() == "mischief") what(context);
    } | transactional());
  });
  ASSERT_TRUE(eventually([&] { return world.caught_up(); }, 90s)) << consumer.log_text();
  EXPECT_EQ(consumer.stop(), "");
  EXPECT_EQ(world.effects().rows, kMessages - 1);
  EXPECT_EQ(world.query("SELECT reason || ' after ' || attempts FROM dead"), "failed after 2") << consumer.log_text();
  EXPECT_NE(world.query("SELECT error FROM dead").find(error), std::string::npos) << consumer.log_text();
}

TEST(LostConnection, through_a_statement_of_the_handler_is_its_failure_in_the_end) {
  TURNSTILE_NEEDS_SERVERS();
  expect_one_dead([](Context& context) { context.tx().exec("SELECT pg_terminate_backend(pg_backend_pid())"); },
                  "57P01");
}

TEST(LostConnection, through_a_deferred_statement_is_its_failure_too) {
  TURNSTILE_NEEDS_SERVERS();
  expect_one_dead([](Context& context) { context.defer("SELECT pg_terminate_backend(pg_backend_pid())"); }, "57P01");
}

/// The database ends two tries of the tenth message, and the third try takes effect. Here, one failed attempt would
/// make it a dead letter.
void expect_no_failed_attempt(const std::function<void(Context&)>& what) {
  World world(1);
  publish_with(world, "mischief");
  int tries = 0;
  Running consumer(world.config("batch = 20\nretry.attempts = 1\ndead_letter = \"\"\n"), [&](Consumer& app) {
    app.topic(world.topic(), [&](const Message& message, Context& context) {
      make_effect(world.schema(), message, context);
      if (message.text() == "mischief" && ++tries <= 2) what(context);
    } | transactional());
  });
  ASSERT_TRUE(eventually([&] { return world.caught_up(); }, 60s)) << consumer.log_text();
  EXPECT_EQ(consumer.stop(), "");
  EXPECT_EQ(tries, 3) << consumer.log_text();
  EXPECT_EQ(world.effects().rows, kMessages);
  EXPECT_EQ(world.effects().distinct, kMessages);
  EXPECT_EQ(world.query("SELECT count(*) FROM dead"), "0") << consumer.log_text();
}

constexpr const char* kSerializationFailure = "DO $$ BEGIN RAISE 'in the way' USING ERRCODE = '40001'; END $$";
constexpr const char* kEndOfConnection = "SELECT pg_terminate_backend(pg_backend_pid())";

void is_busy(Context& context) { postgres::native(context.tx()).exec(kSerializationFailure); }

TEST(BusyDatabase, through_libpqxx_is_no_failed_attempt) {
  TURNSTILE_NEEDS_SERVERS();
  expect_no_failed_attempt(is_busy);
}

TEST(BusyDatabase, that_the_handler_passes_over_is_no_failed_attempt) {
  TURNSTILE_NEEDS_SERVERS();
  expect_no_failed_attempt([](Context& context) { EXPECT_THROW(is_busy(context), pqxx::serialization_failure); });
}

TEST(BusyDatabase, that_the_handler_says_in_its_own_words_is_no_failed_attempt) {
  TURNSTILE_NEEDS_SERVERS();
  expect_no_failed_attempt([](Context& context) {
    EXPECT_THROW(is_busy(context), pqxx::serialization_failure);
    throw std::runtime_error("no charge");
  });
}

TEST(BusyDatabase, within_a_savepoint_leaves_the_handler_its_own_failures) {
  TURNSTILE_NEEDS_SERVERS();
  expect_one_dead(
      [](Context& context) {
        pqxx::transaction_base& tx = postgres::native(context.tx());
        tx.exec("SAVEPOINT theirs");
        EXPECT_THROW(tx.exec(kSerializationFailure), pqxx::serialization_failure);
        tx.exec("ROLLBACK TO SAVEPOINT theirs");
        throw std::runtime_error("no charge");
      },
      "no charge");
}

TEST(LostConnection, through_libpqxx_is_no_failed_attempt) {
  TURNSTILE_NEEDS_SERVERS();
  expect_no_failed_attempt([](Context& context) { postgres::native(context.tx()).exec(kEndOfConnection); });
}

TEST(LostConnection, through_libpqxx_is_the_handlers_failure_in_the_end) {
  TURNSTILE_NEEDS_SERVERS();
  expect_one_dead([](Context& context) { postgres::native(context.tx()).exec(kEndOfConnection); },
                  "ended the connection, 10 times in a row");
}

TEST(LostConnection, that_the_handler_says_in_its_own_words_is_no_failed_attempt) {
  TURNSTILE_NEEDS_SERVERS();
  expect_no_failed_attempt([](Context& context) {
    EXPECT_THROW(context.tx().exec(kEndOfConnection), StoreUnavailable);
    throw std::runtime_error("no charge");
  });
}

/// Waits until the connection of this transaction is gone, and sends nothing on it.
void wait_for_the_end_of(const std::string& pid) {
  pqxx::connection other(*postgres_url());
  pqxx::nontransaction look(other);
  const std::string gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = " + pid;
  EXPECT_TRUE(eventually([&] { return look.exec(gone)[0][0].as<bool>(); }, 20s));
}

std::string pid_of(Context& context) { return *context.tx().exec("SELECT pg_backend_pid()").at(0, 0); }

TEST(LostConnection, that_the_handler_passes_over_is_no_failed_attempt) {
  TURNSTILE_NEEDS_SERVERS();
  expect_no_failed_attempt(
      [](Context& context) { EXPECT_THROW(context.tx().exec(kEndOfConnection), StoreUnavailable); });
}

/// The error of the handler then has nothing to do with the connection.
TEST(LostConnection, that_no_statement_has_met_leaves_the_handler_its_own_failures) {
  TURNSTILE_NEEDS_SERVERS();
  expect_one_dead(
      [](Context& context) {
        const std::string pid = pid_of(context);
        {
          pqxx::connection other(*postgres_url());
          pqxx::nontransaction(other).exec("SELECT pg_terminate_backend(" + pid + ")");
        }
        wait_for_the_end_of(pid);
        throw std::runtime_error("no charge");
      },
      "no charge");
}

TEST(LostConnection, for_a_transaction_that_was_open_for_too_long_is_a_failed_attempt_through_libpqxx_too) {
  TURNSTILE_NEEDS_SERVERS();
  expect_one_dead(
      [](Context& context) {
        pqxx::transaction_base& tx = postgres::native(context.tx());
        wait_for_the_end_of(tx.exec("SELECT pg_backend_pid()")[0][0].c_str());
        tx.exec("SELECT 1");
      },
      "", {.partitions = 1, .handler_timeout = "1s"});
}

TEST(RefusedCommit, that_the_handler_passes_over_is_its_failure) {
  TURNSTILE_NEEDS_SERVERS();
  expect_one_dead([](Context& context) { EXPECT_ANY_THROW(postgres::native(context.tx()).exec("COMMIT")); }, "2D000");
}

TEST(RefusedCommit, after_which_the_handler_goes_on_is_its_failure) {
  TURNSTILE_NEEDS_SERVERS();
  expect_one_dead(
      [](Context& context) {
        EXPECT_ANY_THROW(postgres::native(context.tx()).exec("COMMIT"));
        context.tx().exec("SELECT 1");
      },
      "2D000");
}

TEST(RefusedCommit, after_which_the_handler_writes_stops_the_consumer) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  publish_with(world, "mischief");
  Running consumer(world.config("batch = 20"), [&](Consumer& app) {
    app.topic(world.topic(), [&](const Message& message, Context& context) {
      make_effect(world.schema(), message, context);
      if (message.text() != "mischief") return;
      pqxx::transaction_base& tx = postgres::native(context.tx());
      EXPECT_ANY_THROW(tx.exec("COMMIT"));
      tx.exec("CREATE TABLE " + world.schema() + ".outside (n integer)");
      EXPECT_ANY_THROW(tx.exec("SELECT 1 / 0"));
    } | transactional());
  });
  EXPECT_NE(consumer.failure(60s).find("Remove the statement from the handler"), std::string::npos);
}

void leave(Context& context, const std::string& setting, const std::string& value) {
  context.tx().exec("SELECT set_config($1, $2, true)", setting, value);
}

void publish(Context& context) {
  OwnedMessage message;
  message.topic = "orders";
  context.publish(message);
}

TEST(ChangedRole, before_a_message_is_published_is_the_handlers_failure) {
  TURNSTILE_NEEDS_SERVERS();
  for (const auto& change : {std::pair{"role", "pg_monitor"}, {"transaction_read_only", "on"}}) {
    const auto* const setting = change.first;
    const auto* const value = change.second;
    expect_one_dead(
        [&](Context& context) {
          leave(context, setting, value);
          publish(context);
        },
        "restore the role");
  }
}

/// The message comes back for its second attempt, which ends its row.
TEST(ChangedRole, of_a_message_that_comes_back_is_the_handlers_failure) {
  TURNSTILE_NEEDS_SERVERS();
  expect_one_dead(
      [](Context& context) {
        if (context.attempt() == 1) throw std::runtime_error("no charge");
        leave(context, "role", "pg_monitor");
      },
      "restore the role", {.partitions = 1},
      "retry = { attempts = 2, durable = \"wait\", backoff = \"50ms..50ms\" }\n");
}

/// No other message is blamed for it, and no attempt of one counts.
TEST(ChangedRole, in_a_batch_costs_no_other_message_an_attempt) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  publish_with(world, "mischief");
  Running consumer(world.config("batch = 20\nretry.attempts = 1\ndead_letter = \"\"\n"), [&](Consumer& app) {
    app.topic(world.topic(), [&](const Message& message, Context& context) {
      if (message.text() != "mischief") publish(context);
      make_effect(world.schema(), message, context);
      if (message.text() == "mischief") leave(context, "transaction_read_only", "on");
    } | transactional());
  });
  ASSERT_TRUE(eventually([&] { return world.caught_up(); }, 60s)) << consumer.log_text();
  EXPECT_EQ(consumer.stop(), "");
  EXPECT_EQ(world.effects().distinct, kMessages - 1) << consumer.log_text();
  EXPECT_EQ(world.query("SELECT count(*) FROM dead"), "1") << consumer.log_text();
}

/// The statements of these handlers could have changed their role.
TEST(RefusedOutbox, is_an_outage_and_no_handlers_failure) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  publish_with(world, "defer");
  static_cast<void>(world.query(
      "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no' USING ERRCODE = '42501'; END $$"));
  static_cast<void>(
      world.query("CREATE TRIGGER refusing BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION refuse()"));
  Running consumer(world.config("batch = 20\nretry.attempts = 1\ndead_letter = \"\"\n"), [&](Consumer& app) {
    app.topic(world.topic(), [&](const Message& message, Context& context) {
      make_effect(world.schema(), message, context);
      context.tx().exec("SELECT pg_sleep(0)");
      publish(context);
    } | transactional());
  });
  EXPECT_TRUE(consumer.says("PostgreSQL denies a permission")) << consumer.log_text();
  EXPECT_EQ(world.query("SELECT count(*) FROM dead"), "0");
  static_cast<void>(world.query("DROP TRIGGER refusing ON outbox"));
  ASSERT_TRUE(eventually([&] { return world.caught_up(); }, 60s)) << consumer.log_text();
  EXPECT_EQ(consumer.stop(), "");
  EXPECT_EQ(world.effects().distinct, kMessages) << consumer.log_text();
  EXPECT_EQ(world.query("SELECT count(*) FROM dead"), "0") << consumer.log_text();
}

TEST(AnotherStore, that_is_unavailable_is_a_failure_of_the_handler_and_no_outage) {
  TURNSTILE_NEEDS_SERVERS();
  PostgresSettings nowhere;
  nowhere.url = Secret("postgresql://nobody@127.0.0.1:1/nothing");
  expect_one_dead(
      [&](Context&) {
        Inbox other(postgres::open_store(nowhere));
        other.once("charge", "id", [](Context&) {});
      },
      "cannot connect to PostgreSQL");
}

}  // namespace
}  // namespace turnstile::test
