// PgBouncer between the program and PostgreSQL, in both of its modes. Only a transaction is sure to stay on one
// connection of the server.

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <map>
#include <mutex>

#include "tests/support/own_pgbouncer.hpp"
#include "tests/support/postgres_role.hpp"
#include "tests/support/running.hpp"
#include "tests/support/world.hpp"
#include "turnstile/inbox.hpp"
#include "turnstile/postgres/limiters.hpp"
#include "turnstile/postgres/migrations.hpp"
#include "turnstile/postgres/pqxx.hpp"
#include "turnstile/postgres/store.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

#define TURNSTILE_NEEDS_PGBOUNCER(bouncer) \
  if ((bouncer).missing()) GTEST_SKIP() << "no PgBouncer: apt-get install pgbouncer"

class PgBouncer : public ::testing::TestWithParam<const char*> {
 protected:
  /// The settings that an operator chooses for each mode.
  [[nodiscard]] bool prepares() const { return std::string(GetParam()) == "session"; }
  [[nodiscard]] PostgresSettings settings(const OwnPgBouncer& bouncer, const std::string& schema) const {
    PostgresSettings settings;
    settings.url = Secret(bouncer.url());
    settings.schema = schema;
    settings.prepared_statements = prepares();
    return settings;
  }
  [[nodiscard]] std::string toml(const World& world, const OwnPgBouncer& bouncer, const std::string& topic) const {
    std::string text =
        world.toml(topic, std::string("lock_timeout = \"1s\"\n") + (prepares() ? "" : "prepared_statements = false\n"));
    const std::string direct = postgres_url().value();
    return text.replace(text.find(direct), direct.size(), bouncer.url());
  }
};

TEST_P(PgBouncer, carries_the_main_job_over_a_kill) {
  TURNSTILE_NEEDS_SERVERS();
  OwnPgBouncer bouncer(GetParam());
  TURNSTILE_NEEDS_PGBOUNCER(bouncer);
  World world(WorldOptions{.session_timeout_ms = 3'000, .handler_timeout = "2s"});
  const std::string text = toml(world, bouncer, "order = \"key\"\nbatch = 20");
  world.publish(400);
  Process victim = world.consumer(text), survivor = world.consumer(text);
  ASSERT_TRUE(eventually([&] { return world.effects().rows > 50; }, 60s)) << world.output();
  victim.signal(SIGKILL);
  world.publish(400, "n");
  EXPECT_TRUE(eventually([&] { return world.effects().distinct == 800 && world.caught_up(); }, 90s)) << world.output();
  EXPECT_EQ(world.effects().rows, 800) << world.output();
  EXPECT_EQ(world.query("SELECT count(*) FROM dead"), "0");
  EXPECT_EQ(world.out_of_order(), 0);
}

TEST_P(PgBouncer, carries_leased_messages_and_their_answers) {
  TURNSTILE_NEEDS_SERVERS();
  OwnPgBouncer bouncer(GetParam());
  TURNSTILE_NEEDS_PGBOUNCER(bouncer);
  World world(2);
  const auto records = world.publish(300);
  std::mutex mutex;
  std::map<std::string, int> runs;
  Running consumer(Config::parse(toml(world, bouncer, "order = \"key\"\nlease = \"5s\""), "test.toml"),
                   [&](Consumer& app) {
                     app.topic(world.topic(), [&](const Message& message, Context& context) {
                       {
                         const std::lock_guard lock(mutex);
                         ++runs[std::string(message.header("message-id").value_or(""))];
                       }
                       context.reply("done");
                     } | leased(5s));
                   });
  ASSERT_TRUE(eventually([&] { return world.caught_up(); }, 60s)) << consumer.log_text();
  EXPECT_EQ(consumer.stop(), "");
  EXPECT_GT(records, 300);
  EXPECT_EQ(runs.size(), 300U);
  for (const auto& [id, count] : runs) EXPECT_EQ(count, 1) << id;
  EXPECT_EQ(world.query("SELECT count(*) FROM inbox"), "300");
  EXPECT_EQ(world.query("SELECT count(*) FROM response"), "300");
  EXPECT_EQ(world.query("SELECT count(*) FROM claim"), "0");
}

/// A claim that waits looks for the session that blocks it, as the role that logged in. The pool must not keep that role.
TEST_P(PgBouncer, leaves_their_role_to_the_sessions_of_the_pool) {
  if (!postgres_url()) GTEST_SKIP() << kNoPostgres;
  OwnPgBouncer bouncer(GetParam());
  TURNSTILE_NEEDS_PGBOUNCER(bouncer);
  PostgresSchema schema;
  const std::string acts = schema.name() + "_acts";
  schema.sql().exec("CREATE ROLE " + acts);
  const std::string ours = "ALTER ROLE CURRENT_USER IN DATABASE " + schema.sql().one("SELECT current_database()");
  const std::shared_ptr<void> end(
      nullptr, [&](void*) { schema.sql().exec(ours + " RESET role; DROP OWNED BY " + acts + "; DROP ROLE " + acts); });
  schema.sql().exec(least_rights(schema.name(), acts));
  schema.sql().exec(ours + " SET role = '" + acts + "'");
  PostgresSettings through = settings(bouncer, schema.name());
  through.lock_timeout = 600ms;  // it looks after a third of that
  const auto store = postgres::open_store(through);
  const TopicPartition at{"payments", 0};
  EXPECT_EQ(store->partitions().claim_partitions("group", {&at, 1}, 5s).size(), 1U);
  schema.sql().exec("BEGIN; SELECT 1 FROM fence FOR UPDATE");
  EXPECT_THROW(static_cast<void>(store->partitions().claim_partitions("group", {&at, 1}, 2s)), StoreBusy);
  schema.sql().exec("ROLLBACK");
  std::vector<std::unique_ptr<Sql>> clients;  // as many as the pool has connections in mode transaction
  for (int i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<Sql>(bouncer.url()));
    clients.back()->exec("BEGIN");
    EXPECT_EQ(clients.back()->one("SELECT current_user"), acts);
  }
}

TEST_P(PgBouncer, carries_what_is_done_once) {
  if (!postgres_url()) GTEST_SKIP() << kNoPostgres;
  OwnPgBouncer bouncer(GetParam());
  TURNSTILE_NEEDS_PGBOUNCER(bouncer);
  PostgresSchema schema;
  schema.sql().exec("CREATE TABLE effect (id text)");
  constexpr int kIds = 40, kCallers = 8;
  std::vector<std::unique_ptr<Inbox>> programs;
  for (int i = 0; i < 2; ++i)
    programs.push_back(std::make_unique<Inbox>(postgres::open_store(settings(bouncer, schema.name()))));
  std::atomic<int> ran{0}, repeated{0};
  std::vector<std::future<void>> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.push_back(std::async(std::launch::async, [&, caller] {
      Inbox& inbox = *programs[static_cast<std::size_t>(caller % 2)];
      for (int i = 0; i < kIds; ++i) {
        const std::string id = "id " + std::to_string(i);
        const Once once = inbox.once("charge", id, [&](Context& context) {
          // Half of the calls use libpqxx, whose statements are on the same connection of the server.
          const std::string insert = "INSERT INTO " + schema.name() + ".effect VALUES ('" + id + "')";
          if (i % 2 == 0) context.tx().exec(insert);
          else postgres::native(context.tx()).exec(insert);
          context.reply("answer to " + id);
        });
        ++(once.kind == Once::Kind::ran ? ran : repeated);
        EXPECT_EQ(once.response, "answer to " + id);
      }
    }));
  }
  for (auto& caller : callers) caller.get();
  EXPECT_EQ(ran, kIds);
  EXPECT_EQ(repeated, kIds * (kCallers - 1));
  EXPECT_EQ(schema.sql().one("SELECT count(*) FROM effect"), std::to_string(kIds));
}

TEST_P(PgBouncer, carries_limits_that_are_kept_in_postgres) {
  if (!postgres_url()) GTEST_SKIP() << kNoPostgres;
  OwnPgBouncer bouncer(GetParam());
  TURNSTILE_NEEDS_PGBOUNCER(bouncer);
  PostgresSchema schema;
  const auto first = postgres::open_limiters(settings(bouncer, schema.name())),
             second = postgres::open_limiters(settings(bouncer, schema.name()));
  const std::shared_ptr<ports::Limiter> limiters[] = {first->open("psp", 3), second->open("psp", 3)};
  std::atomic<int> inside{0}, most{0}, taken{0};
  std::vector<std::future<void>> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.push_back(std::async(std::launch::async, [&, thread] {
      ports::Limiter& limiter = *limiters[thread % 2];
      const auto deadline = std::chrono::steady_clock::now() + 60s;
      for (int done = 0; done < 10 && std::chrono::steady_clock::now() < deadline;) {
        Permit permit = limiter.try_acquire();
        if (!permit) {
          std::this_thread::sleep_for(5ms);
          continue;
        }
        const int now = ++inside;
        for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        std::this_thread::sleep_for(5ms);  // the work, not a wait
        --inside;
        ++taken;
        ++done;
      }
    }));
  }
  for (auto& thread : threads) thread.get();
  EXPECT_EQ(taken, 80);
  EXPECT_LE(most, 3);
}

INSTANTIATE_TEST_SUITE_P(In, PgBouncer, ::testing::Values("session", "transaction"),
                         [](const auto& mode) { return std::string(mode.param); });

}  // namespace
}  // namespace turnstile::test
