// turnstile migrate, on a real PostgreSQL.

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>
#include <vector>

#include "tests/integration/cli_database.hpp"
#include "tests/support/eventually.hpp"

namespace turnstile::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class CliMigrate : public CliDatabase {
 protected:
  /// Makes a copy of migrations/ that the test can change.
  void copy_migrations() {
    const auto to = cli_.folder().path() / "sql";
    std::filesystem::create_directory(to);
    for (const auto& entry : std::filesystem::directory_iterator(TURNSTILE_SOURCE_DIR "/migrations")) {
      const auto name = entry.path().filename().string();
      if (std::regex_match(name, std::regex("[0-9]+_.*\\.sql"))) std::filesystem::copy_file(entry.path(), to / name);
    }
  }
};

TEST_F(CliMigrate, status_before_and_after) {
  const auto before = cli_.run("migrate", "status");
  EXPECT_EQ(before.code, 1);
  EXPECT_THAT(before.out, AllOf(ContainsRegex("0001 inbox +pending"), HasSubstr("run turnstile migrate up")));

  const auto up = cli_.run("migrate", "up");
  EXPECT_EQ(up.code, 0) << up.err;
  EXPECT_THAT(up.out, HasSubstr("applied 0001 inbox"));

  const auto after = cli_.run("migrate", "status");
  EXPECT_EQ(after.code, 0);
  EXPECT_THAT(after.out, AllOf(ContainsRegex("0001 inbox +applied"), HasSubstr(" by "), Not(HasSubstr("pending"))));
  EXPECT_THAT(cli_.run("migrate", "up").out, HasSubstr("nothing to do"));
}

TEST_F(CliMigrate, status_as_json) {
  const auto states = nlohmann::json::parse(cli_.run("migrate", "status", "--json").out);
  EXPECT_EQ(states["schema"], schema_);
  EXPECT_EQ(states["migrations"][0]["number"], 1);
  EXPECT_EQ(states["migrations"][0]["state"], "pending");
  EXPECT_EQ(states["migrations"][0]["applied_at"], nullptr);
}

TEST_F(CliMigrate, ten_at_once_run_them_once) {
  std::vector<std::unique_ptr<CliProcess>> replicas;
  for (int i = 0; i < 10; ++i) {
    replicas.push_back(std::make_unique<CliProcess>(std::vector<std::string>{"migrate", "up"}, cli_.environment(),
                                                    cli_.folder().path()));
  }
  int applied = 0, idle = 0;
  for (auto& replica : replicas) {
    const auto done = replica->wait(std::chrono::seconds(60));
    EXPECT_EQ(done.code, 0) << done.err;
    if (done.out.find("applied 0001") != std::string::npos) ++applied;
    if (done.out.find("nothing to do") != std::string::npos) ++idle;
  }
  EXPECT_EQ(applied, 1);
  EXPECT_EQ(idle, 9);
}

TEST_F(CliMigrate, a_migration_that_waits_for_another_says_so) {
  sql("CREATE SCHEMA IF NOT EXISTS " + schema_);
  cli_.environment()["TURNSTILE_POSTGRES_LOCK_TIMEOUT"] = "100ms";
  pqxx::connection other(url_);
  pqxx::work work(other);
  work.exec("SELECT pg_advisory_xact_lock(hashtextextended('turnstile migrations " + schema_ + "', 0))");
  CliProcess up({"migrate", "up"}, cli_.environment(), cli_.folder().path());
  ASSERT_TRUE(eventually([&] {
    return sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND " +
               std::to_string(other.backendpid()) + " = ANY (pg_blocking_pids(pid))") == "1";
  }));
  std::this_thread::sleep_for(std::chrono::milliseconds(2'500));
  work.commit();
  const auto done = up.wait(std::chrono::seconds(60));
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("held by pid " + std::to_string(other.backendpid()) + " ("));
}

TEST_F(CliMigrate, down_asks_first_because_ids_go_away) {
  migrate();
  const auto asked = cli_.run("migrate", "down");
  EXPECT_EQ(asked.code, 2);
  EXPECT_THAT(asked.err, AllOf(HasSubstr("could take effect a second time"), HasSubstr("--yes")));
  EXPECT_THAT(cli_.run("migrate", "down", "--to", "1").err,
              AllOf(HasSubstr("takes back 00"), HasSubstr(", 0002 "), Not(HasSubstr("0001"))));
  EXPECT_EQ(sql("SELECT count(*) FROM migration WHERE number = 1"), "1");

  const auto down = cli_.run("migrate", "down", "--to", "0", "--yes");
  EXPECT_EQ(down.code, 0) << down.err;
  EXPECT_THAT(down.out, HasSubstr("taken back 0001 inbox"));
  EXPECT_EQ(sql("SELECT to_regclass('inbox') IS NULL"), "t");
  EXPECT_THAT(cli_.run("migrate", "down", "--yes").out, HasSubstr("nothing to do"));
}

TEST_F(CliMigrate, a_number_that_does_not_exist_is_refused) {
  const auto up = cli_.run("migrate", "up", "--to", "99");
  EXPECT_EQ(up.code, 2);
  EXPECT_THAT(up.err, HasSubstr("--to 99: no migration has that number"));
}

TEST_F(CliMigrate, up_to_a_number_stops_there_and_does_not_go_back) {
  const auto known = nlohmann::json::parse(cli_.run("migrate", "status", "--json").out)["migrations"].size();
  const std::string last = std::to_string(known), next = std::to_string(known + 1);
  const std::string padded = std::string(4 - next.size(), '0') + next;
  copy_migrations();
  cli_.folder().write(
      "sql/" + padded + "_more.up.sql",
      "CREATE TABLE more (n integer);\nINSERT INTO migration (number, name) VALUES (" + next + ", 'more');\n");
  cli_.folder().write("sql/" + padded + "_more.down.sql",
                      "DROP TABLE more;\nDELETE FROM migration WHERE number = " + next + ";\n");

  EXPECT_EQ(cli_.run("migrate", "up", "--dir", "sql", "--to", last).code, 0);
  EXPECT_EQ(sql("SELECT to_regclass('more') IS NULL"), "t");
  EXPECT_THAT(cli_.run("migrate", "up", "--dir", "sql", "--to", last).out,
              HasSubstr("nothing to do: all up to " + last + " have been run; 1 later one is pending"));
  const auto rest = cli_.run("migrate", "up", "--dir", "sql");
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_THAT(rest.out, HasSubstr("applied " + padded + " more"));

  const auto back = cli_.run("migrate", "up", "--dir", "sql", "--to", last);
  EXPECT_EQ(back.code, 2);
  EXPECT_THAT(back.err, HasSubstr("turnstile migrate down --to " + last));

  // For programs that were built without this migration, the schema is newer.
  const auto older = cli_.run("migrate", "up");
  EXPECT_EQ(older.code, 4);
  EXPECT_THAT(older.err, HasSubstr("newer"));
  EXPECT_EQ(cli_.run("migrate", "status").code, 4);
  EXPECT_EQ(cli_.run("inbox", "stats").code, 4);

  EXPECT_EQ(cli_.run("migrate", "down", "--dir", "sql", "--yes").code, 0);
  EXPECT_EQ(sql("SELECT to_regclass('more') IS NULL AND to_regclass('inbox') IS NOT NULL"), "t");
}

TEST_F(CliMigrate, partitions_are_made_once_and_shown) {
  const auto up = cli_.run("migrate", "up", "--partitions", "16");
  EXPECT_EQ(up.code, 0) << up.err;
  EXPECT_THAT(up.out, AllOf(HasSubstr("applied 0001 inbox"), HasSubstr("the inbox has 16 hash partitions")));
  EXPECT_THAT(cli_.run("migrate", "status").out, HasSubstr("the inbox has 16 hash partitions"));
  EXPECT_EQ(nlohmann::json::parse(cli_.run("migrate", "status", "--json").out)["partitions"], 16);
  EXPECT_EQ(cli_.run("migrate", "up").code, 0);
  EXPECT_EQ(cli_.run("migrate", "up", "--partitions", "16").code, 0);

  sql("INSERT INTO inbox (handler, id, slot, record_offset) VALUES (1, gen_random_uuid(), 1, 1)");
  const auto other = cli_.run("migrate", "up", "--partitions", "8");
  EXPECT_EQ(other.code, 4);
  EXPECT_THAT(other.err, AllOf(HasSubstr("8 partitions: the inbox holds ids, and has 16 partitions now"),
                               HasSubstr("SELECT " + schema_ + ".partition_inbox(8, true);")));
  EXPECT_EQ(cli_.run("migrate", "up", "--partitions", "65").code, 2);
  EXPECT_EQ(cli_.run("migrate", "up", "--partitions", "0").code, 2);
}

TEST_F(CliMigrate, partitions_need_their_migration) {
  const auto up = cli_.run("migrate", "up", "--to", "2", "--partitions", "16");
  EXPECT_EQ(up.code, 2);
  EXPECT_THAT(up.err, HasSubstr("--partitions needs migration 0004"));
  EXPECT_EQ(nlohmann::json::parse(cli_.run("migrate", "status", "--json").out)["partitions"], nullptr);
}

TEST_F(CliMigrate, a_changed_file_is_refused_by_name) {
  migrate();
  copy_migrations();
  std::ofstream(cli_.folder().path() / "sql" / "0001_inbox.up.sql", std::ios::app) << "-- one line more\n";
  const auto up = cli_.run("migrate", "up", "--dir", "sql");
  EXPECT_EQ(up.code, 4);
  EXPECT_THAT(up.err, HasSubstr("0001_inbox.up.sql"));
  const auto status = cli_.run("migrate", "status", "--dir", "sql");
  EXPECT_EQ(status.code, 4);
  EXPECT_THAT(status.out, AllOf(ContainsRegex("0001 inbox +changed"), HasSubstr("Restore the file")));
}

TEST_F(CliMigrate, a_role_that_is_not_the_owner_is_sent_to_the_owner) {
  migrate();
  const std::string role = schema_ + "_guest";
  sql("CREATE ROLE " + role + " LOGIN PASSWORD 'p'");
  const std::string url = with_parameter(with_parameter(url_, "user", role), "password", "p");
  const auto refused = cli_.run("migrate", "up", "--postgres", url);
  sql("DROP ROLE " + role);
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("only the owner of the schema"), Not(HasSubstr("GRANT"))));
}

TEST_F(CliMigrate, a_wrong_password_is_said_and_not_printed) {
  const std::string wrong = std::regex_replace(url_, std::regex("://([^:@]+):[^@]*@"), "://$1:hunter2@");
  ASSERT_NE(wrong, url_) << "the scratch server's URL has a password";
  const auto up = cli_.run("migrate", "up", "--postgres", wrong);
  EXPECT_EQ(up.code, 3);
  EXPECT_THAT(up.err, AllOf(HasSubstr("password authentication failed"), HasSubstr("check the user, the password"),
                            Not(HasSubstr("hunter2"))));
}

TEST_F(CliMigrate, a_server_that_is_not_there_is_said) {
  const auto up = cli_.run("migrate", "up", "--postgres", "postgresql://me@127.0.0.1:1/app");
  EXPECT_EQ(up.code, 3);
  EXPECT_THAT(up.err, AllOf(HasSubstr("127.0.0.1:1"), HasSubstr("refused")));
}

}  // namespace
}  // namespace turnstile::test
