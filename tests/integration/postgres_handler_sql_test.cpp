// What a handler's SQL may do to the transaction that Turnstile has opened, and what is reported as the cause of an
// error.

#include <functional>
#include <pqxx/except>
#include <pqxx/result>
#include <pqxx/transaction_base>
#include <utility>
#include <vector>

#include "tests/integration/postgres_fixture.hpp"
#include "turnstile/postgres/pqxx.hpp"

namespace turnstile::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

class PostgresHandlerSql : public PostgresTest {
 protected:
  void effect(const std::string& what) { tx().exec("INSERT INTO effect (what) VALUES ($1)", what); }
  /// A statement to which the server answers with this error, on a connection that stays open.
  static std::string raises(const std::string& state) {
    return "DO $$ BEGIN RAISE EXCEPTION 'as a foreign server would' USING ERRCODE = '" + state + "'; END $$";
  }
};

TEST_F(PostgresHandlerSql, does_not_end_the_transaction) {
  for (const char* statement : {"COMMIT", "ROLLBACK", " /* a */ rollback and chain", "-- b\nEND", "ABORT", "BEGIN",
                                "PREPARE TRANSACTION 'x'", ";COMMIT"}) {
    begin(statement);
    effect("kept");
    EXPECT_EQ(sqlstate_of([&] { tx().exec(statement); }), "2D000") << statement;
    EXPECT_EQ(sqlstate_of([&] { tx().defer(statement); }), "2D000") << statement;
    tx().defer("INSERT INTO effect (what) VALUES ('deferred')");
    session_->rollback();
  }
  EXPECT_THAT(effects(), IsEmpty());
  EXPECT_EQ(ids(), "0");
  begin("a");
  EXPECT_EQ(sqlstate_of([&] { tx().exec("ROLLBACK"); }), "2D000");
  effect("goes on");
  session_->commit();
  EXPECT_THAT(effects(), ElementsAre("goes on"));
}

TEST_F(PostgresHandlerSql, several_statements_in_one_text_are_refused_by_the_server) {
  begin("a");
  EXPECT_EQ(sqlstate_of([&] { tx().exec("SELECT 1; COMMIT"); }), "42601");
  session_->rollback();
  begin("a");
  tx().defer("SELECT 1; COMMIT");
  EXPECT_EQ(sqlstate_of([&] { session_->commit(); }), "42601");
  EXPECT_EQ(ids(), "0");
}

TEST_F(PostgresHandlerSql, procedures_cannot_end_the_transaction_either) {
  sql().exec("CREATE PROCEDURE ending() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$");
  for (const char* statement : {"CALL ending()", "DO $$ BEGIN COMMIT; END $$", "DO $$ BEGIN ROLLBACK; END $$"}) {
    begin("a");
    EXPECT_EQ(sqlstate_of([&] { tx().exec(statement); }), "2D000") << statement;
    session_->rollback();
    begin("a");
    tx().defer(statement);
    EXPECT_EQ(sqlstate_of([&] { session_->commit(); }), "2D000") << statement;
  }
  EXPECT_EQ(ids(), "0");
}

TEST_F(PostgresHandlerSql, libpqxx_cannot_commit_it) {
  for (const char* statement : {"COMMIT", "COMMIT AND CHAIN", "COMMIT; BEGIN"}) {
    begin("a", 3);
    effect("of the first message");
    EXPECT_THROW(postgres::native(tx()).exec(statement), pqxx::sql_error) << statement;
    // The handler has swallowed the error.
    EXPECT_THROW(session_->commit(), Error) << statement;
    EXPECT_EQ(ids(), "0") << statement;
    EXPECT_THAT(effects(), IsEmpty()) << statement;
  }
}

TEST_F(PostgresHandlerSql, libpqxx_cannot_commit_it_after_a_savepoint_either) {
  for (const bool deferred : {false, true}) {
    begin("a", 3);
    if (deferred) tx().defer("SAVEPOINT s");
    else tx().exec("SAVEPOINT s");
    pqxx::transaction_base& native = postgres::native(tx());
    native.exec("ROLLBACK TO SAVEPOINT s");
    EXPECT_THROW(native.exec("COMMIT"), pqxx::sql_error);
    EXPECT_THROW(session_->commit(), Error);
    EXPECT_EQ(ids(), "0");
  }
}

TEST_F(PostgresHandlerSql, libpqxx_cannot_commit_it_after_close_all) {
  begin("a", 3);
  EXPECT_EQ(sqlstate_of([&] { tx().exec("CLOSE ALL"); }), "2D000");
  pqxx::transaction_base& native = postgres::native(tx());
  try {
    native.exec("CLOSE ALL");
  } catch (const std::exception&) {  // libpqxx finds that the connection is lost
  }
  EXPECT_ANY_THROW(native.exec("COMMIT"));
  EXPECT_EQ(sqlstate_of([&] { session_->commit(); }), "2D000");
  session_->rollback();
  EXPECT_EQ(ids(), "0");
  begin("b");
  session_->commit();
}

TEST_F(PostgresHandlerSql, a_commit_that_did_succeed_is_called_one) {
  begin("a", 3);
  try {
    postgres::native(tx()).exec("CLOSE turnstile_transaction; COMMIT");
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  EXPECT_THAT(message_of<TransactionEnded>([&] { session_->commit(); }),
              HasSubstr("The inbox now has the ids of the whole batch"));
  EXPECT_EQ(ids(), "3");
}

TEST_F(PostgresHandlerSql, a_rollback_through_libpqxx_is_found_out) {
  for (const char* statement : {"ROLLBACK", "ROLLBACK AND CHAIN", "ROLLBACK; BEGIN"}) {
    for (const bool at_commit : {true, false}) {
      begin("a", 3);
      postgres::native(tx()).exec(statement);
      EXPECT_THAT(message_of<TransactionEnded>([&] {
                    if (!at_commit) {
                      tx().exec("INSERT INTO effect (what) VALUES ('of the next message')");
                      postgres::native(tx());
                    }
                    session_->commit();
                  }),
                  HasSubstr("ended the transaction"))
          << statement;
      // A handler that swallows the error does not succeed either.
      EXPECT_THROW(session_->commit(), TransactionEnded);
      session_->rollback();
      EXPECT_EQ(ids(), "0") << statement;
      EXPECT_THAT(effects(), IsEmpty()) << statement;
    }
  }
  begin("a");
  session_->commit();
}

TEST_F(PostgresHandlerSql, savepoints_work_on_both_sides_of_libpqxx) {
  begin("a");
  tx().exec("SAVEPOINT mine");
  postgres::native(tx()).exec("INSERT INTO effect (what) VALUES ('taken back')");
  tx().exec("ROLLBACK TO SAVEPOINT mine");
  postgres::native(tx()).exec("SAVEPOINT theirs");
  EXPECT_THROW(postgres::native(tx()).exec("SELECT 1 / 0"), pqxx::sql_error);
  postgres::native(tx()).exec("ROLLBACK TO SAVEPOINT theirs");
  effect("kept");
  session_->commit();
  EXPECT_THAT(effects(), ElementsAre("kept"));
  EXPECT_EQ(ids(), "1");
}

/// Each way to send a statement of the message that is being handled.
const std::vector<std::pair<const char*, std::function<void(Transaction&, const std::string&)>>> kWays{
    {"exec", [](Transaction& tx, const std::string& sql) { tx.exec(sql); }},
    {"defer", [](Transaction& tx, const std::string& sql) { tx.defer(sql); }},
    {"native", [](Transaction& tx, const std::string& sql) { postgres::native(tx).exec(sql); }}};

TEST_F(PostgresHandlerSql, no_message_goes_back_to_a_savepoint_of_another) {
  for (const auto& [made, make] : kWays) {
    for (const auto& [undone, undo] : kWays) {
      for (const char* back : {"ROLLBACK TO SAVEPOINT s", "RELEASE SAVEPOINT s"}) {
        begin("a", 2);
        session_->at_message(0);
        make(tx(), "SAVEPOINT s");
        make(tx(), "INSERT INTO effect (what) VALUES ('of the first message')");
        session_->at_message(1);
        EXPECT_THROW(
            {
              undo(tx(), back);
              session_->commit();
            },
            std::exception)
            << made << " " << undone << " " << back;
        session_->rollback();
        EXPECT_EQ(ids(), "0") << made << " " << undone << " " << back;
      }
    }
  }
}

TEST_F(PostgresHandlerSql, savepoints_of_one_name_in_two_messages_are_two) {
  for (const auto& [way, send] : kWays) {
    begin(way, 3);
    for (std::size_t i = 0; i < 3; ++i) {
      session_->at_message(i);
      effect(way + std::to_string(i));
      send(tx(), "SAVEPOINT s");
      send(tx(), "INSERT INTO effect (what) VALUES ('taken back')");
      send(tx(), "ROLLBACK TO SAVEPOINT s");
      if (i == 1) send(tx(), "RELEASE SAVEPOINT s");
    }
    session_->commit();
  }
  EXPECT_THAT(effects(),
              ElementsAre("exec0", "exec1", "exec2", "defer0", "defer1", "defer2", "native0", "native1", "native2"));
  EXPECT_EQ(ids(), "9");
}

TEST_F(PostgresHandlerSql, a_failure_of_another_message_is_not_undone_by_a_savepoint) {
  for (const auto& [way, undo] : kWays) {
    for (const bool swallowed : {false, true}) {
      begin("a", 2);
      session_->at_message(0);
      tx().exec("SAVEPOINT s");
      if (swallowed) EXPECT_EQ(sqlstate_of([&] { tx().exec("SELECT 1 / 0"); }), "22012");
      else tx().defer("SELECT 1 / 0");
      session_->at_message(1);
      for (int i = 0; i < 2; ++i) {
        try {
          undo(tx(), "ROLLBACK TO SAVEPOINT s");
        } catch (const std::exception&) {  // the handler goes on
        }
      }
      try {
        session_->commit();
        FAIL() << way << " " << swallowed;
      } catch (const DeferredSqlError& error) {
        EXPECT_EQ(error.message_index, 0U) << way << " " << swallowed;
      } catch (const SqlError& error) {
        EXPECT_EQ(error.sqlstate, "25P02") << way << " " << swallowed;
        EXPECT_TRUE(swallowed) << way;
      }
      EXPECT_EQ(ids(), "0") << way << " " << swallowed;
    }
  }
}

TEST_F(PostgresHandlerSql, a_deferred_failure_is_read_before_the_commit) {
  begin("a");
  tx().defer("SAVEPOINT s");
  tx().defer("SELECT 1 / 0");
  // The pipeline sends its statements in chunks, and an error skips only the rest of its chunk.
  tx().defer("SELECT length($1)", std::string(100'000, 'x'));
  tx().defer("ROLLBACK TO SAVEPOINT s");
  EXPECT_EQ(sqlstate_of([&] { session_->commit(); }), "22012");
  EXPECT_EQ(ids(), "0");
}

TEST_F(PostgresHandlerSql, settings_of_the_session_are_not_left_to_other_messages) {
  begin("a");
  EXPECT_THAT(message_of<SqlError>([&] { tx().exec("SET search_path = pg_temp"); }), HasSubstr("SET LOCAL"));
  tx().exec("SET LOCAL search_path = pg_temp");
  session_->rollback();
}

TEST_F(PostgresHandlerSql, a_nul_does_not_cut_a_statement) {
  begin("a");
  effect("stays");
  const std::string sql("DELETE FROM effect\0 WHERE what = 'other'", 39);
  EXPECT_EQ(sqlstate_of([&] { tx().exec(sql); }), "22021");
  EXPECT_EQ(sqlstate_of([&] { tx().defer(sql); }), "22021");
  session_->commit();
  EXPECT_THAT(effects(), ElementsAre("stays"));
}

TEST_F(PostgresHandlerSql, an_error_on_a_living_connection_is_no_outage_whatever_its_class) {
  for (const char* state : {"08006", "53100", "53400", "58030", "25006", "57P03"}) {
    begin("a");
    EXPECT_EQ(sqlstate_of([&] { tx().exec(raises(state)); }), state);
    session_->rollback();
    begin("a");
    tx().defer(raises(state));
    EXPECT_EQ(sqlstate_of([&] { session_->commit(); }), state);
  }
  // The handler uses a prepared statement that does not exist. The error looks like that of one of Turnstile's own
  // statements that a pooler has dropped. It is mistaken for that at first, and not again.
  int of_the_statement = 0;
  for (int i = 0; i < 4; ++i) {
    begin("a");
    of_the_statement += sqlstate_of([&] { tx().exec("EXECUTE nothing_of_this_name"); }) == "26000" ? 1 : 0;
    session_->rollback();
  }
  EXPECT_GE(of_the_statement, 2);
}

TEST_F(PostgresHandlerSql, too_many_arguments_are_the_statements_fault) {
  begin("a");
  const std::vector<Param> params(65'536, Param(1));
  EXPECT_EQ(sqlstate_of([&] { tx().run("SELECT 1", params); }), "54023");
  EXPECT_EQ(sqlstate_of([&] { tx().queue("SELECT 1", params); }), "54023");
  effect("goes on");
  session_->commit();
  EXPECT_THAT(effects(), ElementsAre("goes on"));
}

TEST_F(PostgresHandlerSql, an_error_in_the_frameworks_statements_is_the_stores) {
  sql().exec(
      "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = TG_ARGV[0]; END $$");
  for (const char* state : {"P0001", "XX002", "23514", "22023"}) {
    for (const char* table : {"inbox", "response", "outbox"}) {
      sql().exec("CREATE TRIGGER refusing BEFORE INSERT ON " + std::string(table) + " EXECUTE FUNCTION refuse('" +
                 state + "')");
      const std::string message = message_of<StoreUnavailable>([&] {
        begin("a");
        session_->respond(MessageId::from("a0"), "body");
        OwnedMessage published;
        published.topic = "orders";
        session_->publish(published, MessageId::from("b"));
        session_->commit();
      });
      EXPECT_THAT(message, HasSubstr("statement of Turnstile's own")) << table << " " << state;
      EXPECT_THAT(message, HasSubstr(state)) << table << " " << state;
      session_->rollback();
      sql().exec("DROP TRIGGER refusing ON " + std::string(table));
    }
  }
  EXPECT_EQ(ids(), "0");
  begin("a");
  session_->commit();
}

TEST_F(PostgresHandlerSql, a_deferred_trigger_on_a_table_of_the_frameworks_is_the_stores) {
  sql().exec(
      "CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '23514'; END $$");
  sql().exec(
      "CREATE CONSTRAINT TRIGGER auditing AFTER INSERT ON inbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION audit()");
  begin("a");
  EXPECT_THAT(message_of<StoreFailed>([&] { session_->commit(); }), HasSubstr("23514"));
  sql().exec("DROP TRIGGER auditing ON inbox");
  sql().exec("CREATE UNIQUE INDEX ON effect (number)");
  sql().exec("CREATE TABLE parent (number bigint PRIMARY KEY)");
  sql().exec("ALTER TABLE effect ADD FOREIGN KEY (number) REFERENCES parent DEFERRABLE INITIALLY DEFERRED");
  // The table is in the same schema, but it belongs to the handler.
  begin("a");
  effect("without a parent");
  EXPECT_EQ(sqlstate_of([&] { session_->commit(); }), "23503");
  sql().exec("ALTER TABLE effect DROP CONSTRAINT effect_number_fkey");
  sql().exec(
      "CREATE CONSTRAINT TRIGGER auditing AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION audit()");
  begin("a");
  effect("refused");
  EXPECT_EQ(sqlstate_of([&] { session_->commit(); }), "23514");
}

TEST_F(PostgresHandlerSql, a_server_that_fails_at_commit_is_no_fault_of_the_message) {
  sql().exec(
      "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = TG_ARGV[0]; END $$");
  for (const char* state : {"53100", "57P01", "58030", "XX001"}) {
    sql().exec(
        "CREATE CONSTRAINT TRIGGER refusing AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED FOR EACH ROW "
        "EXECUTE FUNCTION refuse('" +
        std::string(state) + "')");
    begin("a");
    effect("refused");
    EXPECT_THAT(message_of<StoreUnavailable>([&] { session_->commit(); }), HasSubstr(state));
    sql().exec("DROP TRIGGER refusing ON effect");
  }
}

TEST_F(PostgresHandlerSql, a_topic_that_cannot_be_one_is_the_messages_fault) {
  begin("a");
  for (const std::string& topic : {std::string("bad\xff"), std::string("nul\0", 4), std::string()}) {
    OwnedMessage published;
    published.topic = topic;
    EXPECT_THAT(message_of<Error>([&] { session_->publish(published, MessageId::from("b")); }),
                HasSubstr("is not a valid topic name"));
  }
  session_->commit();
}

}  // namespace
}  // namespace turnstile::test
