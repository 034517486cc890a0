// Which statements a handler must not send, by their text alone.

#include "turnstile/ports/handler_sql.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "turnstile/error.hpp"

namespace turnstile {
namespace {

using ::testing::HasSubstr;

/// The SQLSTATE of the refusal; empty when the text passes.
template <class Check>
std::string refusal(Check check, std::string_view sql) {
  try {
    check(sql);
    return "";
  } catch (const SqlError& error) {
    return error.sqlstate;
  }
}
std::string of_handler(std::string_view sql) { return refusal(ports::check_handler_sql, sql); }
std::string borrowed(std::string_view sql) { return refusal(ports::check_borrowed_sql, sql); }

TEST(HandlerSql, transaction_control_is_refused_however_it_is_written) {
  for (const char* sql : {"COMMIT",
                          "commit",
                          "Commit;",
                          "COMMIT AND CHAIN",
                          "COMMIT WORK",
                          "COMMIT PREPARED 'x'",
                          "END",
                          "END TRANSACTION",
                          "ABORT",
                          "ROLLBACK",
                          "ROLLBACK WORK",
                          "ROLLBACK AND CHAIN",
                          "rollback transaction and chain",
                          "ROLLBACK PREPARED 'x'",
                          "BEGIN",
                          "BEGIN ISOLATION LEVEL SERIALIZABLE",
                          "START TRANSACTION",
                          "PREPARE TRANSACTION 'x'",
                          "prepare /* now */ transaction 'x'",
                          "SET TRANSACTION READ ONLY",
                          "SET LOCAL TRANSACTION READ ONLY",
                          "  \t\n\r\f\vCOMMIT",
                          "-- a comment\nCOMMIT",
                          "--\rCOMMIT",
                          "/* a */ /* b /* nested */ */COMMIT",
                          ";COMMIT",
                          " ; -- empty\n ;COMMIT",
                          "ROLLBACK/*TO*/",
                          "ROLLBACK --TO x"}) {
    EXPECT_EQ(of_handler(sql), "2D000") << sql;
  }
}

TEST(HandlerSql, what_outlasts_the_transaction_is_refused) {
  for (const char* sql :
       {"SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SET SESSION AUTHORIZATION x", "SET search_path = x",
        "SET ROLE x", "set statement_timeout to 1", "RESET ALL", "DISCARD TEMP", "CLOSE ALL"}) {
    EXPECT_EQ(of_handler(sql), "2D000") << sql;
    EXPECT_EQ(borrowed(sql), "") << sql;  // the session is the caller's
  }
}

/// What Turnstile writes at the end of the message would be refused, and taken for an outage.
TEST(HandlerSql, what_changes_the_rights_of_the_transaction_is_refused) {
  for (const char* sql :
       {"SET LOCAL ROLE x", "set local role none", "SET LOCAL SESSION AUTHORIZATION x",
        "SET LOCAL transaction_read_only = on", "set local Transaction_Isolation to 'serializable'"}) {
    EXPECT_EQ(of_handler(sql), "2D000") << sql;
    EXPECT_EQ(borrowed(sql), "") << sql;
  }
}

TEST(HandlerSql, the_rest_passes) {
  for (const char* sql : {"",
                          ";",
                          "--",
                          "/*",
                          "SELECT 1",
                          "CLOSE all_of_it",
                          "SAVEPOINT a",
                          "RELEASE SAVEPOINT a",
                          "ROLLBACK TO a",
                          "ROLLBACK TO SAVEPOINT a",
                          "ROLLBACK WORK TO SAVEPOINT a",
                          "rollback transaction to a",
                          "PREPARE transaction_of AS SELECT 1",
                          "PREPARE x AS SELECT 1",
                          "SET LOCAL search_path = x",
                          "SET CONSTRAINTS ALL IMMEDIATE",
                          "CALL commit_all()",
                          "(SELECT 1)",
                          "INSERT INTO t VALUES ('; COMMIT')",
                          "UPDATE t SET a = 1 /* COMMIT */",
                          "commits",
                          "COMMIT_ALL",
                          "begin$",
                          "WITH a AS (SELECT 1) TABLE a",
                          "DO $$ BEGIN COMMIT; END $$"}) {
    EXPECT_EQ(of_handler(sql), "") << sql;
    EXPECT_EQ(borrowed(sql), "") << sql;
  }
}

TEST(HandlerSql, in_a_text_of_several_statements_each_is_looked_at) {
  for (const char* sql :
       {"SELECT 1; COMMIT", "SELECT ';'; COMMIT", "SELECT 'it''s;'; COMMIT", "SELECT E'\\';'; COMMIT",
        "SELECT \";\"; COMMIT", "SELECT $$;$$; COMMIT", "SELECT $a$ $$; $b$ $a$; COMMIT", "SELECT $1; COMMIT",
        "SELECT 1 -- ;\n; COMMIT", "SELECT 1/*;*/;COMMIT", "SELECT 1;;;COMMIT", "SELECT 'a\\'; COMMIT",
        "SELECT e'\\\\'; COMMIT", "SELECT (1); COMMIT",
        "CREATE RULE r AS ON INSERT TO t DO ALSO (DELETE FROM a; DELETE FROM b); COMMIT",
        "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END; COMMIT",
        "SELECT 1; ROLLBACK TO a; ROLLBACK"}) {
    EXPECT_EQ(borrowed(sql), "2D000") << sql;
  }
  for (const char* sql :
       {"SELECT '; COMMIT'", "SELECT 1; SELECT '; COMMIT'", "SELECT $$; COMMIT;$$", "SELECT $x$; COMMIT; $y$ $x$",
        "SELECT \"; COMMIT\"", "SELECT 1 -- ; COMMIT", "SELECT 1 /* ; /* */ COMMIT */", "SELECT E'\\'; COMMIT'",
        "SELECT 1; SAVEPOINT a; ROLLBACK TO a; SELECT 2",
        "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 1 END; END; SELECT 1",
        "CREATE RULE r AS ON INSERT TO t DO ALSO (DELETE FROM a; DELETE FROM b); SELECT 1",
        "SELECT 'unfinished; COMMIT", "SELECT $$unfinished; COMMIT", "SELECT a$b$ FROM t; SELECT 1"}) {
    EXPECT_EQ(borrowed(sql), "") << sql;
  }
}

TEST(HandlerSql, a_savepoint_is_known_however_it_is_written) {
  for (const char* sql : {"SAVEPOINT s", "savepoint \"s\"", " ; -- a\n/* b */Savepoint s"})
    EXPECT_TRUE(ports::makes_savepoint(sql)) << sql;
  for (const char* sql : {"", "RELEASE SAVEPOINT s", "ROLLBACK TO SAVEPOINT s", "SELECT 'SAVEPOINT s'", "SAVEPOINTS"})
    EXPECT_FALSE(ports::makes_savepoint(sql)) << sql;
}

TEST(HandlerSql, a_nul_is_not_the_end_of_a_statement) {
  const std::string cut("DELETE FROM account\0 WHERE id = 1", 33);
  EXPECT_EQ(of_handler(cut), "22021");
  EXPECT_EQ(borrowed(cut), "22021");
}

TEST(HandlerSql, the_refusal_says_what_to_do) {
  try {
    ports::check_handler_sql("COMMIT");
    FAIL();
  } catch (const SqlError& error) {
    EXPECT_THAT(error.what(), HasSubstr("COMMIT was not sent"));
    EXPECT_THAT(error.what(), HasSubstr("throw to have the message's work rolled back"));
  }
  try {
    ports::check_handler_sql("SET search_path = x");
    FAIL();
  } catch (const SqlError& error) {
    EXPECT_THAT(error.what(), HasSubstr("SET LOCAL"));
  }
}

TEST(HandlerSql, what_calls_only_known_functions_leaves_the_session_alone) {
  for (const char* sql :
       {"INSERT INTO effect (id, what) VALUES ($1, $2)", "insert into app.effect(id) values (nextval('s'))",
        "INSERT INTO \"Odd\".\"name\" AS e (id) SELECT * FROM unnest($1::bigint[], $2::text[]) AS t(id, what)",
        "INSERT INTO t VALUES (now(), 'set_config(''a'', ''b'', false)', E'\\'pg_advisory_lock(', $$dblink('')$$)",
        "INSERT INTO t (a) VALUES ($1) ON CONFLICT (a) DO UPDATE SET (b, c) = (1, 2) RETURNING (a)",
        "UPDATE account SET balance = balance - $1 WHERE id = $2 AND (balance >= $1 OR limit_ IN (1, 2))",
        "DELETE FROM t USING u WHERE t.id = u.id /* set_config( */ AND EXISTS (SELECT 1)",
        "WITH x AS MATERIALIZED (SELECT count(*) AS n FROM t) SELECT coalesce(n, 0)::numeric(5, 2) FROM x -- f(",
        "SELECT CAST(a AS varchar(10)), row_number() OVER (PARTITION BY b ORDER BY c) FROM t", "SAVEPOINT a",
        "ROLLBACK TO a", "RELEASE a", "SET LOCAL lock_timeout = '1s'", "SET CONSTRAINTS ALL IMMEDIATE",
        "VALUES (1.5e3, 2)", "; SELECT pg_advisory_xact_lock(hashtext($1))"}) {
    EXPECT_FALSE(ports::may_change_session(sql)) << sql;
  }
}

TEST(HandlerSql, what_may_leave_something_in_the_session_is_seen) {
  for (const char* sql : {"CREATE TEMP TABLE effect (id bigint)",
                          "CREATE TABLE pg_temp.effect (id bigint)",
                          "SELECT 1 INTO TEMP effect",
                          "SELECT * INTO pg_temp.effect FROM t",
                          "select set_config('a', 'b', false)",
                          "INSERT INTO t (a) VALUES (set_config('a', 'b', false))",
                          "INSERT INTO t SELECT pg_advisory_lock(1)",
                          "UPDATE t SET a = pg_catalog.set_config('a', 'b', false)",
                          "SELECT report()",
                          "SELECT report /* x */ ()",
                          "SELECT app.count(1)",
                          "SELECT \"report\"()",
                          "SELECT U&\"report\" (1)",
                          "SELECT a AS b, report(c) FROM t",
                          "WITH x AS (SELECT pg_try_advisory_lock(1)) SELECT 1",
                          "SELECT * FROM t AS x(a) WHERE report(a)",
                          "DO $$ BEGIN END $$",
                          "CALL report()",
                          "LISTEN news",
                          "PREPARE mine AS SELECT 1",
                          "EXECUTE mine",
                          "LOAD 'x'",
                          "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
                          "COPY t FROM STDIN",
                          "EXPLAIN ANALYZE SELECT report()",
                          "",
                          "(SELECT report())",
                          "INSERT INTO t (a) VALUES (1) RETURNING report(a)",
                          "TABLE t",
                          "/* nothing */"}) {
    EXPECT_TRUE(ports::may_change_session(sql)) << sql;
  }
}

TEST(HandlerSql, what_names_a_role_is_seen) {
  for (const char* sql :
       {"SELECT set_config($1, $2, true)", "select Set_Config('role', 'a', true)", "SET LOCAL ROLE a",
        "SELECT set_config('app.tenant', 'a', true), set_config (\n$1, $2, true)", "SELECT set_config",
        "SELECT set_config('transaction_read_only', 'on', true)", "DO $$ BEGIN SET TRANSACTION READ ONLY; END $$",
        "DO $$ BEGIN PERFORM set_config('ROLE', 'a', true); END $$",
        "UPDATE pg_settings SET setting = 'a' WHERE name = 'session_authorization'"}) {
    EXPECT_TRUE(ports::names_role(sql)) << sql;
  }
  for (const char* sql : {"", "SELECT report()", "INSERT INTO rolling (rol) VALUES (1)", "rol",
                          "SET LOCAL lock_timeout = 1", "SELECT set_config('app.tenant', $1, true)"}) {
    EXPECT_FALSE(ports::names_role(sql)) << sql;
  }
}

}  // namespace
}  // namespace turnstile
