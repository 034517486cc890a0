// one_time_token on the real PostgreSQL.

#include <pqxx/connection>
#include <pqxx/transaction>

#include "tests/integration/guards_fixture.hpp"
#include "turnstile/postgres/pqxx.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
namespace one_time_token = postgres::one_time_token;
using postgres::Verdict;
using ::testing::AllOf;
using ::testing::HasSubstr;

class GuardTokens : public Guards {
 protected:
  void SetUp() override {
    Guards::SetUp();
    if (!IsSkipped()) tokens_ = std::make_unique<Table>(schema_->name(), "one_time_token");
  }
  std::string issue() {
    std::string token = one_time_token::issue(tx(), "ada", std::chrono::seconds(60), *tokens_);
    commit();
    return token;
  }

  std::unique_ptr<Table> tokens_;
};

TEST_F(GuardTokens, a_token_is_redeemed_once) {
  const std::string token = issue();
  EXPECT_EQ(token.size(), 32U);
  EXPECT_NE(token, issue());
  const auto redeem = [&](std::string_view subject) { return one_time_token::redeem(tx(), token, subject, *tokens_); };
  const Guarded foreign = redeem("grace");
  EXPECT_TRUE(foreign.conflict());
  EXPECT_EQ(foreign.found.at(0, 0), "ada");
  const Guarded first = redeem("ada");
  EXPECT_TRUE(first.applied());
  EXPECT_EQ(first.found.at(0, 3), std::nullopt);
  commit();
  const Guarded again = redeem("ada");
  EXPECT_TRUE(again.already_applied());
  EXPECT_NE(again.found.at(0, 3), std::nullopt);
  EXPECT_TRUE(redeem("grace").conflict());
  EXPECT_EQ(
      sql().one("SELECT count(*) FROM one_time_token WHERE position('" + token + "' IN one_time_token::text) > 0"),
      "0");
}

TEST_F(GuardTokens, of_two_that_redeem_a_token_one_wins) {
  const std::string token = issue();
  const auto redeem = [&](Transaction& with) { return one_time_token::redeem(with, token, "ada", *tokens_); };
  EXPECT_TRUE(meet(redeem, false).applied());
  EXPECT_TRUE(redeem(tx()).already_applied());
  const std::string next = issue();
  EXPECT_TRUE(meet([&](Transaction& with) { return one_time_token::redeem(with, next, "ada", *tokens_); }, true)
                  .already_applied());
}

TEST_F(GuardTokens, what_is_no_token_is_unknown) {
  for (const std::string& token :
       {""s, "'; DROP TABLE one_time_token; --"s, "a\0b"s, std::string(1 << 20, 'x'), "\xff\xfe"s}) {
    EXPECT_TRUE(one_time_token::redeem(tx(), token, "ada", *tokens_).missing());
  }
  one_time_token::issue(tx(), "ada", 60s,
                        *tokens_);  // a token that is rolled back was never issued
  const std::string lost = one_time_token::issue(tx(), "ada", 60s, *tokens_);
  roll_back();
  EXPECT_TRUE(one_time_token::redeem(tx(), lost, "ada", *tokens_).missing());
}

TEST_F(GuardTokens, a_token_past_its_time_is_not_redeemed_and_is_purged) {
  const std::string old = issue(), used = issue(), young = issue();
  EXPECT_TRUE(one_time_token::redeem(tx(), used, "ada", *tokens_).applied());
  commit();
  sql().exec(
      "UPDATE one_time_token SET expires_at = clock_timestamp() - "
      "interval '1 hour' WHERE digest IN (sha256('" +
      old + "'), sha256('" + used + "'))");
  const Guarded expired = one_time_token::redeem(tx(), old, "ada", *tokens_);
  EXPECT_TRUE(expired.conflict());
  EXPECT_FALSE(expired.missing());
  EXPECT_TRUE(one_time_token::redeem(tx(), used, "ada", *tokens_).already_applied());
  commit();
  EXPECT_EQ(one_time_token::purge(tx(), 2h, 10, *tokens_), 0);
  EXPECT_EQ(one_time_token::purge(tx(), 0s, 1, *tokens_), 1);
  EXPECT_EQ(one_time_token::purge(tx(), 0s, 10, *tokens_), 1);
  EXPECT_TRUE(one_time_token::redeem(tx(), used, "ada", *tokens_).missing());
  EXPECT_TRUE(one_time_token::redeem(tx(), young, "ada", *tokens_).applied());
}

TEST_F(GuardTokens, tokens_have_a_time_and_a_table) {
  EXPECT_THAT(message_of<Error>([&] { one_time_token::issue(tx(), "ada", 0s, *tokens_); }), HasSubstr("valid_for"));
  EXPECT_EQ(sqlstate_of([&] { one_time_token::issue(tx(), "a\0b"s, 1s, *tokens_); }), "22021");
  const std::string message = message_of<SqlError>([&] {
    one_time_token::issue(tx(), "ada", 1s, Table{"no_such_schema", "one_time_token"});
  });
  EXPECT_THAT(message, AllOf(HasSubstr("no_such_schema"), HasSubstr("turnstile migrate up")));
}

TEST_F(GuardTokens, issue_and_redeem_are_one_statement_each) {
  CountingTransaction with(tx());
  const std::string token = one_time_token::issue(with, "ada", 60s, *tokens_);
  for (int round = 0; round < 2; ++round) one_time_token::redeem(with, token, "ada", *tokens_);
  EXPECT_EQ(with.count, 3);
}

TEST_F(GuardTokens, a_libpqxx_transaction_redeems) {
  const std::string token = issue();
  pqxx::connection connection(schema_->url());
  for (const auto verdict : {Verdict::applied, Verdict::already_applied}) {
    pqxx::work work(connection);
    auto with = postgres::borrow(work);
    EXPECT_EQ(one_time_token::redeem(with, token, "ada", *tokens_).verdict, verdict);
    work.commit();
  }
}

}  // namespace
}  // namespace turnstile::test
