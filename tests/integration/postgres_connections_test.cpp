// Which connections are used again after a failover, and how long a caller waits for a connection or for an answer.

#include <future>

#include "tests/integration/postgres_fixture.hpp"
#include "tests/support/tcp_proxy.hpp"
#include "turnstile/inbox.hpp"

namespace turnstile::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

class PostgresConnections : public PostgresRoleTest {
 protected:
  void SetUp() override {
    PostgresRoleTest::SetUp();
    if (IsSkipped()) return;
    app_->grant_from_file();
    sql().exec("GRANT ALL ON effect TO " + app_->name() + "; GRANT ALL ON SEQUENCE effect_number_seq TO " +
               app_->name());
  }
  /// Makes the server answer new sessions like a standby, or like a server that has not become the primary yet.
  void read_only(bool on) {
    sql().exec("ALTER ROLE " + app_->name() + (on ? " SET default_transaction_read_only = on" : " RESET ALL"));
  }
  static std::chrono::milliseconds time_of(const std::function<void()>& call) {
    const auto began = std::chrono::steady_clock::now();
    call();
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
  }
};

TEST_F(PostgresConnections, those_to_a_read_only_server_are_not_used_again) {
  PostgresSettings settings = app_->settings();
  settings.connections = 2;
  open(settings);
  read_only(true);
  store_ = postgres::open_store(settings);  // its connections are opened after this line
  session_ = store_->open_session();
  const auto other = store_->open_session();
  const ports::InboxEntry entry{MessageId::from("x"), 0};
  EXPECT_THAT(message_of<StoreUnavailable>([&] { session_->begin(scope(), {&entry, 1}); }), HasSubstr("25006"));
  EXPECT_THAT(message_of<StoreUnavailable>([&] { store_->register_handler("another"); }), HasSubstr("25006"));
  read_only(false);
  EXPECT_EQ(begin("a").at(0), ports::Admission::fresh);
  session_->commit();
  store_->register_handler("another");
}

TEST_F(PostgresConnections, of_several_hosts_the_one_is_chosen_that_can_be_written_to) {
  const std::string url = app_->url();
  const auto authority = url.find('@') + 1;
  const std::string host = url.substr(authority, url.find('/', authority) - authority);
  PostgresSettings settings = app_->settings();
  std::string several = settings.url.reveal();
  several.replace(several.find(host), host.size(), host + "," + host);
  settings.url = Secret(several);
  open(settings);
  begin("a");
  session_->commit();
  read_only(true);
  const auto fresh = postgres::open_store(settings);
  EXPECT_THAT(message_of<StoreUnavailable>([&] { fresh->register_handler("another"); }), HasSubstr("read-only"));
  read_only(false);
}

TEST_F(PostgresConnections, a_server_that_hangs_is_found_out) {
  TcpProxy proxy = proxy_to(sql());
  PostgresSettings settings = schema_->settings_through(proxy.port());
  settings.connect_timeout = 500ms;
  settings.lock_timeout = 100ms;
  open(settings);
  ports::InboxScope short_scope = scope();
  short_scope.lock_timeout = 100ms;
  const ports::InboxEntry first{MessageId::from("first"), 0}, second{MessageId::from("second"), 1};
  // The server does not answer a handler's statement, a statement of Turnstile's own, or a call outside of any
  // transaction.
  session_->begin(short_scope, {&first, 1});
  proxy.stall(true);
  EXPECT_LT(time_of([&] {
              EXPECT_THAT(message_of<StoreUnavailable>([&] { tx().exec("SELECT 1"); }),
                          AllOf(HasSubstr("has not answered for"), Not(HasSubstr("for 0 s"))));
            }),
            15s);
  session_->rollback();
  const auto other = store_->open_session();
  EXPECT_LT(time_of([&] { EXPECT_THROW(other->begin(short_scope, {&second, 1}), StoreUnavailable); }), 15s);
  EXPECT_LT(time_of([&] { EXPECT_THROW(store_->register_handler("charge"), StoreUnavailable); }), 15s);
  proxy.stall(false);
  ASSERT_TRUE(eventually([&] {
    try {
      return session_->begin(short_scope, {&first, 1}).at(0) == ports::Admission::fresh;
    } catch (const Error&) {
      return false;  // the abandoned transaction may still have the id
    }
  }));
  session_->commit();
}

TEST_F(PostgresConnections, a_statement_may_be_slow_while_the_server_answers_others) {
  PostgresSettings settings = schema_->settings();
  settings.connect_timeout = 200ms;  // after 400 ms, the store tests whether the server answers at all
  open(settings);
  begin("a");
  EXPECT_EQ(tx().exec("SELECT pg_sleep(1.5), 7").get<int>(0, 1), 7);
  session_->commit();
}

TEST_F(PostgresConnections, a_handler_that_asks_for_another_connection_is_told_what_to_do) {
  PostgresSettings settings = schema_->settings();
  settings.connections = 1;
  open(settings);
  begin("a");
  Inbox inbox(store_);
  EXPECT_LT(time_of([&] {
              EXPECT_THAT(message_of<Error>([&] { inbox.once("other", "id", [](Context&) {}); }),
                          HasSubstr("inbox.once(ctx.tx()"));
            }),
            20s);
  EXPECT_EQ(inbox.once(tx(), "other", "id", [](Context&) {}).kind, Once::Kind::ran);
  session_->commit();
}

/// Hazard: stale-snapshot. The last owner's transaction begins an incarnation, and its answer was lost.
TEST_F(PostgresConnections, a_claim_that_waits_for_an_incarnation_has_the_watermark_of_that_incarnation) {
  const TopicPartition at{"orders", 7};
  auto& partitions = store_->partitions();
  const auto claimed = partitions.claim_partitions("group", {&at, 1}, 5s).front();
  const ports::WatermarkUpdate update{claimed.fence, 1'000};
  ASSERT_EQ(partitions.advance_watermarks({&update, 1}).front(), ports::WatermarkState::moved);
  const std::string slot = std::to_string(claimed.fence.slot);
  sql().exec("BEGIN; UPDATE fence SET incarnation = incarnation + 1 WHERE slot = " + slot +
             "; UPDATE watermark SET watermark = 800 WHERE slot = " + slot);
  auto waiting = std::async(std::launch::async, [&] {
    return partitions.claim_partitions("group", {&at, 1}, 20s).front();
  });
  ASSERT_TRUE(eventually([&] {
    return sql().one(
               "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND "
               "datname = current_database() AND (relation IS NOT NULL OR locktype = 'transactionid')") != "0";
  }));
  sql().exec("COMMIT");
  const auto again = waiting.get();
  EXPECT_EQ(again.incarnation, claimed.incarnation + 1);
  EXPECT_EQ(again.watermark, 800);
}

}  // namespace
}  // namespace turnstile::test
