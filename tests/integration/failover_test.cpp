// A real primary with a real streaming replica that lags when the primary is killed. The messages of the transactions
// that the replica had not received are read again. tests/chaos/failover.py does the same twenty times, with random
// moments and lags.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "tests/support/eventually.hpp"
#include "tests/support/postgres_schema.hpp"
#include "tests/support/process.hpp"
#include "tests/support/read_file.hpp"
#include "turnstile/error.hpp"
#include "turnstile/inbox.hpp"
#include "turnstile/postgres/migrations.hpp"
#include "turnstile/postgres/store.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;

/// Two servers, each on a port that it keeps. libpq connects to the server that accepts writes.
class PrimaryAndReplica {
 public:
  PrimaryAndReplica() {
    std::string name = (std::filesystem::temp_directory_path() / "turnstile-failover-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    std::filesystem::permissions(folder_, std::filesystem::perms::others_exec, std::filesystem::perm_options::add);
    run({"start", folder("a")});
    run({"replica", folder("b"), folder("a")});
    url_ = "postgresql://turnstile:scratch@127.0.0.1:" + port("a") + ",127.0.0.1:" + port("b") +
           "/turnstile?target_session_attrs=read-write&connect_timeout=5";
  }
  ~PrimaryAndReplica() {
    for (const char* server : {"a", "b"}) {
      Process stop(kScript, {"stop", folder(server)}, {}, folder("log"));
      stop.wait(60s);
    }
    std::filesystem::remove_all(folder_);
  }
  PrimaryAndReplica(const PrimaryAndReplica&) = delete;
  PrimaryAndReplica& operator=(const PrimaryAndReplica&) = delete;

  [[nodiscard]] const std::string& url() const { return url_; }
  /// Waits until the replica has received all that is committed.
  bool in_step() {
    Sql primary(url_);
    const std::string at = primary.one("SELECT pg_current_wal_lsn()");
    return eventually(
        [&] { return primary.one("SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= '" + at + "'") == "1"; },
        60s);
  }
  /// From now on, the replica receives nothing more.
  void cut() { run({"lag", folder("a")}); }
  void fail_over() {
    run({"kill", folder("a")});
    run({"promote", folder("b")});
  }

 private:
  static constexpr const char* kScript = TURNSTILE_SOURCE_DIR "/tests/support/scratch-postgres";
  [[nodiscard]] std::string folder(const std::string& server) const { return folder_ + "/" + server; }
  [[nodiscard]] std::string port(const std::string& server) const {
    std::string text = read_file(folder(server) + "/port");
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }
  void run(const std::vector<std::string>& arguments) {
    Process process(kScript, arguments, {}, folder("log"));
    const auto status = process.wait(120s);
    if (status != 0)
      throw std::runtime_error("scratch-postgres " + arguments.front() + ": " + read_file(folder("log")));
  }
  std::string folder_, url_;
};

TEST(PostgresFailover, what_the_replica_had_not_heard_of_takes_effect_once_or_is_parked) {
  if (!postgres_url()) GTEST_SKIP() << kNoPostgres;
  PrimaryAndReplica servers;
  const PostgresSettings settings{.url = Secret(servers.url())};
  postgres::migrate_up(settings, postgres::embedded_migration_list());
  Sql(servers.url()).exec("CREATE TABLE effect (mode text, id integer)");

  const auto broker = std::make_shared<testing::MemoryBroker>();
  int published = 0;
  const std::vector<std::string> modes{"transactional", "by_offset", "leased"};
  for (const std::string& mode : modes) {
    broker->create_topic(mode, 1);
    broker->create_topic(mode + ".dlq", 1);
  }
  const auto publish = [&](int n) {
    for (int i = 0; i < n; ++i, ++published) {
      for (const std::string& mode : modes) {
        OwnedMessage message;
        message.topic = mode;
        message.partition = 0;
        message.payload = std::to_string(published);
        message.headers = {{"message-id", mode + *message.payload}};
        broker->produce(message);
      }
    }
  };
  std::mutex mutex;
  std::map<int, int> elsewhere;
  const auto in_transaction = [](const Message& message, Context& context) {
    context.tx().exec("INSERT INTO effect VALUES ($1, $2)", std::string(message.topic()),
                      std::stoi(std::string(message.text())));
  };
  Consumer app({}, Backends{broker, postgres::open_store(settings)});
  app.handle_signals(false)
      .topic("transactional", in_transaction | transactional() | dead_letter())
      .topic("by_offset", in_transaction | by_offset() | dead_letter())
      .topic("leased", Pipeline([&](const Message& message, Context&) {
                         const std::lock_guard lock(mutex);
                         ++elsewhere[std::stoi(std::string(message.text()))];
                       }) | leased() |
                           dead_letter());
  std::string failure;
  std::thread running([&] {
    try {
      app.run();
    } catch (const std::exception& e) {
      failure = e.what();
    }
  });

  const auto number = [&](const std::string& sql) { return std::stoi(Sql(servers.url()).one(sql)); };
  const auto caught_up = [&] {
    return eventually(
        [&] { return number("SELECT coalesce(sum(watermark), 0) FROM turnstile.watermark") == 3 * published; }, 60s);
  };
  publish(100);
  EXPECT_TRUE(caught_up() && servers.in_step());
  servers.cut();
  publish(50);
  EXPECT_TRUE(eventually(
      [&] {
        return number(
                   "SELECT (SELECT count(*) FROM effect) + (SELECT count(*) FROM turnstile.inbox WHERE handler = "
                   "(SELECT id FROM turnstile.handler WHERE name = 'leased'))") == 3 * published;
      },
      60s));
  servers.fail_over();
  publish(20);
  EXPECT_TRUE(caught_up());
  app.stop();
  running.join();

  EXPECT_EQ(failure, "");
  for (const std::string mode : {"transactional", "by_offset"}) {
    EXPECT_EQ(number("SELECT count(*) FROM effect WHERE mode = '" + mode + "'"), published) << mode;
    EXPECT_EQ(number("SELECT count(DISTINCT id) FROM effect WHERE mode = '" + mode + "'"), published) << mode;
  }
  std::vector<int> times;
  for (const auto& [id, count] : elsewhere) times.push_back(count);
  EXPECT_EQ(times.size(), static_cast<std::size_t>(published));
  EXPECT_THAT(times, Each(1));
  EXPECT_EQ(number("SELECT count(*) FROM turnstile.dead WHERE reason = 'unknown'"), 50) << "their records were lost";
}

/// With synchronous replication, a COMMIT waits for the replica. If its session is terminated, or its wait cancelled, it
/// stands without it.
class EachEnd : public ::testing::TestWithParam<const char*> {};

TEST_P(EachEnd, of_a_wait_for_the_replica_tells_no_caller_that_it_is_done) {
  if (!postgres_url()) GTEST_SKIP() << kNoPostgres;
  PrimaryAndReplica servers;
  const PostgresSettings settings{.url = Secret(servers.url())};
  postgres::migrate_up(settings, postgres::embedded_migration_list());
  const auto sql = [&](const std::string& text) { return Sql(servers.url()).one(text); };
  Sql(servers.url()).exec("CREATE TABLE effect (what text)");
  Sql(servers.url()).exec("ALTER SYSTEM SET synchronous_standby_names = '*'");
  Inbox inbox(postgres::open_store(settings));
  const auto pay = [&] {
    return inbox.once("charge", "r1",
                      [](Context& context) { context.tx().exec("INSERT INTO effect VALUES ('paid')"); });
  };
  inbox.once("charge", "r0", [](Context&) {});  // registers the handler
  sql("SELECT pg_reload_conf()");
  ASSERT_TRUE(
      eventually([&] { return sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1"; }));
  ASSERT_TRUE(servers.in_step());
  servers.cut();

  std::atomic<bool> told{false};
  std::thread caller([&] {
    while (!told) {
      try {
        pay();
        told = true;
      } catch (const StoreUnavailable&) {
        std::this_thread::yield();
      }
    }
  });
  const std::string waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
  const auto waits = [&] { return sql("SELECT count(*) " + waiting) != "0"; };
  EXPECT_TRUE(eventually(waits)) << "its COMMIT";
  const auto since = [&] { return sql("SELECT coalesce(min(query_start)::text, '') " + waiting); };
  for (const char* answer : {"to the next call", "to the one after it"}) {
    const std::string before = since();
    sql("SELECT count(" + std::string(GetParam()) + "(pid)) " + waiting);
    EXPECT_TRUE(eventually([&] { return sql("SELECT count(*) FROM effect") == "1"; })) << "it stands on the primary";
    EXPECT_TRUE(eventually([&] { return told || (waits() && since() != before); })) << answer;
    EXPECT_FALSE(told) << "the replica has nothing of it: the answer " << answer;
  }
  servers.fail_over();
  caller.join();
  EXPECT_EQ(sql("SELECT count(*) FROM effect"), "1");
}

INSTANTIATE_TEST_SUITE_P(PostgresFailover, EachEnd, ::testing::Values("pg_terminate_backend", "pg_cancel_backend"),
                         [](const auto& end) { return std::string(end.param); });

}  // namespace
}  // namespace turnstile::test
