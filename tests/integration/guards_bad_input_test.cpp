// Mistakes that a person makes with guards. Each message names the mistake and the remedy.

#include "tests/integration/guards_fixture.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using postgres::row_lock;
using postgres::transition;
using postgres::unique;
using postgres::version;
using postgres::Wait;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GuardsBadInput : public Guards {};

TEST_F(GuardsBadInput, a_missing_table_is_named_with_what_to_do) {
  const auto each = [&](const Table& table) {
    return std::vector<std::function<void()>>{
        [&, table] {
          unique(tx(), table, {{"id", 1}});
        },
        [&, table] {
          row_lock(tx(), table, {{"id", 1}});
        },
        [&, table] {
          transition(tx(), table, {{"id", 1}}, "state", "a", "b");
        },
        [&, table] {
          version(tx(), table, {{"id", 1}}, "version", 1);
        },
    };
  };
  for (const auto& call : each("Payment")) {
    EXPECT_THAT(message_of<SqlError>(call), AllOf(HasSubstr("(\"Payment\"): relation \"Payment\" does not exist"),
                                                  HasSubstr("42P01"), HasSubstr("Table{\"SCHEMA\", \"TABLE\"}")));
    roll_back();
  }
  for (const auto& call : each({"shop", "payment"})) {
    EXPECT_THAT(message_of<SqlError>(call), AllOf(HasSubstr("\"shop\".\"payment\""), HasSubstr("create the table")));
    roll_back();
  }
}

TEST_F(GuardsBadInput, a_missing_column_is_named_with_what_to_do) {
  const std::vector<std::function<void()>> calls{
      [&] {
        unique(tx(), "payment", {{"id", "1"}}, {{"colour", 1}});
      },
      [&] {
        row_lock(tx(), "payment", {{"id", "1"}}, {"colour"});
      },
      [&] {
        row_lock(tx(), "payment", {{"colour", "1"}});
      },
      [&] {
        transition(tx(), "orders", {{"id", 1}}, "colour", "a", "b");
      },
      [&] {
        version(tx(), "account", {{"name", "ada"}}, "colour", 1);
      },
      [&] {
        version(tx(), "account", {{"name", "ada"}}, "version", 1, {{"colour", 1}});
      },
  };
  for (const auto& call : calls) {
    EXPECT_THAT(message_of<SqlError>(call),
                AllOf(HasSubstr("colour"), HasSubstr("42703"), HasSubstr("names are case-sensitive")));
    roll_back();
  }
}

TEST_F(GuardsBadInput, names_are_quoted_and_nothing_in_them_is_sql) {
  sql().exec(
      "CREATE TABLE \"od\"\"d; DROP TABLE payment; --\" (\"k\"\"ey\" text PRIMARY KEY, \"v.al\" text, \"Select\" bigint)");
  const Table odd("od\"d; DROP TABLE payment; --");
  EXPECT_TRUE(unique(tx(), odd, {{"k\"ey", "a"}}, {{"v.al", "x"}, {"Select", 1}}).applied());
  EXPECT_TRUE(transition(tx(), odd, {{"k\"ey", "a"}}, "v.al", "x", "y").applied());
  EXPECT_TRUE(version(tx(), odd, {{"k\"ey", "a"}}, "Select", 1, {{"v.al", "z"}}).applied());
  EXPECT_THAT(cells(row_lock(tx(), Table{schema_->name(), odd.name}, {{"k\"ey", "a"}}, {"v.al", "Select"}).found),
              ElementsAre("z", "2"));
}

TEST_F(GuardsBadInput, names_that_cannot_be_names_are_refused_before_anything_is_sent) {
  const std::vector<std::pair<std::function<void()>, const char*>> calls{
      {[&] {
         row_lock(tx(), "", {{"id", 1}});
       },
       "the table has no name"},
      {[&] {
         row_lock(tx(), "a\0b"s, {{"id", 1}});
       },
       "NUL"},
      {[&] {
         row_lock(tx(), Table{"x\0"s, "payment"}, {{"id", 1}});
       },
       "the schema \"x?\" has a NUL"},
      {[&] {
         row_lock(tx(), std::string(64, 'x'), {{"id", 1}});
       },
       "64 bytes"},
      {[&] {
         row_lock(tx(), "payment", {{"", 1}});
       },
       "the column has no name"},
      {[&] {
         row_lock(tx(), "payment", {{"id", "p1"}}, {"no\0te"s});
       },
       "NUL"},
      {[&] { unique(tx(), "payment", {}); }, "names no column"},
      {[&] {
         unique(tx(), "payment", {{"id", nullptr}});
       },
       "NULL, which equals no value"},
      {[&] {
         unique(tx(), "payment", {{"id", std::optional<std::string>()}});
       },
       "NULL, which equals no value"},
  };
  for (const auto& [call, text] : calls) EXPECT_THAT(message_of<Error>(call), HasSubstr(text));
  EXPECT_TRUE(unique(tx(), "payment", {{"id", "p1"}}, {{"cents", 1}}).applied());  // the transaction still works
}

TEST_F(GuardsBadInput, keys_with_quotes_and_nul) {  // hazard: text-ids
  for (const std::string& key : {"it's"s, "\"; DROP TABLE payment; --"s, "\\"s, "$1"s, "ünï€"s}) {
    EXPECT_TRUE(unique(tx(), "payment", {{"id", key}}, {{"cents", 1}}).applied()) << key;
    EXPECT_TRUE(unique(tx(), "payment", {{"id", key}}, {{"cents", 1}}).already_applied()) << key;
    EXPECT_THAT(cells(row_lock(tx(), "payment", {{"id", key}}).found), ElementsAre(key));
  }
  // The value is refused, not cut off at the NUL, and the transaction goes on.
  const std::string message = message_of<SqlError>([&] { unique(tx(), "payment", {{"id", "a\0b"s}}, {{"cents", 1}}); });
  EXPECT_THAT(message, AllOf(HasSubstr("\"id\""), HasSubstr("NUL"), HasSubstr("pass bytes")));
  const std::vector<std::string> texts{"fine", "a\0b"s};
  EXPECT_EQ(sqlstate_of([&] { transition(tx(), "orders", {{"id", 1}}, "state", "open", "a\0b"s); }), "22021");
  EXPECT_EQ(sqlstate_of([&] { unique(tx(), "payment", {{"id", texts}}); }), "22021");
  EXPECT_TRUE(row_lock(tx(), "payment", {{"id", "a"}}).missing());
  EXPECT_THAT(message_of<SqlError>([&] {
                unique(tx(), "payment", {{"id", "\xff"}}, {{"cents", 1}});
              }),
              AllOf(HasSubstr("22021"), HasSubstr("pass bytes")));
  roll_back();
  sql().exec("CREATE TABLE raw (id bytea PRIMARY KEY)");
  const std::byte nul[] = {std::byte{'a'}, std::byte{0}, std::byte{'b'}}, other[] = {std::byte{'a'}, std::byte{0}};
  EXPECT_TRUE(unique(tx(), "raw", {{"id", std::span<const std::byte>(nul)}}).applied());
  EXPECT_TRUE(unique(tx(), "raw", {{"id", std::span<const std::byte>(nul)}}).already_applied());
  EXPECT_TRUE(unique(tx(), "raw", {{"id", std::span<const std::byte>(other)}}).applied());
}

TEST_F(GuardsBadInput, a_key_of_more_than_one_row_changes_nothing) {
  sql().exec("UPDATE orders SET state = 'open', paid_by = 'ada'");
  const std::vector<std::function<void()>> calls{
      [&] {
        row_lock(tx(), "orders", {{"paid_by", "ada"}});
      },
      [&] {
        row_lock(tx(), "orders", {{"paid_by", "ada"}}, {}, Wait::no);
      },
      [&] {
        transition(tx(), "orders", {{"paid_by", "ada"}}, "state", "open", "paid");
      },
      [&] {
        version(tx(), "orders", {{"paid_by", "ada"}}, "id", 1);
      },
  };
  for (const auto& call : calls)
    EXPECT_THAT(message_of<Error>(call),
                AllOf(HasSubstr("(\"paid_by\") matches more than one row"), HasSubstr("nothing was changed")));
  commit();
  EXPECT_EQ(sql().one("SELECT count(*) FROM orders WHERE state = 'open'"), "3");
}

TEST_F(GuardsBadInput, values_that_do_not_fit_and_columns_that_cannot_be_compared) {
  EXPECT_THAT(message_of<SqlError>([&] {
                unique(tx(), "payment", {{"id", "p"}}, {{"cents", "many"}});
              }),
              AllOf(HasSubstr("unique(\"payment\")"), HasSubstr("22P02")));
  roll_back();
  sql().exec("CREATE TABLE doc (id bigint PRIMARY KEY, a json, b jsonb)");
  EXPECT_THAT(message_of<SqlError>([&] {
                unique(tx(), "doc", {{"id", 1}}, {{"a", "{}"}});
              }),
              HasSubstr("PostgreSQL can compare jsonb, but not json"));
  roll_back();
  EXPECT_TRUE(unique(tx(), "doc", {{"id", 1}}, {{"b", R"({"x": 1, "y": 2})"}}).applied());
  EXPECT_TRUE(unique(tx(), "doc", {{"id", 1}}, {{"b", R"({"y":2,"x":1})"}}).already_applied());
}

}  // namespace
}  // namespace turnstile::test
