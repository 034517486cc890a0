// Migrations on a real server, and what a consumer reports about a schema of another version.

#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <sstream>

#include "tests/integration/postgres_fixture.hpp"
#include "turnstile/postgres/migrations.hpp"

namespace turnstile::test {
namespace {

using postgres::embedded_migration_list;
using postgres::migrate_down;
using postgres::migrate_status;
using postgres::migrate_up;
using postgres::Migration;
using StateKind = postgres::MigrationState::Kind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class PostgresMigrations : public EmptySchemaTest {
 protected:
  std::string tables() {
    return sql().one("SELECT count(*) FROM pg_tables WHERE schemaname = '" + schema_->name() + "'");
  }
  std::string schema_error() {
    return message_of<SchemaError>([&] { postgres::open_store(settings_)->check_schema(); });
  }
  /// The embedded migrations up to this number.
  static std::vector<Migration> up_to(int number) {
    auto some = embedded_migration_list();
    std::erase_if(some, [&](const Migration& m) { return m.number > number; });
    return some;
  }
  /// The embedded migrations, and one more.
  static std::vector<Migration> with_next(const std::string& up, const std::string& down = "DROP TABLE more;") {
    auto all = embedded_migration_list();
    const int number = static_cast<int>(all.size()) + 1;
    all.push_back({number, "more", "0099_more.up.sql", up, down, std::string(64, 'a'), number});
    return all;
  }
};

TEST_F(PostgresMigrations, up_status_and_down) {
  const auto& known = embedded_migration_list();
  for (const auto& state : migrate_status(settings_, known)) EXPECT_EQ(state.kind, StateKind::pending);
  EXPECT_EQ(migrate_up(settings_, known).size(), known.size());
  EXPECT_EQ(migrate_up(settings_, known).size(), 0U);
  for (const auto& state : migrate_status(settings_, known)) {
    EXPECT_EQ(state.kind, StateKind::applied);
    EXPECT_FALSE(state.applied_at.empty());
  }
  EXPECT_NO_THROW(postgres::open_store(settings_)->check_schema());
  EXPECT_EQ(migrate_down(settings_, known, 100).size(), known.size());
  EXPECT_EQ(tables(), "0");
  EXPECT_EQ(migrate_down(settings_, known, 1).size(), 0U);
  EXPECT_EQ(migrate_up(settings_, known).size(), known.size());
}

TEST_F(PostgresMigrations, of_ten_that_start_at_once_one_runs_them) {
  std::vector<std::future<std::size_t>> replicas;
  for (int i = 0; i < 10; ++i) {
    replicas.push_back(
        std::async(std::launch::async, [&] { return migrate_up(settings_, embedded_migration_list()).size(); }));
  }
  std::size_t ran = 0;
  for (auto& replica : replicas) ran += replica.get();
  EXPECT_EQ(ran, embedded_migration_list().size());
}

TEST_F(PostgresMigrations, a_locked_table_is_not_waited_for_without_end_and_its_holder_is_named) {
  migrate_up(settings_, embedded_migration_list());
  settings_.lock_timeout = std::chrono::milliseconds(200);
  Sql rival(schema_->url());
  const auto is_named = [&](const std::string& table) {
    return HasSubstr(schema_->name() + "." + table + " is locked by pid " + std::to_string(rival.backend_pid()));
  };
  rival.exec("BEGIN");
  rival.exec("SELECT count(*) FROM inbox");
  const std::string up = message_of<StoreBusy>(
      [&] { migrate_up(settings_, with_next("CREATE TABLE more (); ALTER TABLE inbox ADD COLUMN more integer;")); });
  EXPECT_THAT(up, AllOf(HasSubstr("0099_more.up.sql"), HasSubstr("Nothing was changed"), is_named("inbox")));
  rival.exec("LOCK TABLE migration");
  EXPECT_THAT(message_of<StoreBusy>([&] { postgres::open_store(settings_)->check_schema(); }), is_named("migration"));
  EXPECT_THAT(message_of<StoreBusy>([&] { migrate_status(settings_, embedded_migration_list()); }),
              is_named("migration"));
  rival.exec("COMMIT");
  EXPECT_NO_THROW(postgres::open_store(settings_)->check_schema());
}

TEST_F(PostgresMigrations, a_session_that_does_not_hold_the_lock_is_not_named) {
  const auto known = up_to(11);  // its last migration has the table clock_step
  migrate_up(settings_, known);
  settings_.lock_timeout = std::chrono::milliseconds(900);
  Sql innocent(schema_->url()), culprit(schema_->url());
  innocent.exec("BEGIN");
  innocent.exec("SELECT count(*) FROM inbox");
  culprit.exec("BEGIN");
  culprit.exec("SELECT count(*) FROM clock_step");
  const auto pid = [](const Sql& session) { return "pid " + std::to_string(session.backend_pid()) + " ("; };
  EXPECT_THAT(message_of<StoreBusy>([&] { migrate_down(settings_, known, 1); }),
              AllOf(HasSubstr(schema_->name() + ".clock_step is locked by " + pid(culprit)),
                    HasSubstr("pg_terminate_backend"), Not(HasSubstr(pid(innocent)))));
}

TEST_F(PostgresMigrations, sessions_that_are_only_candidates_are_not_to_be_terminated) {
  migrate_up(settings_, embedded_migration_list());
  settings_.lock_timeout = std::chrono::milliseconds(1);  // too short to look
  Sql reader(schema_->url());
  reader.exec("BEGIN");
  reader.exec("SELECT count(*) FROM inbox");
  EXPECT_THAT(
      message_of<StoreBusy>([&] { migrate_up(settings_, with_next("ALTER TABLE inbox ADD COLUMN m integer;")); }),
      AllOf(HasSubstr(".inbox is locked by pid " + std::to_string(reader.backend_pid())),
            HasSubstr("may not be the cause"), Not(HasSubstr("pg_terminate_backend"))));
}

TEST_F(PostgresMigrations, while_another_migration_runs_its_session_is_named) {
  settings_.lock_timeout = std::chrono::milliseconds(100);
  Sql other(schema_->url());
  other.exec("BEGIN");
  other.exec("SELECT pg_advisory_xact_lock(hashtextextended('turnstile migrations " + schema_->name() + "', 0))");
  std::mutex mutex;
  std::string told;
  auto up = std::async(std::launch::async, [&] {
    return migrate_up(settings_, embedded_migration_list(), std::nullopt, [&](const std::string& why) {
      const std::lock_guard lock(mutex);
      told = why;
    });
  });
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return !told.empty();
  }));
  other.exec("COMMIT");
  EXPECT_EQ(up.get().size(), embedded_migration_list().size());
  EXPECT_THAT(told, AllOf(HasSubstr("schema " + schema_->name()),
                          HasSubstr("held by pid " + std::to_string(other.backend_pid()) + " (")));
}

TEST_F(PostgresMigrations, a_missing_schema_names_the_command) {
  EXPECT_THAT(schema_error(), AllOf(HasSubstr("no schema " + schema_->name()), HasSubstr("turnstile migrate up"),
                                    HasSubstr("--schema NAME (TURNSTILE_POSTGRES_SCHEMA")));
}

TEST_F(PostgresMigrations, an_older_schema_names_the_file_and_the_command) {
  migrate_up(settings_, embedded_migration_list());
  sql().exec("DELETE FROM migration");
  EXPECT_THAT(schema_error(), AllOf(HasSubstr("older than this build"), HasSubstr("0001_inbox.up.sql has not run"),
                                    HasSubstr("turnstile migrate up")));
}

TEST_F(PostgresMigrations, a_newer_schema_is_refused_by_consumers_and_by_migrations) {
  migrate_up(settings_, with_next("CREATE TABLE more (n integer);"));
  EXPECT_THAT(schema_error(), AllOf(HasSubstr("newer than this build"), HasSubstr("(more)")));
  EXPECT_THROW(migrate_up(settings_, embedded_migration_list()), SchemaError);
  EXPECT_THROW(migrate_down(settings_, embedded_migration_list(), 1), SchemaError);
  EXPECT_EQ(migrate_status(settings_, embedded_migration_list()).back().kind, StateKind::unknown);
  EXPECT_EQ(migrate_down(settings_, with_next(""), 1).size(), 1U);
  EXPECT_NO_THROW(postgres::open_store(settings_)->check_schema());
}

// A deployment that goes back: the schema is of the newer build, and consumers of this build start.
TEST_F(PostgresMigrations, a_newer_schema_is_accepted_if_its_migration_states_that_this_build_can_run) {
  const auto& known = embedded_migration_list();
  const int number = static_cast<int>(known.size()) + 1;
  auto newer = with_next("CREATE TABLE more (n integer);");
  newer.back().builds_from = number - 1;
  EXPECT_EQ(migrate_up(settings_, newer).size(), newer.size());
  EXPECT_EQ(migrate_up(settings_, newer).size(), 0U);
  EXPECT_EQ(sql().one("SELECT count(*) FROM migration WHERE number = " + std::to_string(number)), "0");
  EXPECT_NO_THROW(postgres::open_store(settings_)->check_schema());
  EXPECT_EQ(migrate_status(settings_, known).back().kind, StateKind::newer);
  EXPECT_EQ(migrate_up(settings_, known).size(), 0U);
  // What this build does not know, it cannot revert.
  EXPECT_THROW(migrate_down(settings_, known, 1), SchemaError);
  sql().exec("UPDATE compatible_migration SET builds_from = number WHERE number = " + std::to_string(number));
  EXPECT_THAT(schema_error(), AllOf(HasSubstr("newer than this build"), HasSubstr("(more)")));
  EXPECT_EQ(migrate_down(settings_, newer, 1).size(), 1U);
  EXPECT_EQ(migrate_status(settings_, known).back().kind, StateKind::applied);
}

// The ledger that a build reads which knows only migrations up to 0011.
TEST_F(PostgresMigrations, a_build_that_knows_0011_finds_no_migration_that_it_does_not_know) {
  migrate_up(settings_, embedded_migration_list());
  EXPECT_EQ(sql().one("SELECT max(number) FROM migration"), "11");
  EXPECT_EQ(sql().one("SELECT count(*) FROM compatible_migration WHERE builds_from > 11"), "0");
}

TEST_F(PostgresMigrations, a_running_consumers_role_gets_its_rights_from_the_migration) {
  migrate_up(settings_, up_to(11));
  const std::string schema = schema_->name(), consumer = schema + "_consumer", reader = schema + "_reader";
  sql().exec("CREATE ROLE " + consumer + "; CREATE ROLE " + reader + "; GRANT SELECT, INSERT ON inbox TO " + consumer +
             "; GRANT SELECT ON inbox TO " + reader);
  migrate_up(settings_, embedded_migration_list());
  const auto may_read = [&](const std::string& role) {
    return sql().one("SELECT has_table_privilege('" + role + "', '" + schema + ".compatible_migration', 'SELECT')");
  };
  EXPECT_EQ(may_read(consumer), "t");
  EXPECT_EQ(may_read(reader), "f");
  sql().exec("DROP OWNED BY " + consumer + ", " + reader + "; DROP ROLE " + consumer + ", " + reader);
}

TEST_F(PostgresMigrations, a_changed_file_is_refused_with_its_name) {
  migrate_up(settings_, embedded_migration_list());
  auto changed = embedded_migration_list();
  changed[0].checksum[0] = changed[0].checksum[0] == '0' ? '1' : '0';
  EXPECT_THAT(message_of<SchemaError>([&] { migrate_up(settings_, changed); }),
              AllOf(HasSubstr("0001_inbox.up.sql: was changed"), HasSubstr("restore the old text")));
  EXPECT_EQ(migrate_status(settings_, changed)[0].kind, StateKind::changed);
  sql().exec("UPDATE migration SET checksum = 'another' WHERE number = 1");
  EXPECT_THAT(schema_error(), HasSubstr("0001_inbox.up.sql: was changed"));
}

// The way in CHANGELOG.md, for a database that a development version migrated.
TEST_F(PostgresMigrations, without_their_checksums_the_migrations_of_another_text_are_taken_over) {
  const auto& known = embedded_migration_list();
  auto earlier = known;
  earlier[0].checksum[0] = earlier[0].checksum[0] == '0' ? '1' : '0';
  migrate_up(settings_, earlier);
  EXPECT_THROW(migrate_up(settings_, known), SchemaError);
  sql().exec("UPDATE " + schema_->name() + ".migration SET checksum = NULL");
  EXPECT_EQ(migrate_up(settings_, known).size(), 0U);
  EXPECT_EQ(sql().one("SELECT checksum FROM migration WHERE number = 1"), known[0].checksum);
  EXPECT_NO_THROW(postgres::open_store(settings_)->check_schema());
}

TEST_F(PostgresMigrations, a_file_that_fails_changes_nothing_and_says_where) {
  const auto broken = with_next("CREATE TABLE more (n integer);\nSELECT 1;\nINSERT INTO moore VALUES (1);\n");
  EXPECT_THAT(message_of<SchemaError>([&] { migrate_up(settings_, broken); }),
              AllOf(HasSubstr("0099_more.up.sql:3: "), HasSubstr("42P01"), HasSubstr("nothing was changed")));
  EXPECT_EQ(tables(), "0");
}

TEST_F(PostgresMigrations, what_stands_in_the_way_is_named) {
  const auto& known = embedded_migration_list();
  migrate_up(settings_, known);
  const std::string schema = schema_->name();
  sql().exec("CREATE TABLE " + schema + ".invoice (handler smallint REFERENCES " + schema + ".handler)");
  sql().exec("CREATE TABLE " + schema + ".refund (handler smallint REFERENCES " + schema + ".handler)");
  EXPECT_THAT(message_of<SchemaError>([&] { migrate_down(settings_, known, 100); }),
              AllOf(HasSubstr("0001_inbox.down.sql: "), HasSubstr("2BP01"),
                    HasSubstr("nothing was changed. PostgreSQL's detail: constraint "), HasSubstr("invoice"),
                    HasSubstr("; constraint "), HasSubstr("refund"), HasSubstr(". PostgreSQL's hint: Use DROP")));
  EXPECT_NO_THROW(postgres::open_store(settings_)->check_schema());
}

TEST_F(PostgresMigrations, a_row_that_a_migration_meets_is_not_shown) {
  migrate_up(settings_, embedded_migration_list());
  const auto clash = with_next("CREATE TABLE more (n text UNIQUE);\nINSERT INTO more VALUES ('secret'), ('secret');\n");
  EXPECT_THAT(message_of<SchemaError>([&] { migrate_up(settings_, clash); }),
              AllOf(HasSubstr("23505"), HasSubstr("nothing was changed"), Not(HasSubstr("secret"))));
}

TEST_F(PostgresMigrations, what_psql_ran_is_taken_over) {
  sql().exec("CREATE SCHEMA " + schema_->name());
  for (const Migration& migration : embedded_migration_list()) sql().exec(migration.up);
  EXPECT_NO_THROW(postgres::open_store(settings_)->check_schema());
  EXPECT_EQ(migrate_up(settings_, embedded_migration_list()).size(), 0U);
  EXPECT_EQ(sql().one("SELECT checksum FROM migration WHERE number = 1"), embedded_migration_list()[0].checksum);
}

TEST_F(PostgresMigrations, a_schemas_name_is_quoted) {
  settings_.schema = "Select_" + schema_->name();
  migrate_up(settings_, embedded_migration_list());
  EXPECT_NO_THROW(postgres::open_store(settings_)->check_schema());
  sql().exec("DROP SCHEMA \"" + settings_.schema + "\" CASCADE");
}

TEST_F(PostgresMigrations, who_may_not_make_a_schema_reads_what_to_run) {
  const std::string role = schema_->name() + "_guest";
  sql().exec("CREATE ROLE " + role + " LOGIN PASSWORD 'guest'");
  PostgresSettings guest = settings_;
  guest.url = Secret(with_parameter(with_parameter(schema_->url(), "user", role), "password", "guest"));
  const std::string message = message_of<SchemaError>([&] { migrate_up(guest, embedded_migration_list()); });
  sql().exec("DROP ROLE " + role);
  EXPECT_THAT(message, AllOf(HasSubstr(role),
                             HasSubstr("CREATE SCHEMA \"" + schema_->name() + "\" AUTHORIZATION \"" + role + "\";")));
}

TEST(PostgresMigrationFiles, the_folder_and_the_library_hold_the_same) {
  const auto folder = postgres::read_migrations(std::filesystem::path(TURNSTILE_SOURCE_DIR) / "migrations");
  const auto& embedded = embedded_migration_list();
  ASSERT_EQ(folder.size(), embedded.size());
  for (std::size_t i = 0; i < folder.size(); ++i) {
    EXPECT_EQ(folder[i].up_file, embedded[i].up_file);
    EXPECT_EQ(folder[i].checksum, embedded[i].checksum);
    EXPECT_EQ(folder[i].down, embedded[i].down);
  }
}

TEST(PostgresMigrationFiles, bad_folders_are_refused_with_all_that_is_wrong) {
  const auto folder = std::filesystem::temp_directory_path() / ("turnstile_migrations_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  for (const char* name : {"0001_one.up.sql", "0003_three.up.sql", "0003_three.down.sql", "readme.sql", "x_y.up.sql"}) {
    std::ofstream(folder / name) << "SELECT 1;";
  }
  const std::string message = message_of<ConfigError>([&] { postgres::read_migrations(folder); });
  std::filesystem::remove_all(folder);
  EXPECT_THAT(message, AllOf(HasSubstr("0001_one.down.sql: is missing"), HasSubstr("migration 2 is missing"),
                             HasSubstr("readme.sql: "), HasSubstr("x_y.up.sql: ")));
  EXPECT_THAT(message_of<ConfigError>([&] { postgres::read_migrations(folder); }), HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace turnstile::test
