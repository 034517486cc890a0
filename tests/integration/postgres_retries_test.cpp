// The functions of stored retries, called as the store calls them, in one session.

#include <nlohmann/json.hpp>
#include <string>

#include "tests/integration/postgres_fixture.hpp"

namespace turnstile::test {
namespace {

using Json = nlohmann::json;

class PostgresRetries : public PostgresTest {
 protected:
  /// Adds five messages of offsets 1 to 5 with these ids, the last digits of a UUID. They have 0, 1, 3, 1 and 0 headers. The
  /// keys of the first, third and fifth are the same; the second has no key.
  void add(const std::string& digits) {
    std::string ids;
    for (const char digit : digits) ids += (ids.empty() ? "" : ",") + uuid(digit);
    sql().exec("SELECT add_retries(1::smallint, '{" + ids +
               "}', 1, 0, '{1,2,3,4,5}', '{1,1,1,1,1}', '{0,0,0,0,0}', true, '{0,0,0,0,0}', 'payments', 0, "
               "'{k,NULL,k,other,k}', '{a,b,c,d,e}', '{n2,n3a,n3b,n3c,n4}', '{v2,v3a,NULL,v3c,v4}', '{0,1,4,5,5}', "
               "'{1,2,3,4,5}', '{down,down,down,down,down}')");
  }
  static std::string uuid(char digit) { return "00000000-0000-0000-0000-00000000000" + std::string(1, digit); }
  std::vector<std::string> rows() {
    return sql().column(
        "SELECT concat_ws(' ', right(message_id::text, 1), record_offset, convert_from(record_payload, 'UTF8'), "
        "header_names::text, header_values::text, CASE WHEN due_at = 'infinity' THEN 'waits' ELSE 'due' END, "
        "extract(epoch FROM record_timestamp) * 1000, "
        "(SELECT count(*) FROM retry_due d WHERE d.id = r.id AND d.due_at = r.due_at)) FROM retry r ORDER BY id");
  }
  /// How many pages the statement reads, after it has run once in this session.
  int pages_of(const std::string& statement) {
    const Json root = Json::parse(sql().one("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement))[0]["Plan"];
    return root["Shared Hit Blocks"].get<int>() + root["Shared Read Blocks"].get<int>();
  }
};

TEST_F(PostgresRetries, a_batch_is_added_in_order_with_the_headers_of_each) {
  add("12345");
  EXPECT_THAT(rows(),
              ::testing::ElementsAre(
                  "1 1 a {} {} due 1.000000 1", R"(2 2 b {"\\x6e32"} {"\\x7632"} due 2.000000 1)",
                  R"(3 3 c {"\\x6e3361","\\x6e3362","\\x6e3363"} {"\\x763361",NULL,"\\x763363"} waits 3.000000 0)",
                  R"(4 4 d {"\\x6e34"} {"\\x7634"} due 4.000000 1)", "5 5 e {} {} waits 5.000000 0"));
}

TEST_F(PostgresRetries, a_message_that_has_a_row_keeps_it_and_the_others_are_added) {
  for (const char has_row : std::string("12345")) {
    SCOPED_TRACE(has_row);
    sql().exec("DELETE FROM retry");
    sql().exec("SELECT add_retries(1::smallint, '{" + uuid(has_row) +
               "}', 1, 0, '{77}', '{1}', '{0}', true, '{0}', 'payments', 0, '{mine}', '{old}', '{}', '{}', '{0}', "
               "'{7}', '{down}')");
    add("12345");
    std::vector<std::string> expected{
        "1 1 a {} {} due 1.000000 1", R"(2 2 b {"\\x6e32"} {"\\x7632"} due 2.000000 1)",
        R"(3 3 c {"\\x6e3361","\\x6e3362","\\x6e3363"} {"\\x763361",NULL,"\\x763363"} waits 3.000000 0)",
        R"(4 4 d {"\\x6e34"} {"\\x7634"} due 4.000000 1)", "5 5 e {} {} waits 5.000000 0"};
    expected.erase(expected.begin() + (has_row - '1'));
    // The first of the key that was added does not wait.
    if (has_row == '1') expected[1].replace(expected[1].find("waits"), 16, "due 3.000000 1");
    expected.insert(expected.begin(), std::string(1, has_row) + " 77 old {} {} due 7.000000 1");
    EXPECT_EQ(rows(), expected);
  }
}

// An identity that is behind its rows, as after a failover by logical replication, is no sign of a row of the message.
TEST_F(PostgresRetries, another_conflict_is_an_error) {
  add("12345");
  sql().exec("ALTER TABLE retry ALTER id RESTART WITH 1");
  try {
    add("6789a");
    FAIL() << "nothing was added, and nobody knows";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("retry_pkey"));
  }
  EXPECT_EQ(rows().size(), 5U);
}

// PostgreSQL may take the tables for empty: a session planned its statements then, or statistics are from that time.
TEST_F(PostgresRetries, the_pages_that_are_read_do_not_depend_on_statistics) {
  const auto call_all_on_none = [&] {
    sql().exec("SELECT * FROM lock_retries(1::smallint, '{1}', '{1}', '{" + uuid('1') + "}')");
    sql().exec("SELECT defer_retries(1::smallint, '{1}', '{1}', '{2}', '{0}', '{down}', '{}')");
    sql().exec("SELECT end_retries(1::smallint, '{1}', '{1}')");
    sql().exec("SELECT * FROM keys_with_retries(1::smallint, '{k}')");
    sql().exec("SELECT retries_are_sent('{1}', '{1}')");
    sql().exec("SELECT * FROM retries_to_send('{0,1,2,3}', 50, 1000000)");
  };
  sql().exec("ALTER TABLE retry SET (autovacuum_enabled = false)");
  sql().exec("ALTER TABLE retry_due SET (autovacuum_enabled = false)");
  add("12345");
  sql().exec("VACUUM ANALYZE retry, retry_due");
  sql().exec("DELETE FROM retry WHERE record_offset > 1");
  sql().exec("VACUUM ANALYZE retry, retry_due");
  call_all_on_none();
  sql().exec(
      "WITH many AS (INSERT INTO retry (handler, message_id, slot, incarnation, record_offset, attempts, due_at, in_order, "
      "shard, topic, partition, record_key, header_names, header_values, error) "
      "SELECT 1, gen_random_uuid(), 1, 0, n, 1, now(), true, n % 16, 'payments', 0, convert_to((n / 2)::text, 'UTF8'), '{}', "
      "'{}', 'down' FROM generate_series(1, 20000) n RETURNING id, due_at, shard) "
      "INSERT INTO retry_due (due_at, id, shard) SELECT due_at, id, shard FROM many");
  const std::string last = " FROM (SELECT * FROM retry ORDER BY id DESC LIMIT 50) r";
  const auto arrays = [&](const std::string& columns) { return "(" + sql().one("SELECT " + columns + last) + ")"; };
  const auto expect_few = [&](const std::string& call) {
    sql().exec("BEGIN");
    // 2,045 were seen with catalogs that no session had read. To read the table for each row would take over 20,000.
    EXPECT_LE(pages_of("SELECT * FROM " + call), 4'000) << call;
    sql().exec("ROLLBACK");
  };
  call_all_on_none();
  const std::string numbers = "format('1::smallint, %L, %L', array_agg(id), array_agg(attempts))";
  expect_few("lock_retries" + arrays(numbers + " || format(', %L', array_agg(message_id))"));
  expect_few("defer_retries" + arrays(numbers + " || format(', %L, %L, %L, %L', array_agg(2), array_agg(0), "
                                                "array_agg('down'::bytea), '{1}'::bigint[])"));
  expect_few("end_retries" + arrays(numbers));
  expect_few("keys_with_retries" + arrays("format('1::smallint, %L', array_agg(record_key))"));
  expect_few("retries_are_sent" + arrays("format('%L, %L', array_agg(id), "
                                         "array_agg((extract(epoch FROM due_at) * 1000000)::bigint))"));
  expect_few("retries_to_send('{0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}', 50, 1000000)");
}

}  // namespace
}  // namespace turnstile::test
