// inbox.once() within the caller's own libpqxx transaction.

#include <future>
#include <pqxx/connection>
#include <pqxx/transaction>

#include "tests/integration/postgres_fixture.hpp"
#include "turnstile/inbox.hpp"
#include "turnstile/postgres/pqxx.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OnceInLibpqxx : public PostgresTest {
 protected:
  void SetUp() override {
    PostgresTest::SetUp();
    if (!IsSkipped()) inbox_.emplace(store_);
  }
  std::optional<Inbox> inbox_;
};

TEST_F(OnceInLibpqxx, the_effect_the_id_and_the_owners_statements_are_one_transaction) {
  const std::string receipt = "receipt\0\xff"s;
  OwnedMessage message;
  message.topic = "orders";
  message.key = "k\0"s;
  message.payload = "\xff\0p"s;
  message.headers = {{"a", "1\0"s}, {"none", std::nullopt}, {"empty", ""}};
  pqxx::connection connection(schema_->url());
  for (const bool committed : {false, true, true}) {
    pqxx::work work(connection);
    auto with = postgres::borrow(work);
    const Once once = inbox_->once(with, "charge", "r1",
                                   [&](Context& ctx) {
                                     ctx.tx().exec("INSERT INTO effect (what) VALUES ($1)", "paid");
                                     ctx.reply(receipt);
                                     ctx.publish(message);
                                   },
                                   {.body = "10 cents"});
    EXPECT_EQ(once.response, receipt);
    if (once.kind == Once::Kind::ran) work.exec("INSERT INTO effect (what) VALUES ('booked')");
    if (committed) work.commit();
  }
  EXPECT_THAT(effects(), ElementsAre("paid", "booked"));
  const auto outbox = store_->outbox();
  const auto waiting = outbox->waiting(outbox->keep_shards("relay", 30s), 10);
  ASSERT_EQ(waiting.size(), 1U);
  const OwnedMessage& out = waiting[0].message;
  EXPECT_EQ(out.topic, "orders");
  EXPECT_EQ(out.key, message.key);
  EXPECT_EQ(out.payload, message.payload);
  ASSERT_GE(out.headers.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(out.headers[i].name, message.headers[i].name);
    EXPECT_EQ(out.headers[i].value, message.headers[i].value);
  }
}

TEST_F(OnceInLibpqxx, a_rival_waits_for_its_end_and_no_longer_than_its_own_lock_timeout) {
  pqxx::connection one(schema_->url()), other(schema_->url());
  pqxx::work first(one), second(other);
  auto with_first = postgres::borrow(first), with_second = postgres::borrow(second);
  EXPECT_TRUE(inbox_->record(with_first, "charge", "r1", "by the first"));
  second.exec("SET LOCAL lock_timeout = '50ms'");
  EXPECT_THROW(inbox_->record(with_second, "charge", "r1"), StoreBusy);
  second.abort();

  const std::string pid = std::to_string(other.backendpid());
  auto rival = std::async(std::launch::async, [&] {
    pqxx::work work(other);
    auto with = postgres::borrow(work);
    return inbox_->once(with, "charge", "r1", [](Context&) { ADD_FAILURE() << "was run"; });
  });
  EXPECT_TRUE(eventually([&] {
    return !sql().column("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid = " + pid).empty();
  }));
  first.commit();
  EXPECT_EQ(rival.get().response, "by the first");
}

TEST_F(OnceInLibpqxx, an_error_is_postgres_own_and_names_the_remedy) {
  sql().exec("DROP TABLE response, inbox CASCADE");
  pqxx::connection connection(schema_->url());
  pqxx::work work(connection);
  auto with = postgres::borrow(work);
  EXPECT_EQ(sqlstate_of([&] { inbox_->record(with, "charge", "r1"); }), "42P01");
  EXPECT_THAT(message_of<Error>([&] { inbox_->once("charge", "r1", [](Context&) {}); }),
              HasSubstr("turnstile migrate up"));
}

}  // namespace
}  // namespace turnstile::test
