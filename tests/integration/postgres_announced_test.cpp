// An announced transaction, which the end of the one before it starts.

#include <future>

#include "tests/integration/postgres_fixture.hpp"

namespace turnstile::test {
namespace {

using ::testing::ElementsAre;
using namespace std::chrono_literals;

class PostgresAnnounced : public PostgresTest {
 protected:
  void SetUp() override {
    PostgresTest::SetUp();
    if (IsSkipped()) return;
    begin("warm up");
    pid_ = std::to_string(backend());
    session_->commit();
    begin("and again");
    session_->commit();  // from here on, the session has its timeouts
  }
  static ports::InboxEntry entry(const std::string& id) { return {MessageId::from(id), 7}; }
  ports::Admission take_in(const std::string& id) {
    const auto of = entry(id);
    return session_->begin(scope(), {&of, 1}).front();
  }
  void announce(const std::string& id) {
    const auto of = entry(id);
    session_->announce(scope(), {&of, 1});
  }
  /// Whether an open transaction has taken the id in.
  bool is_taken(const std::string& id) {
    const auto other = store_->open_session();
    auto quick = scope();
    quick.lock_timeout = 200ms;
    const auto of = entry(id);
    try {
      return other->begin(quick, {&of, 1}).front() != ports::Admission::fresh;
    } catch (const StoreBusy&) {
      return true;
    }
  }
  /// The message "a" is committed. Then "b", which was announced, waits for `other`, which has taken it in.
  std::future<void> commit_before_one_that_waits_for(ports::InboxSession& other) {
    const auto b = entry("b");
    other.begin(scope(), {&b, 1});
    take_in("a");
    tx().exec("INSERT INTO effect (what) VALUES ('a')");
    announce("b");
    auto committing = std::async(std::launch::async, [&] { session_->commit(); });
    EXPECT_TRUE(eventually([&] { return effects() == std::vector<std::string>{"a"}; }));
    return committing;
  }

  std::string pid_;  // of the session's server process
};

TEST_F(PostgresAnnounced, begins_with_the_commit) {
  take_in("a");
  backend();  // this resets the session at its end, so nothing is sent behind the commit
  announce("b");
  session_->commit();
  EXPECT_FALSE(is_taken("b"));
  take_in("b");
  session_->commit();
  take_in("c");
  announce("d");
  EXPECT_FALSE(is_taken("d")) << "before the commit";
  session_->commit();
  EXPECT_TRUE(is_taken("d"));
  EXPECT_EQ(take_in("d"), ports::Admission::fresh);
  EXPECT_EQ(std::to_string(backend()), pid_);
  session_->commit();
}

/// Its locks must not outlive what it was sent for.
TEST_F(PostgresAnnounced, gives_its_locks_back_with_a_rollback) {
  take_in("a");
  announce("b");
  session_->commit();
  ASSERT_TRUE(is_taken("b"));
  session_->rollback();
  EXPECT_FALSE(is_taken("b"));
  EXPECT_EQ(sql().one("SELECT state FROM pg_stat_activity WHERE pid = " + pid_), "idle");
}

TEST_F(PostgresAnnounced, waits_for_another_that_stores_its_id_after_the_commit) {
  const auto other = store_->open_session();
  auto committing = commit_before_one_that_waits_for(*other);
  other->commit();
  committing.get();
  EXPECT_EQ(take_in("b"), ports::Admission::duplicate);
  session_->rollback();
}

TEST_F(PostgresAnnounced, is_busy_if_the_other_one_does_not_end) {
  session_.reset();
  open(schema_->settings());  // its first handler is this one
  auto quick = scope();
  quick.lock_timeout = 300ms;
  const auto a = entry("a"), b = entry("b"), first = entry("first");
  session_->begin(quick, {&first, 1});
  session_->commit();
  const auto other = store_->open_session();
  other->begin(scope(), {&b, 1});
  session_->begin(quick, {&a, 1});
  session_->announce(quick, {&b, 1});
  session_->commit();
  EXPECT_THROW(session_->begin(quick, {&b, 1}), StoreBusy);
  other->rollback();
  EXPECT_EQ(session_->begin(quick, {&b, 1}).front(), ports::Admission::fresh);
  session_->commit();
}

/// A server that is shut down sends the answers that wait. The next transaction has stored nothing, so it begins anew.
TEST_F(PostgresAnnounced, is_lost_alone_with_the_connection_on_which_it_waits) {
  const auto other = store_->open_session();
  auto committing = commit_before_one_that_waits_for(*other);
  sql().exec("SELECT pg_terminate_backend(" + pid_ + ", 5000)");
  EXPECT_NO_THROW(committing.get());
  other->rollback();
  EXPECT_EQ(take_in("b"), ports::Admission::fresh);
  tx().exec("INSERT INTO effect (what) VALUES ('b')");
  session_->commit();
  EXPECT_THAT(effects(), ElementsAre("a", "b"));
  EXPECT_EQ(ids(), "4");
}

TEST_F(PostgresAnnounced, is_refused_in_the_transaction_that_a_failed_commit_leaves) {
  sql().exec("ALTER TABLE effect ADD CONSTRAINT each_once UNIQUE (what) DEFERRABLE INITIALLY DEFERRED");
  take_in("a");
  tx().exec("INSERT INTO effect (what) VALUES ('x')");
  tx().exec("INSERT INTO effect (what) VALUES ('x')");
  announce("b");
  EXPECT_EQ(sqlstate_of([&] { session_->commit(); }), "23505");
  EXPECT_EQ(ids(), "2");
  take_in("b");
  session_->at_message(0);
  tx().defer("INSERT INTO effect (what) VALUES (1 / 0)");
  announce("c");
  EXPECT_EQ(sqlstate_of([&] { session_->commit(); }), "22012");
  EXPECT_EQ(ids(), "2");
  EXPECT_FALSE(is_taken("b"));
  EXPECT_FALSE(is_taken("c"));
  take_in("c");
  session_->commit();
  EXPECT_EQ(ids(), "3");
}

/// A statement that failed in the COMMIT before it must be judged by its own transaction.
TEST_F(PostgresAnnounced, does_not_change_how_the_errors_of_the_one_before_it_are_judged) {
  sql().exec(R"(
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'not supported' USING ERRCODE = '0A000'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON effect FOR EACH ROW EXECUTE FUNCTION refuse())");
  take_in("a");
  session_->at_message(0);
  tx().defer("INSERT INTO effect (what) VALUES ('x')");
  announce("b");
  EXPECT_EQ(sqlstate_of([&] { session_->commit(); }), "0A000");
}

TEST_F(PostgresAnnounced, is_begun_by_itself_if_the_commit_took_long) {
  sql().exec(R"(
CREATE FUNCTION delay() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER delay AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION delay())");
  take_in("a");
  tx().exec("INSERT INTO effect (what) VALUES ('a')");
  announce("b");
  session_->commit();
  EXPECT_EQ(take_in("b"), ports::Admission::fresh);
  EXPECT_EQ(tx().exec("SELECT clock_timestamp() - now() < interval '0.3 s'").at(0, 0), "t");
  session_->commit();
  EXPECT_EQ(ids(), "4");
}

/// COMMIT AND CHAIN hands it on.
TEST_F(PostgresAnnounced, is_not_read_only_because_the_one_before_it_became_so) {
  sql().exec(R"(
CREATE FUNCTION mischief() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM set_config('transaction_read_only', 'on', true); RETURN NULL; END $$;
CREATE TRIGGER mischief AFTER INSERT ON effect FOR EACH ROW EXECUTE FUNCTION mischief())");
  take_in("a");
  tx().exec("INSERT INTO effect (what) VALUES ('a')");
  announce("b");
  session_->commit();
  EXPECT_EQ(take_in("b"), ports::Admission::fresh);
  tx().exec("INSERT INTO effect (what) VALUES ('b')");
  session_->commit();
  EXPECT_THAT(effects(), ElementsAre("a", "b"));
  EXPECT_EQ(ids(), "4");
}

/// The error of COMMIT AND CHAIN outside a transaction stops the consumer; a trigger's is a failure of the message.
TEST_F(PostgresAnnounced, is_not_stopped_by_a_trigger_that_claims_there_is_no_transaction) {
  sql().exec(R"(
CREATE FUNCTION mischief() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'mischief' USING ERRCODE = '25P01'; END $$;
CREATE CONSTRAINT TRIGGER mischief AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
EXECUTE FUNCTION mischief())");
  take_in("a");
  tx().exec("INSERT INTO effect (what) VALUES ('a')");
  announce("b");
  EXPECT_EQ(sqlstate_of([&] { session_->commit(); }), "25P01");
  take_in("a");
  session_->at_message(0);
  sql().exec("ALTER TABLE effect DISABLE TRIGGER mischief");
  sql().exec(R"(
CREATE FUNCTION raise() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'mischief' USING ERRCODE = '25P01'; END $$)");
  tx().defer("INSERT INTO effect (what) SELECT 'x' WHERE 1 = raise()");
  announce("b");
  EXPECT_EQ(sqlstate_of([&] { session_->commit(); }), "25P01");
  take_in("b");
  session_->commit();
  EXPECT_EQ(ids(), "3");
}

TEST_F(PostgresAnnounced, begins_with_the_rollback_of_a_duplicate) {
  take_in("a");
  session_->commit();
  EXPECT_EQ(take_in("a"), ports::Admission::duplicate);
  announce("b");
  session_->rollback();
  EXPECT_TRUE(is_taken("b"));
  EXPECT_EQ(take_in("b"), ports::Admission::fresh);
  session_->commit();
  EXPECT_EQ(ids(), "4");
}

/// The connection drops its prepared statements when it has 256, and the statements of the one before it use them still.
TEST_F(PostgresAnnounced, comes_when_the_connection_has_as_many_prepared_statements_as_it_keeps) {
  for (int count = 244; count <= 256; ++count) {
    session_ = nullptr;
    open(schema_->settings());
    const std::string of = std::to_string(count);
    for (const char* first : {"first ", "second "}) {
      take_in(first + of);
      session_->commit();
    }
    take_in("a" + of);
    session_->at_message(0);
    for (int i = 0; i < count; ++i)
      tx().defer("INSERT INTO effect VALUES (1000 * " + of + " + " + std::to_string(i) + ", $1)", of);
    announce("b" + of);
    session_->commit();
    EXPECT_EQ(take_in("b" + of), ports::Admission::fresh) << count;
    session_->commit();
    EXPECT_EQ(sql().one("SELECT count(*) FROM effect WHERE what = '" + of + "'"), of);
  }
}

TEST_F(PostgresAnnounced, has_the_timeouts_of_its_handler) {
  take_in("a");
  auto slow = scope();
  slow.idle_timeout = 10min;
  const auto b = entry("b");
  session_->announce(slow, {&b, 1});
  session_->commit();
  EXPECT_FALSE(is_taken("b")) << "the session has those of another handler";
  session_->begin(slow, {&b, 1});
  EXPECT_EQ(tx().exec("SELECT setting FROM pg_catalog.pg_settings WHERE name = 'idle_in_transaction_session_timeout'")
                .at(0, 0),
            "600000");
  session_->commit();
}

}  // namespace
}  // namespace turnstile::test
