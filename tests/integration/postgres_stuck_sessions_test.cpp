// Sessions of a frozen or dead process that keep a partition from its next owner.

#include <libpq-fe.h>

#include <future>

#include "tests/integration/postgres_fixture.hpp"

namespace turnstile::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

/// A client that sends statements, and reads nothing.
class FrozenClient {
 public:
  explicit FrozenClient(const std::string& url) : connection_(PQconnectdb(url.c_str())) {
    if (PQstatus(connection_) != CONNECTION_OK || PQenterPipelineMode(connection_) == 0 ||
        PQsetnonblocking(connection_, 1) != 0)
      throw std::runtime_error(PQerrorMessage(connection_));
  }
  ~FrozenClient() { PQfinish(connection_); }
  FrozenClient(const FrozenClient&) = delete;
  FrozenClient& operator=(const FrozenClient&) = delete;

  void send(const std::string& statement, const std::optional<std::string>& argument = {}) {
    const char* const values[] = {argument ? argument->c_str() : nullptr};
    if (PQsendQueryParams(connection_, statement.c_str(), argument ? 1 : 0, nullptr, values, nullptr, nullptr, 0) == 0)
      throw std::runtime_error(PQerrorMessage(connection_));
    PQsendFlushRequest(connection_);
    PQflush(connection_);
  }
  [[nodiscard]] int pid() const { return PQbackendPID(connection_); }

 private:
  PGconn* connection_;
};

class PostgresStuckSessions : public PostgresRoleTest {
 protected:
  /// A transaction that has the partition, like that of a batch.
  std::unique_ptr<FrozenClient> owner(const std::string& url,
                                      const std::string& lock = "SELECT 1 FROM fence FOR SHARE") {
    auto client = std::make_unique<FrozenClient>(url);
    client->send("BEGIN");
    client->send(lock);
    client->send("SELECT 1 AS has_the_lock");
    EXPECT_TRUE(eventually([&] {
      return sql().one("SELECT query FROM pg_stat_activity WHERE pid = " + std::to_string(client->pid())) ==
             "SELECT 1 AS has_the_lock";
    }));
    return client;
  }
  /// Waits until the server waits for the client in this way.
  void await(const FrozenClient& client, const std::string& event) {
    ASSERT_TRUE(eventually([&] {
      return sql().one("SELECT coalesce(wait_event, '') FROM pg_stat_activity WHERE pid = " +
                       std::to_string(client.pid())) == event;
    }));
  }
  /// An owner whose process is frozen, or dead, while this statement waits in this way.
  std::unique_ptr<FrozenClient> stuck_in(const std::string& statement, const std::string& event,
                                         const std::optional<std::string>& argument = {}) {
    auto client = owner(schema_->url());
    client->send(statement, argument);
    await(*client, event);
    return client;
  }
  bool lives(int pid) {
    return !sql().column("SELECT 1 FROM pg_stat_activity WHERE pid = " + std::to_string(pid)).empty();
  }
  ports::PartitionClaim claim(std::chrono::milliseconds lock_timeout, std::chrono::milliseconds stuck_after) {
    const TopicPartition at{"payments", 0};
    ports::ClaimWait wait(lock_timeout);
    wait.stuck_after = stuck_after;
    wait.on_ended = [this](const std::string& session) { ended_.push_back(session); };
    return store_->partitions().claim_partitions("group", {&at, 1}, wait).at(0);
  }

  std::vector<std::string> ended_;
};

TEST_F(PostgresStuckSessions, a_claim_ends_one_that_sends_a_large_result) {
  const auto client = stuck_in("SELECT repeat('x', 1000) FROM generate_series(1, 100000)", "ClientWrite");
  EXPECT_EQ(claim(3s, 200ms).fence.epoch.value, fence_.epoch.value + 1);
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_THAT(ended_.front(), HasSubstr("pid " + std::to_string(client->pid()) + " ("));
  EXPECT_THAT(ended_.front(), HasSubstr(", active for "));
  EXPECT_TRUE(gone(client->pid()));
}

TEST_F(PostgresStuckSessions, a_claim_ends_one_that_receives_a_large_argument) {
  const auto client = stuck_in("SELECT length($1)", "ClientRead", std::string(64'000'000, 'x'));
  EXPECT_EQ(claim(3s, 200ms).fence.epoch.value, fence_.epoch.value + 1);
  EXPECT_EQ(ended_.size(), 1U);
  EXPECT_TRUE(gone(client->pid()));
}

/// Of a process that was killed, too: the server does not look at the connection before the statement ends.
TEST_F(PostgresStuckSessions, a_claim_ends_one_whose_statement_overruns) {
  const auto client = stuck_in("SELECT pg_sleep(3600)", "PgSleep");
  EXPECT_EQ(claim(3s, 200ms).fence.epoch.value, fence_.epoch.value + 1);
  EXPECT_EQ(ended_.size(), 1U);
}

/// Only the role that logged in may end its sessions, and see their statements.
TEST_F(PostgresStuckSessions, a_claim_ends_one_whose_connection_begins_with_another_role) {
  const std::string acts = app_->name() + "_acts";
  sql().exec("CREATE ROLE " + acts + "; GRANT " + acts + " TO " + app_->name() + "; ALTER ROLE " + app_->name() +
             " SET role = '" + acts + "'");
  sql().exec(least_rights(schema_->name(), acts));
  const std::shared_ptr<void> end(nullptr, [&](void*) { sql().exec("DROP OWNED BY " + acts + "; DROP ROLE " + acts); });
  open(app_->settings());
  const auto client = owner(app_->url());
  client->send("SELECT pg_sleep(3600)");
  await(*client, "PgSleep");
  EXPECT_EQ(claim(3s, 200ms).fence.epoch.value, fence_.epoch.value + 1);
  EXPECT_EQ(ended_.size(), 1U);
  EXPECT_TRUE(gone(client->pid()));
}

/// The server waits for one of them after another.
TEST_F(PostgresStuckSessions, a_claim_ends_many_without_a_pause_for_each) {
  std::vector<std::unique_ptr<FrozenClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(stuck_in("SELECT pg_sleep(3600)", "PgSleep"));
  }
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(claim(3s, 200ms).fence.epoch.value, fence_.epoch.value + 1);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 6s) << "it looks once a second until it ends one";
  EXPECT_EQ(ended_.size(), 8U);
}

/// A process that gave a claim up leaves it in the server's queue until its lock timeout.
TEST_F(PostgresStuckSessions, a_claim_behind_another_claim_ends_those_before_both) {
  const auto client = stuck_in("SELECT pg_sleep(3600)", "PgSleep");
  const TopicPartition at{"payments", 0};
  auto first = std::async(std::launch::async, [&] {
    return store_->partitions().claim_partitions("group", {&at, 1}, 20s).front();
  });
  ASSERT_TRUE(eventually([&] {
    return sql().one("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%" +
                     schema_->name() + "%fence f%'") == "1";
  }));
  EXPECT_EQ(claim(3s, 200ms).fence.epoch.value, fence_.epoch.value + 2);
  EXPECT_EQ(first.get().fence.epoch.value, fence_.epoch.value + 1);
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_THAT(ended_.front(), HasSubstr("pid " + std::to_string(client->pid()) + " ("));
}

/// A COMMIT that waits for a replica would become visible without it.
TEST_F(PostgresStuckSessions, one_in_commit_is_left_alone) {
  sql().exec(R"(
CREATE FUNCTION take_long() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(3600); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER take_long AFTER INSERT ON effect INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION take_long())");
  const auto client = owner(schema_->url());
  client->send("INSERT INTO effect (what) VALUES ('x')");
  client->send("COMMIT");
  await(*client, "PgSleep");
  EXPECT_THROW(claim(500ms, 1ms), StoreBusy);
  EXPECT_TRUE(lives(client->pid()));
  EXPECT_THAT(ended_, IsEmpty());
  sql().exec("SELECT pg_terminate_backend(" + std::to_string(client->pid()) + ")");
}

TEST_F(PostgresStuckSessions, one_that_sends_statements_is_left_alone) {
  Sql moves(schema_->url());
  moves.exec("BEGIN; SELECT 1 FROM fence FOR SHARE");
  auto claimed = std::async(std::launch::async, [&] { return claim(4500ms, 1400ms); });
  while (claimed.wait_for(0s) != std::future_status::ready) moves.exec("SELECT pg_sleep(0.05)");
  EXPECT_THAT(message_of<StoreBusy>([&] { claimed.get(); }),
              HasSubstr("pid " + std::to_string(moves.backend_pid()) + " ("));
  moves.exec("COMMIT");
  EXPECT_THAT(ended_, IsEmpty());
}

TEST_F(PostgresStuckSessions, those_of_other_roles_and_of_operators_are_left_alone) {
  app_->grant_from_file();
  for (const auto& [url, lock] : {std::pair{app_->url(), "SELECT 1 FROM fence FOR SHARE"},
                                  std::pair{schema_->url(), "LOCK TABLE fence IN EXCLUSIVE MODE"}}) {
    const auto client = owner(url, lock);
    await(*client, "ClientRead");
    EXPECT_THROW(claim(500ms, 1ms), StoreBusy);
    EXPECT_TRUE(lives(client->pid())) << lock;
    EXPECT_THAT(ended_, IsEmpty()) << lock;
  }
}

/// It has no stuck_after.
TEST_F(PostgresStuckSessions, a_claim_that_only_waits_ends_none) {
  const auto client = owner(schema_->url());
  await(*client, "ClientRead");
  const TopicPartition at{"payments", 0};
  EXPECT_THROW(store_->partitions().claim_partitions("group", {&at, 1}, 500ms), StoreBusy);
  EXPECT_TRUE(lives(client->pid()));
}

}  // namespace
}  // namespace turnstile::test
