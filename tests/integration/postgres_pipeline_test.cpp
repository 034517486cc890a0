// Statements in the pipeline: many, large, prepared or not, and together with libpqxx.

#include <pqxx/except>
#include <pqxx/result>
#include <pqxx/transaction_base>
#include <random>

#include "tests/integration/postgres_fixture.hpp"
#include "turnstile/postgres/pqxx.hpp"

namespace turnstile::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PostgresPipeline : public PostgresTest {};

TEST_F(PostgresPipeline, ten_thousand_large_statements_do_not_fill_the_sockets_to_a_deadlock) {  // hazard: round-trips
  begin("a", 1);
  const std::string kilobyte(1'000, 'x');
  for (int i = 0; i < 10'000; ++i) {
    session_->at_message(static_cast<std::size_t>(i));
    // Each statement returns its text, so that both directions are full.
    tx().defer("INSERT INTO effect (what) VALUES ($1) RETURNING what, what", kilobyte);
  }
  session_->commit();
  EXPECT_EQ(sql().one("SELECT count(*) || ' ' || sum(length(what)) FROM effect"), "10000 10000000");
}

TEST_F(PostgresPipeline, an_error_deep_inside_names_its_message_and_undoes_all) {
  begin("a", 1);
  const std::string kilobyte(1'000, 'x');
  for (std::size_t i = 0; i < 2'000; ++i) {
    session_->at_message(i);
    tx().defer("INSERT INTO effect (what) SELECT $1::text WHERE 1 / $2::integer > 0", kilobyte, i == 1'234 ? 0 : 1);
  }
  try {
    session_->commit();
    FAIL() << "was committed";
  } catch (const DeferredSqlError& error) {
    EXPECT_EQ(error.message_index, 1'234U);
    EXPECT_EQ(error.sqlstate, "22012");
  }
  EXPECT_EQ(sql().one("SELECT count(*) FROM effect"), "0");
  EXPECT_EQ(ids(), "0");
}

TEST_F(PostgresPipeline, without_prepared_statements_all_is_the_same) {  // hazard: pooled-session
  PostgresSettings settings = schema_->settings();
  settings.prepared_statements = false;
  open(settings);
  for (int round = 0; round < 3; ++round) {
    begin("round " + std::to_string(round), 10);
    for (int i = 0; i < 10; ++i) tx().defer("INSERT INTO effect (what) VALUES ($1)", i);
    EXPECT_EQ(tx().exec("SELECT count(*) FROM pg_prepared_statements").get<int>(0, 0), 0);
    session_->commit();
  }
  EXPECT_EQ(effects().size(), 30U);
}

TEST_F(PostgresPipeline, statements_are_prepared_once_and_not_without_end) {
  int most = 0;
  for (int round = 0; round < 6; ++round) {
    begin("round " + std::to_string(round));
    for (int i = 0; i < 100; ++i) tx().defer("SELECT " + std::to_string(round * 100 + i));
    for (int i = 0; i < 100; ++i) tx().defer("INSERT INTO effect (what) VALUES ($1)", i);
    most = std::max(most, tx().exec("SELECT count(*) FROM pg_prepared_statements").get<int>(0, 0));
    session_->commit();
  }
  EXPECT_GE(most, 100);
  EXPECT_LE(most, 256);
  EXPECT_EQ(effects().size(), 600U);
}

TEST_F(PostgresPipeline, a_plan_that_no_longer_fits_the_table_is_made_anew) {
  const auto select = [&] { return tx().exec("SELECT * FROM effect"); };
  begin("a");
  EXPECT_EQ(select().columns(), 2U);
  session_->commit();
  sql().exec("ALTER TABLE effect ADD COLUMN more text");
  begin("b");
  EXPECT_THROW(select(), StoreBusy);
  session_->rollback();
  begin("b");
  EXPECT_EQ(select().columns(), 3U);
  session_->commit();
}

TEST_F(PostgresPipeline, a_statement_that_does_not_parse_spoils_no_other) {
  for (int round = 0; round < 2; ++round) {
    begin("a");
    EXPECT_EQ(sqlstate_of([&] { tx().exec("SELEC 1"); }), "42601");
    session_->rollback();
    begin("a");
    tx().defer("INSERT INTO no_such_table VALUES (1)");
    tx().defer("INSERT INTO effect (what) VALUES ('later')");
    EXPECT_EQ(sqlstate_of([&] { session_->commit(); }), "42P01");
  }
  sql().exec("CREATE TABLE no_such_table (n integer)");
  begin("a");
  tx().defer("INSERT INTO no_such_table VALUES (1)");
  tx().defer("INSERT INTO effect (what) VALUES ('later')");
  session_->commit();
  EXPECT_THAT(effects(), ElementsAre("later"));
}

TEST_F(PostgresPipeline, every_kind_of_argument_arrives) {
  using namespace std::string_literals;
  begin("a");
  const std::vector<std::int64_t> numbers{1, -2, std::numeric_limits<std::int64_t>::min()};
  const std::vector<std::string> texts{"plain", "quote\" comma, {brace} \\ ", "", "NULL"};
  const std::byte bytes[] = {std::byte{0}, std::byte{255}};
  const auto rows = tx().exec(
      "SELECT $1::boolean, $2::bigint, $3::float8, $4::text, encode($5, 'hex'), $6::bigint[] = ARRAY[1, -2, -9223372036854775808], "
      "$7::text[] = ARRAY['plain', 'quote\" comma, {brace} \\ ', '', 'NULL'], $8::text, $9::float8, $10::bigint[] = '{}'",
      true, std::numeric_limits<std::int64_t>::max(), 0.1, "text"s, std::span<const std::byte>(bytes), numbers, texts,
      nullptr, std::numeric_limits<double>::infinity(), std::vector<std::int64_t>{});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_TRUE(rows.get<bool>(0, 0));
  EXPECT_EQ(rows.get<std::int64_t>(0, 1), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(rows.get<double>(0, 2), 0.1);
  EXPECT_EQ(rows.get<std::string>(0, 3), "text");
  EXPECT_EQ(rows.get<std::string>(0, 4), "00ff");
  EXPECT_TRUE(rows.get<bool>(0, 5));
  EXPECT_TRUE(rows.get<bool>(0, 6));
  EXPECT_EQ(rows.at(0, 7), std::nullopt);
  EXPECT_EQ(rows.at(0, 8), "Infinity");
  EXPECT_TRUE(rows.get<bool>(0, 9));
  session_->rollback();
}

TEST_F(PostgresPipeline, rows_say_how_many_were_affected) {
  begin("a");
  EXPECT_EQ(tx().exec("INSERT INTO effect (what) VALUES ('a'), ('b')").affected(), 2U);
  EXPECT_EQ(tx().exec("UPDATE effect SET what = 'c' WHERE what = 'a'").affected(), 1U);
  EXPECT_EQ(tx().exec("DELETE FROM effect WHERE what = 'none'").affected(), 0U);
  EXPECT_EQ(tx().exec("SELECT 1 FROM effect").affected(), 2U);
  session_->rollback();
}

TEST_F(PostgresPipeline, libpqxx_works_in_the_same_transaction) {
  begin("a");
  tx().defer("INSERT INTO effect (what) VALUES ('deferred before')");
  pqxx::transaction_base& work = postgres::native(tx());
  EXPECT_EQ(work.exec("SELECT what FROM effect").size(), 1U);
  work.exec("INSERT INTO effect (what) VALUES ('pqxx')");
  tx().defer("INSERT INTO effect (what) VALUES ('deferred')");
  EXPECT_EQ(tx().exec("SELECT count(*) FROM effect").get<int>(0, 0), 3);
  work.exec("INSERT INTO effect (what) VALUES ('pqxx again')");
  session_->commit();
  EXPECT_EQ(effects().size(), 4U);
  // The connection belongs to the store again, and may be lent again.
  begin("b");
  postgres::native(tx()).exec("INSERT INTO effect (what) VALUES ('rolled back')");
  session_->rollback();
  EXPECT_EQ(begin("b").at(0), ports::Admission::fresh);
  session_->commit();
  EXPECT_EQ(effects().size(), 4U);
}

TEST_F(PostgresPipeline, an_error_that_libpqxx_reported_is_not_committed) {
  begin("a");
  EXPECT_THROW(postgres::native(tx()).exec("SELECT 1 / 0"), pqxx::sql_error);
  EXPECT_EQ(sqlstate_of([&] { session_->commit(); }), "25P02");
  EXPECT_EQ(ids(), "0");
}

TEST_F(PostgresPipeline, libpqxx_does_not_reconnect_behind_our_back) {  // hazard: silent-reconnect
  begin("a");
  pqxx::transaction_base& work = postgres::native(tx());
  const int backend_pid = work.exec("SELECT pg_backend_pid()")[0][0].as<int>();
  sql().exec("SELECT pg_terminate_backend(" + std::to_string(backend_pid) + ")");
  ASSERT_TRUE(gone(backend_pid));
  EXPECT_ANY_THROW(work.exec("INSERT INTO effect (what) VALUES ('outside')"));
  EXPECT_ANY_THROW(work.exec("INSERT INTO effect (what) VALUES ('outside')"));
  EXPECT_THROW(session_->commit(), StoreUnavailable);
  EXPECT_TRUE(effects().empty());
}

TEST_F(PostgresPipeline, another_transaction_is_not_libpqxxs) {
  struct Foreign final : Transaction {
    Rows run(std::string_view, std::span<const Param>) override { return {}; }
    void queue(std::string_view, std::span<const Param>) override {}
  } foreign;
  EXPECT_THAT(message_of<Error>([&] { postgres::native(foreign); }), HasSubstr("not PostgreSQL's"));
}

}  // namespace
}  // namespace turnstile::test
