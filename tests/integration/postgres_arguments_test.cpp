// Arguments of statements arrive in PostgreSQL with their type and their value, in binary form and as text.

#include <gmock/gmock.h>

#include <array>
#include <cstddef>
#include <memory>
#include <pqxx/connection>
#include <pqxx/transaction>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/integration/postgres_fixture.hpp"
#include "turnstile/postgres/guards.hpp"
#include "turnstile/postgres/pqxx.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono;
using ::testing::StartsWith;

class PostgresArguments : public PostgresTest {
 protected:
  void SetUp() override {
    PostgresTest::SetUp();
    if (!IsSkipped()) callers_ = std::make_unique<pqxx::connection>(schema_->url());
  }

  /// The value after a cast to this type, as PostgreSQL writes it. The same must arrive in a statement that waits for
  /// its answer, in a deferred one, and in a transaction of the caller.
  std::string arrives(const Param& param, const std::string& type) {
    const std::string text = "coalesce(($1::" + type + ")::text, 'NULL')";
    const Param list[] = {param};
    begin("message " + std::to_string(++number_) + " ");
    const std::string in_session = *tx().run("SELECT " + text, list).at(0, 0);
    tx().queue("INSERT INTO effect (what) SELECT " + text, list);
    session_->commit();
    EXPECT_EQ(effects().back(), in_session) << "deferred, " << type;
    pqxx::work work(*callers_);
    auto with = postgres::borrow(work);
    EXPECT_EQ(*with.run("SELECT " + text, list).at(0, 0), in_session) << "of the caller, " << type;
    return in_session;
  }
  /// The type that the server gives to the argument without a cast.
  std::string type_of(const Param& param) {
    const Param list[] = {param};
    begin("type " + std::to_string(++number_) + " ");
    std::string type = *tx().run("SELECT pg_typeof($1)::text", list).at(0, 0);
    session_->rollback();
    return type;
  }
  std::string refused(const Param& param) {
    const Param list[] = {param};
    begin("refused " + std::to_string(++number_) + " ");
    std::string state = sqlstate_of([&] { tx().run("SELECT $1", list); });
    session_->rollback();
    return state;
  }

 private:
  std::unique_ptr<pqxx::connection> callers_;
  int number_ = 0;
};

const Timestamp kTime = sys_days(2026y / November / 26) + 20h + 5min + 9s + 7ms;
const MessageId kId = MessageId::from("00112233-4455-6677-8899-aabbccddeeff");

TEST_F(PostgresArguments, scalars_arrive_as_they_are) {
  EXPECT_EQ(arrives(nullptr, "text"), "NULL");
  EXPECT_EQ(arrives(true, "boolean"), "true");
  EXPECT_EQ(arrives(-7, "bigint"), "-7");
  EXPECT_EQ(arrives(0.1, "float8"), "0.1");
  EXPECT_EQ(arrives("a\"b", "text"), "a\"b");
  constexpr std::array<std::byte, 2> kBytes{std::byte{0}, std::byte{0xff}};
  EXPECT_EQ(arrives(std::span<const std::byte>(kBytes), "bytea"), "\\x00ff");
  EXPECT_EQ(arrives(kId, "uuid"), kId.text());
  EXPECT_EQ(arrives(std::optional<MessageId>(), "uuid"), "NULL");
  EXPECT_EQ(arrives(Timestamp{}, "timestamptz AT TIME ZONE 'UTC'"), "1970-01-01 00:00:00");
  EXPECT_EQ(arrives(kTime, "timestamptz AT TIME ZONE 'UTC'"), "2026-11-26 20:05:09.007");
  EXPECT_EQ(arrives(Timestamp(sys_days(1y / January / 1)), "timestamptz AT TIME ZONE 'UTC'"), "0001-01-01 00:00:00");
  EXPECT_EQ(arrives(Timestamp(sys_days(10'000y / January / 1) - 1ms), "timestamptz AT TIME ZONE 'UTC'"),
            "9999-12-31 23:59:59.999");
  EXPECT_EQ(arrives(Numeric{"-12.50"}, "numeric"), "-12.50");
  EXPECT_EQ(arrives(Jsonb{R"({"b": 1, "a": "ü"})"}, "jsonb"), R"({"a": "ü", "b": 1})");
}

TEST_F(PostgresArguments, arrays_arrive_as_they_are) {
  EXPECT_EQ(arrives(std::vector<std::int64_t>{1, -2}, "bigint[]"), "{1,-2}");
  EXPECT_EQ(arrives(std::vector<double>{0.1, -1e300, std::numeric_limits<double>::infinity()}, "float8[]"),
            "{0.1,-1e+300,Infinity}");
  EXPECT_EQ(arrives(std::vector<std::string>{"x", "", "null", "a b", "q\"\\"}, "text[]"),
            R"({x,"","null","a b","q\"\\"})");
  EXPECT_EQ(arrives(std::vector<std::string_view>{"a,b", "{"}, "text[]"), R"({"a,b","{"})");
  EXPECT_EQ(arrives(std::vector<MessageId>{kId, MessageId{}}, "uuid[]"),
            "{" + kId.text() + ",00000000-0000-0000-0000-000000000000}");
  EXPECT_EQ(arrives(std::span<const MessageId>(), "uuid[]"), "{}");
  EXPECT_EQ(
      arrives(std::vector<Timestamp>{kTime, Timestamp{}}, "timestamptz[] = '{2026-11-26 20:05:09.007Z,1970-01-01Z}'"),
      "true");
  EXPECT_EQ(arrives(std::vector<Numeric>{{"1"}, {"-0.000100"}, {"1e10"}, {"NaN"}}, "numeric[]"),
            "{1,-0.000100,10000000000,NaN}");
  EXPECT_EQ(arrives(std::vector<Jsonb>{{"1"}, {R"({"a": [null]})"}}, "jsonb[]"), R"({1,"{\"a\": [null]}"})");
}

TEST_F(PostgresArguments, have_the_type_that_the_guide_names) {
  EXPECT_EQ(type_of(kId), "uuid");
  EXPECT_EQ(type_of(kTime), "timestamp with time zone");
  EXPECT_EQ(type_of(Numeric{"1"}), "numeric");
  EXPECT_EQ(type_of(Jsonb{"1"}), "jsonb");
  EXPECT_EQ(type_of(std::vector<std::int64_t>{1}), "bigint[]");
  EXPECT_EQ(type_of(std::vector<double>{1}), "double precision[]");
  EXPECT_EQ(type_of(std::vector<std::string>{"1"}), "text[]");
  EXPECT_EQ(type_of(std::vector<MessageId>{kId}), "uuid[]");
  EXPECT_EQ(type_of(std::vector<Timestamp>{kTime}), "timestamp with time zone[]");
  EXPECT_EQ(type_of(std::vector<Numeric>{{"1"}}), "numeric[]");
  EXPECT_EQ(type_of(std::vector<Jsonb>{{"1"}}), "jsonb[]");
}

/// PostgreSQL reads the same text by itself.
TEST_F(PostgresArguments, numbers_are_those_that_postgres_reads) {
  std::vector<std::string> texts{"0",        "-0",       "+1",       ".5",    "5.",      "-.5e1",
                                 "0.0",      "000.1200", "1e0",      "1E+5",  "123e-10", "12345.6789e4",
                                 "nan",      "NaN",      "10000",    "9999",  "0.0001",  "0.00001",
                                 "1e131071", "1e-16383", "0e-16383", "0000e9"};
  if (sql().one("SELECT current_setting('server_version_num')::int >= 140000") == "t")
    texts.insert(texts.end(), {"inf", "-Infinity", "+infinity"});
  std::mt19937 random(20'261'126);
  const auto digits = [&](std::size_t most) {
    std::string text(random() % (most + 1), '0');
    // Groups of four zeros are a case of their own.
    for (char& c : text) c = static_cast<char>('0' + (random() % 3 == 0 ? 0 : random() % 10));
    return text;
  };
  while (texts.size() < 3'000) {
    const std::string before = digits(random() % 8 == 0 ? 40 : 6), after = digits(random() % 8 == 0 ? 40 : 6);
    if (before.empty() && after.empty()) continue;
    std::string text = (random() % 3 == 0 ? "-" : "") + before;
    if (!after.empty() || random() % 4 == 0) text += "." + after;
    if (random() % 3 == 0) text += "e" + std::to_string(static_cast<int>(random() % 61) - 30);
    texts.push_back(text);
  }
  std::vector<Numeric> numbers;
  for (const std::string& text : texts) numbers.push_back({text});
  begin("numbers");
  const Rows wrong = tx().exec(
      "SELECT t, n::text, t::numeric::text FROM unnest($1::numeric[], $2::text[]) AS u (n, t) "
      "WHERE n::text IS DISTINCT FROM t::numeric::text",
      numbers, texts);
  for (std::size_t row = 0; row < wrong.size(); ++row)
    ADD_FAILURE() << *wrong.at(row, 0) << " arrives as " << wrong.at(row, 1)->substr(0, 80) << ", not "
                  << wrong.at(row, 2)->substr(0, 80);
  for (const std::size_t i : {std::size_t{0}, std::size_t{7}, std::size_t{100}})
    EXPECT_EQ(*tx().exec("SELECT $1 = $2::numeric", numbers[i], texts[i]).at(0, 0), "t") << texts[i];
}

TEST_F(PostgresArguments, what_is_no_value_of_the_type_fails_the_statement_before_it_is_sent) {
  for (const char* text : {"", ".", "-", "+", "1e", "1e+", "e5", "1.2.3", "0x1", " 1", "1 ", "--1", "+-1", "1e5.5",
                           "1,5", "-nan", "infinit", "١"}) {
    EXPECT_EQ(refused(Numeric{text}), "22P02") << '"' << text << '"';
    EXPECT_EQ(refused(std::vector<Numeric>{{"1"}, {text}}), "22P02") << '"' << text << '"';
  }
  EXPECT_EQ(refused(Numeric{std::string_view("1\0", 2)}), "22P02");
  for (const char* text : {"1e131072", "1e-16384", "1e99999999999999999999", "1e-99999999999999999999"})
    EXPECT_EQ(refused(Numeric{text}), "22003") << text;
  EXPECT_EQ(refused(Numeric{std::string(140'000, '7')}), "22003");
  EXPECT_EQ(refused(Timestamp::max()), "22008");
  EXPECT_EQ(refused(std::vector<Timestamp>{Timestamp{}, Timestamp::min()}), "22008");
  for (const std::string_view text :
       {std::string_view(""), std::string_view("{"), std::string_view("{\"a\": \"\0\"}", 10)}) {
    const std::string state = refused(Jsonb{text});
    EXPECT_TRUE(state.starts_with("22")) << state;
  }
}

TEST_F(PostgresArguments, an_error_names_the_argument) {
  begin("named");
  const std::string nul("a\0b", 3);
  try {
    tx().exec("SELECT $1::int, $2::text", 1, nul);
    FAIL();
  } catch (const SqlError& error) {
    EXPECT_THAT(error.what(), StartsWith("argument $2: a text argument has a NUL byte"));
    EXPECT_EQ(error.sqlstate, "22021");
  }
  EXPECT_EQ(*tx().exec("SELECT 1").at(0, 0), "1") << "nothing of it was sent";
}

/// Each of them is small enough. For both together, the server would end the connection.
TEST_F(PostgresArguments, of_1_gb_together_fail_the_statement_before_it_is_sent) {
  const std::string half(std::size_t{1} << 29, 'x');
  handler_timeout_ = std::chrono::minutes(5);  // under the sanitizers, a copy takes long
  begin("large");
  try {
    tx().exec("SELECT length($1), length($2)", half, half);
    FAIL();
  } catch (const SqlError& error) {
    EXPECT_THAT(error.what(), StartsWith("argument $2: it has 536870912 bytes, and those before it 536870913, but"));
  }
  EXPECT_EQ(*tx().exec("SELECT 1").at(0, 0), "1");
}

TEST_F(PostgresArguments, guards_take_them) {
  sql().exec("CREATE TABLE charge (id uuid PRIMARY KEY, amount numeric, at timestamptz, note jsonb)");
  begin("guard");
  EXPECT_TRUE(postgres::unique(tx(), "charge", {{"id", kId}},
                               {{"amount", Numeric{"1.50"}}, {"at", kTime}, {"note", Jsonb{"{}"}}})
                  .applied());
  EXPECT_TRUE(postgres::unique(tx(), "charge", {{"id", kId}}).already_applied());
  session_->commit();
  EXPECT_EQ(sql().one("SELECT amount::text || note::text FROM charge"), "1.50{}");
}

}  // namespace
}  // namespace turnstile::test
