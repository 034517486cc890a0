// borrow(): guards in the caller's own libpqxx transaction.

#include <pqxx/connection>
#include <pqxx/nontransaction>
#include <pqxx/transaction>

#include "tests/integration/guards_fixture.hpp"
#include "turnstile/postgres/pqxx.hpp"

namespace turnstile::test {
namespace {

using namespace std::string_literals;
using postgres::row_lock;
using postgres::transition;
using postgres::unique;
using postgres::version;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class BorrowedGuards : public Guards {
 protected:
  void SetUp() override {
    Guards::SetUp();
    if (!IsSkipped()) connection_ = std::make_unique<pqxx::connection>(schema_->url());
  }
  std::unique_ptr<pqxx::connection> connection_;
};

TEST_F(BorrowedGuards, guards_and_the_owners_statements_are_one_transaction) {
  for (const bool committed : {false, true, true}) {
    pqxx::work work(*connection_);
    auto with = postgres::borrow(work);
    const bool first = unique(with, "payment", {{"id", "p"}}, {{"cents", 5}}).applied();
    EXPECT_EQ(transition(with, "orders", {{"id", 1}}, "state", "open", "paid").applied(), first);
    EXPECT_EQ(version(with, "account", {{"name", "ada"}}, "version", 7).applied(), first);
    EXPECT_TRUE(row_lock(with, "account", {{"name", "ada"}}, {"cents"}).applied());
    if (first) work.exec("INSERT INTO effect (what) VALUES ('paid')");
    if (committed) work.commit();
  }
  EXPECT_THAT(effects(), ElementsAre("paid"));
  EXPECT_EQ(sql().one("SELECT version FROM account"), "8");
}

TEST_F(BorrowedGuards, bytes_as_keys) {
  sql().exec("CREATE TABLE raw (id bytea PRIMARY KEY)");
  const std::byte nul[] = {std::byte{0}, std::byte{255}};
  pqxx::work work(*connection_);
  auto with = postgres::borrow(work);
  EXPECT_TRUE(unique(with, "raw", {{"id", std::span<const std::byte>(nul)}}).applied());
  EXPECT_TRUE(unique(with, "raw", {{"id", std::span<const std::byte>(nul)}}).already_applied());
  work.commit();
  EXPECT_EQ(sql().one("SELECT encode(id, 'hex') FROM raw"), "00ff");
}

TEST_F(BorrowedGuards, a_handler_and_a_libpqxx_transaction_meet) {
  const auto pay = [](Transaction& with) { return transition(with, "orders", {{"id", 1}}, "state", "open", "paid"); };
  EXPECT_TRUE(pay(tx()).applied());
  pqxx::work work(*connection_);
  const std::string pid = std::to_string(connection_->backendpid());
  auto answer = std::async(std::launch::async, [&] {
    auto with = postgres::borrow(work);
    return pay(with);
  });
  EXPECT_TRUE(waits(pid));
  session_->commit();
  EXPECT_TRUE(answer.get().already_applied());
}

TEST_F(BorrowedGuards, above_read_committed_a_race_is_busy) {  // hazard: isolation-level
  using Repeatable = pqxx::transaction<pqxx::repeatable_read>;
  Repeatable work(*connection_);
  auto with = postgres::borrow(work);
  EXPECT_EQ(with.exec("SELECT state FROM orders WHERE id = 1").get<std::string>(0, 0), "open");
  EXPECT_TRUE(transition(tx(), "orders", {{"id", 1}}, "state", "open", "paid").applied());
  commit();
  EXPECT_THAT(message_of<StoreBusy>([&] {
                transition(with, "orders", {{"id", 1}}, "state", "open", "paid");
              }),
              HasSubstr("40001"));
}

TEST_F(BorrowedGuards, errors_are_the_same_as_in_a_handler) {  // hazard: error-detail
  const std::vector<std::function<void(Transaction&)>> calls{
      [](Transaction& with) {
        unique(with, "nothing", {{"id", 1}});
      },
      [](Transaction& with) {
        row_lock(with, "payment", {{"colour", 1}});
      },
      [](Transaction& with) {
        unique(with, "payment", {{"note", "x"}});
      },
      [](Transaction& with) { with.exec("INSERT INTO orders VALUES ($1)", 1); },
      [](Transaction& with) { with.exec("SELECT 1 / $1::integer", 0); },
      [](Transaction& with) { with.exec("SELEC"); },
      [](Transaction& with) { with.defer("SELECT $1::text", "a\0b"s); },
  };
  for (const auto& call : calls) {
    const auto told = [&](Transaction& with) -> std::pair<std::string, std::string> {
      try {
        call(with);
      } catch (const SqlError& error) {
        return {error.sqlstate, error.what()};
      }
      return {"no SqlError", ""};
    };
    roll_back();
    pqxx::work work(*connection_);
    auto with = postgres::borrow(work);
    const auto in_handler = told(tx());
    EXPECT_NE(in_handler.first, "no SqlError");
    EXPECT_EQ(told(with), in_handler);
  }
}

TEST_F(BorrowedGuards, a_wait_that_is_too_long_is_busy) {
  EXPECT_TRUE(row_lock(tx(), "account", {{"name", "ada"}}).applied());
  pqxx::work work(*connection_);
  work.exec("SET LOCAL lock_timeout = '50ms'");
  auto with = postgres::borrow(work);
  EXPECT_THAT(message_of<StoreBusy>([&] { row_lock(with, "account", {{"name", "ada"}}); }), HasSubstr("55P03"));
}

TEST_F(BorrowedGuards, a_deadlock_is_busy_for_one_of_two) {
  const auto pay = [](Transaction& with) { return transition(with, "orders", {{"id", 1}}, "state", "open", "paid"); };
  const auto lock = [](Transaction& with) { return row_lock(with, "account", {{"name", "ada"}}); };
  const auto is_lost = [](Transaction& with, const Call& call) {
    try {
      call(with);
      return 0;
    } catch (const StoreBusy& error) {
      EXPECT_THAT(error.what(), HasSubstr("40P01"));
      return 1;
    }
  };
  pqxx::work work(*connection_);
  auto with = postgres::borrow(work);
  lock(tx());
  pay(with);
  auto theirs = std::async(std::launch::async, [&] {
    const int lost = is_lost(with, lock);
    work.abort();
    return lost;
  });
  EXPECT_TRUE(waits(std::to_string(connection_->backendpid())));
  const int ours = is_lost(tx(), pay);
  session_->rollback();
  EXPECT_EQ(ours + theirs.get(), 1);
}

TEST_F(BorrowedGuards, a_connection_that_is_gone_is_unavailable_and_is_not_made_anew) {  // hazard: silent-reconnect
  pqxx::work work(*connection_);
  auto with = postgres::borrow(work);
  const int backend_pid = connection_->backendpid();
  sql().exec("SELECT pg_terminate_backend(" + std::to_string(backend_pid) + ")");
  ASSERT_TRUE(gone(backend_pid));
  EXPECT_THROW(row_lock(with, "account", {{"name", "ada"}}), StoreUnavailable);
  EXPECT_ANY_THROW(row_lock(with, "account", {{"name", "ada"}}));
}

TEST_F(BorrowedGuards, every_kind_of_argument_arrives) {
  pqxx::nontransaction work(*connection_);
  auto with = postgres::borrow(work);
  const std::vector<std::int64_t> numbers{1, -2, std::numeric_limits<std::int64_t>::min()};
  const std::vector<std::string> texts{"plain", "quote\" comma, {brace} \\ ", "", "NULL"};
  const std::byte bytes[] = {std::byte{0}, std::byte{255}};
  const auto rows = with.exec(
      "SELECT $1::boolean, $2::bigint, $3::float8, $4::text, encode($5::bytea, 'hex'), "
      "$6::bigint[] = ARRAY[1, -2, -9223372036854775808], "
      "$7::text[] = ARRAY['plain', 'quote\" comma, {brace} \\ ', '', 'NULL'], $8::text, $9::float8, $10::bigint[] = '{}'",
      true, std::numeric_limits<std::int64_t>::max(), 0.1, "text"s, std::span<const std::byte>(bytes), numbers, texts,
      nullptr, std::numeric_limits<double>::infinity(), std::vector<std::int64_t>{});
  EXPECT_THAT(cells(rows),
              ElementsAre("t", "9223372036854775807", "0.1", "text", "00ff", "t", "t", "NULL", "Infinity", "t"));
  EXPECT_EQ(with.exec("INSERT INTO effect (what) VALUES ('a'), ('b')").affected(), 2U);
  EXPECT_EQ(with.exec("SELECT 1 FROM effect").affected(), 2U);
}

}  // namespace
}  // namespace turnstile::test
