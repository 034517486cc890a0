// An inbox in hash partitions: how it is made, which role may make it, and that the table is otherwise the same.

#include <cstdlib>

#include "tests/integration/postgres_fixture.hpp"
#include "turnstile/postgres/admin.hpp"
#include "turnstile/postgres/migrations.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using postgres::embedded_migration_list;
using postgres::inbox_partitions;
using postgres::migrate_down;
using postgres::migrate_up;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PostgresPartitions : public EmptySchemaTest {
 protected:
  void up(std::optional<int> partitions = std::nullopt) {
    migrate_up(settings_, embedded_migration_list(), partitions);
  }
  std::string refusal(int partitions) {
    return message_of<SchemaError>([&] { up(partitions); });
  }
  void fill(int count) {
    sql().exec(
        "INSERT INTO inbox (handler, id, slot, record_offset, seen_at) SELECT 1, gen_random_uuid(), 1, n, "
        "now() - n * interval '1 second' FROM generate_series(1, " +
        std::to_string(count) + ") n");
  }
  /// All that a user of the table can see of it, except the partitions.
  std::string looks() {
    return sql().one(
        "SELECT string_agg(line, E'\\n' ORDER BY line) FROM ("
        "  SELECT concat_ws(' ', attname, format_type(atttypid, atttypmod), attnotnull, attacl, "
        "                   pg_get_expr(adbin, adrelid), attstorage) AS line"
        "    FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum"
        "   WHERE attrelid = 'inbox'::regclass AND attnum > 0 AND NOT attisdropped"
        "  UNION ALL SELECT replace(pg_get_indexdef(indexrelid), 'ON ONLY', 'ON') FROM pg_index WHERE indrelid = 'inbox'::regclass"
        "  UNION ALL SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'inbox'::regclass"
        "  UNION ALL SELECT concat_ws(' ', relowner::regrole, relacl) FROM pg_class WHERE oid = 'inbox'::regclass) seen");
  }
};

TEST_F(PostgresPartitions, a_new_schema_is_made_with_them) {
  EXPECT_EQ(inbox_partitions(settings_), 0);
  up(16);
  EXPECT_EQ(inbox_partitions(settings_), 16);
  EXPECT_NO_THROW(postgres::open_store(settings_)->check_schema());
  fill(2'000);
  EXPECT_EQ(sql().one("SELECT count(DISTINCT tableoid) FROM inbox"), "16");
  up(16);  // ten replicas start with the same command
  up();    // and later replicas start without the option
  EXPECT_EQ(inbox_partitions(settings_), 16);
  EXPECT_EQ(sql().one("SELECT count(*) FROM inbox"), "2000");
}

TEST_F(PostgresPartitions, any_number_from_two_to64) {
  up(2);
  up(5);
  up(64);
  EXPECT_EQ(inbox_partitions(settings_), 64);
  up(1);
  EXPECT_EQ(inbox_partitions(settings_), 1);
  for (const int wrong : {0, -1, 65, 1'000'000}) {
    EXPECT_THAT(refusal(wrong), AllOf(HasSubstr("2 to 64 partitions"), HasSubstr("nothing was changed"),
                                      HasSubstr("max_locks_per_transaction")));
  }
}

TEST_F(PostgresPartitions, an_empty_inbox_of_an_older_schema_is_made_anew) {
  up();
  EXPECT_EQ(inbox_partitions(settings_), 1);
  up(4);
  EXPECT_EQ(inbox_partitions(settings_), 4);
}

TEST_F(PostgresPartitions, what_holds_ids_is_left_alone_and_the_way_out_is_said) {
  up();
  fill(100);
  EXPECT_THAT(refusal(8), AllOf(HasSubstr("holds ids"), HasSubstr("8 partitions"), HasSubstr("nothing was changed"),
                                HasSubstr("SELECT " + schema_->name() + ".partition_inbox(8, true);")));
  EXPECT_EQ(inbox_partitions(settings_), 1);
  // The command in the message must solve the problem, in both directions.
  sql().exec("SELECT " + schema_->name() + ".partition_inbox(8, true)");
  EXPECT_EQ(inbox_partitions(settings_), 8);
  EXPECT_EQ(sql().one("SELECT count(*) FROM inbox"), "100");
  EXPECT_THAT(refusal(4), HasSubstr("has 8 partitions now"));
  sql().exec("SELECT partition_inbox(3, true)");
  sql().exec("SELECT partition_inbox(1, true)");
  EXPECT_EQ(inbox_partitions(settings_), 1);
  EXPECT_EQ(sql().one("SELECT count(*) FROM inbox"), "100");
}

TEST_F(PostgresPartitions, nothing_else_of_the_table_changes) {
  up();
  const std::string role = schema_->name() + "_app";
  sql().exec("CREATE ROLE " + role);
  sql().exec("GRANT SELECT, INSERT ON inbox TO " + role +
             " WITH GRANT OPTION; GRANT UPDATE (record_offset) ON inbox TO " + role +
             "; GRANT SELECT ON inbox TO PUBLIC");
  const std::string before = looks();
  EXPECT_THAT(before, AllOf(HasSubstr(role), HasSubstr("inbox_pkey"), HasSubstr("now()")));
  up(7);
  EXPECT_EQ(looks(), before);
  up(1);
  EXPECT_EQ(looks(), before);
  sql().exec("DROP OWNED BY " + role + "; DROP ROLE " + role);
}

TEST_F(PostgresPartitions, what_cannot_be_carried_over_is_not_lost_in_silence) {
  up();
  sql().exec(
      "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "
      "CREATE TRIGGER note AFTER INSERT ON inbox FOR EACH STATEMENT EXECUTE FUNCTION note()");
  EXPECT_THAT(refusal(4), AllOf(HasSubstr("triggers"), HasSubstr("create them again")));
  sql().exec("DROP TRIGGER note ON inbox; CREATE VIEW mine AS SELECT * FROM inbox");
  EXPECT_THAT(refusal(4), HasSubstr("depend on it"));
  EXPECT_EQ(inbox_partitions(settings_), 1);
}

// The way in migrations/README.md: the files and one SELECT, in psql.
TEST_F(PostgresPartitions, psql_alone_can_do_it) {
  sql().exec("CREATE SCHEMA " + schema_->name());
  std::string command = "set -e; export PGOPTIONS='-c search_path=" + schema_->name() + "'; ";
  for (const auto& migration : embedded_migration_list()) {
    command +=
        "psql -q -v ON_ERROR_STOP=1 -1 -f '" TURNSTILE_SOURCE_DIR "/migrations/" + migration.up_file + "' \"$URL\"; ";
  }
  command += "psql -q -v ON_ERROR_STOP=1 -c 'SELECT partition_inbox(16)' \"$URL\" >/dev/null";
  setenv("URL", postgres_url()->c_str(), 1);
  if (std::system("command -v psql >/dev/null 2>&1") != 0) GTEST_SKIP() << "needs psql";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(inbox_partitions(settings_), 16);
  up();
  EXPECT_NO_THROW(postgres::open_store(settings_)->check_schema());
  EXPECT_EQ(inbox_partitions(settings_), 16);
}

TEST_F(PostgresPartitions, down_makes_one_table_of_it) {
  up(6);
  fill(50);
  const auto steps = static_cast<int>(embedded_migration_list().size()) - 3;
  migrate_down(settings_, embedded_migration_list(), steps);  // 0004 and the later migrations
  EXPECT_EQ(inbox_partitions(settings_), 1);
  EXPECT_EQ(sql().one("SELECT count(*) FROM inbox"), "50");
  up(1);
  EXPECT_EQ(migrate_down(settings_, embedded_migration_list(), 100).size(), embedded_migration_list().size());
  up(6);
  EXPECT_EQ(inbox_partitions(settings_), 6);
}

// A row's place (ctid) does not identify it across partitions: each partition has its own (7, 3).
TEST_F(PostgresPartitions, purge_deletes_the_old_of_each_and_nothing_else) {
  up(5);
  sql().exec("INSERT INTO handler (id, name) VALUES (1, 'charge')");
  sql().exec(
      "INSERT INTO inbox (handler, id, slot, record_offset, seen_at) SELECT 1, gen_random_uuid(), 1, n, "
      "now() - (CASE WHEN n % 3 = 0 THEN '10 days' ELSE '1 hour' END)::interval FROM generate_series(1, 30000) n");
  sql().exec("INSERT INTO response (handler, id, body, replied_at) SELECT handler, id, 'x', seen_at FROM inbox");
  postgres::Admin admin(settings_);
  postgres::PurgeOptions options;
  options.older_than = 8 * 24h;
  options.batch = 700;
  const auto result = admin.purge(options);
  EXPECT_EQ(result.deleted, 10'000);
  EXPECT_EQ(result.end, postgres::PurgeEnd::complete);
  EXPECT_EQ(sql().one("SELECT count(*) FROM inbox WHERE seen_at < now() - interval '8 days'"), "0");
  EXPECT_EQ(sql().one("SELECT count(*) FROM inbox"), "20000");
  EXPECT_EQ(sql().one("SELECT count(*) FROM response"), "20000");
  EXPECT_EQ(admin.purge(options).deleted, 0);
  EXPECT_GT(admin.stats().table_bytes, 20'000 * 64);
}

TEST_F(PostgresPartitions, the_cleaner_goes_through_all_of_them) {
  up(5);
  const auto store = postgres::open_store(settings_);
  const HandlerId handler = store->register_handler("charge");
  store->retention().keep_ids(handler, 8 * 24h);
  sql().exec(
      "INSERT INTO inbox (handler, id, slot, record_offset, seen_at) SELECT 1, gen_random_uuid(), 1, n, "
      "now() - (CASE WHEN n % 3 = 0 THEN '10 days' ELSE '1 hour' END)::interval FROM generate_series(1, 30000) n");
  std::int64_t deleted = 0;
  ports::PurgeStep step;
  for (int steps = 0; steps < 500 && step.wait == 0ms; ++steps) {
    step = store->retention().purge_step(700);
    deleted += step.deleted;
  }
  EXPECT_GT(step.wait, 0ms);
  EXPECT_EQ(deleted, 10'000);
  EXPECT_EQ(sql().one("SELECT count(*) FROM inbox"), "20000");
  EXPECT_EQ(sql().one("SELECT count(*) FROM sweep WHERE swept_at IS NOT NULL"), "6") << "five, and the responses";
}

}  // namespace
}  // namespace turnstile::test
