// Guards on the real PostgreSQL, all except tokens: what each of them answers, and two transactions that use one at the
// same time.

#include "tests/integration/guards_fixture.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using postgres::Cell;
using postgres::row_lock;
using postgres::transition;
using postgres::unique;
using postgres::Verdict;
using postgres::version;
using postgres::Wait;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// unique

TEST_F(Guards, unique_takes_a_key_in_once_and_tells_a_repeat_from_another_request) {
  EXPECT_TRUE(unique(tx(), "payment", {{"id", "p1"}}, {{"cents", 500}, {"note", nullptr}}).applied());
  commit();
  const Guarded again = unique(tx(), "payment", {{"id", "p1"}}, {{"cents", 500}, {"note", nullptr}});
  EXPECT_TRUE(again.already_applied());
  EXPECT_THAT(cells(again.found), ElementsAre("p1", "500", "NULL"));
  const Guarded other = unique(tx(), "payment", {{"id", "p1"}}, {{"cents", 501}, {"note", nullptr}});
  EXPECT_TRUE(other.conflict());
  EXPECT_FALSE(other.missing());
  EXPECT_THAT(cells(other.found), ElementsAre("p1", "500", "NULL"));
  EXPECT_EQ(sql().one("SELECT count(*) FROM payment"), "1");
}

TEST_F(Guards, unique_without_values_is_about_the_key_alone) {
  sql().exec("CREATE TABLE seen (kind text, number bigint, UNIQUE (number, kind))");
  const std::vector<Cell> key{{"kind", "order"}, {"number", 7}};
  EXPECT_TRUE(unique(tx(), "seen", key).applied());
  EXPECT_TRUE(unique(tx(), "seen", key).already_applied());
  EXPECT_TRUE(unique(tx(), "seen", {{"kind", "order"}, {"number", 8}}).applied());
}

TEST_F(Guards, of_two_unique_that_meet_the_second_is_told_what_the_first_left) {  // hazard: blocked-insert
  const auto pay = [](int cents) {
    return [cents](Transaction& with) { return unique(with, "payment", {{"id", "p1"}}, {{"cents", cents}}); };
  };
  EXPECT_TRUE(meet(pay(500), true).already_applied());
  sql().exec("DELETE FROM payment");
  const Guarded other = meet(pay(500), pay(600), true);
  EXPECT_TRUE(other.conflict());
  EXPECT_THAT(cells(other.found), ElementsAre("p1", "500"));
  sql().exec("DELETE FROM payment");
  EXPECT_TRUE(meet(pay(500), pay(600), false).applied());
  EXPECT_THAT(sql().column("SELECT cents FROM payment"), ElementsAre("600"));
}

TEST_F(Guards, unique_never_ends_the_transaction) {  // hazard: duplicate-by-exception
  EXPECT_TRUE(unique(tx(), "payment", {{"id", "p1"}}, {{"cents", 1}}).applied());
  EXPECT_TRUE(unique(tx(), "payment", {{"id", "p1"}}, {{"cents", 2}}).conflict());
  tx().exec("INSERT INTO effect (what) VALUES ('later')");
  commit();
  EXPECT_THAT(effects(), ElementsAre("later"));
}

TEST_F(Guards, unique_without_its_index_says_how_to_make_it) {
  const std::string message = message_of<SqlError>([&] { unique(tx(), "payment", {{"note", "x"}, {"cents", 1}}); });
  EXPECT_THAT(message, AllOf(HasSubstr("unique(\"payment\")"), HasSubstr("42P10"),
                             HasSubstr("CREATE UNIQUE INDEX ON \"payment\" (\"note\", \"cents\")")));
  roll_back();
  sql().exec("CREATE TABLE late (id text, UNIQUE (id) DEFERRABLE)");
  EXPECT_THAT(message_of<SqlError>([&] { unique(tx(), "late", {{"id", "x"}}); }), HasSubstr("not deferrable"));
}

TEST_F(Guards, another_unique_index_is_not_the_keys) {
  sql().exec("CREATE UNIQUE INDEX one_note ON payment (note)");
  EXPECT_TRUE(unique(tx(), "payment", {{"id", "a"}}, {{"cents", 1}, {"note", "secret"}}).applied());
  const std::string message = message_of<SqlError>([&] {
    unique(tx(), "payment", {{"id", "b"}}, {{"cents", 1}, {"note", "secret"}});
  });
  EXPECT_THAT(message, AllOf(HasSubstr("one_note"), HasSubstr("the violated unique index is not the key's"),
                             Not(HasSubstr("secret"))));  // hazard: error-detail
}

TEST_F(Guards, a_row_that_a_trigger_keeps_away_is_an_error_and_not_a_verdict) {
  sql().exec(
      "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
      "CREATE TRIGGER swallow BEFORE INSERT ON payment FOR EACH ROW EXECUTE FUNCTION swallow()");
  EXPECT_THAT(message_of<Error>([&] {
                unique(tx(), "payment", {{"id", "a"}}, {{"cents", 1}});
              }),
              HasSubstr("neither inserted nor found the row; a trigger"));
}

// row_lock

TEST_F(Guards, row_lock_hands_back_what_it_found) {
  const Guarded locked = row_lock(tx(), "account", {{"name", "ada"}}, {"cents", "version"});
  EXPECT_TRUE(locked.applied());
  EXPECT_THAT(cells(locked.found), ElementsAre("1000", "7"));
  EXPECT_THAT(cells(row_lock(tx(), "account", {{"name", "ada"}}).found), ElementsAre("ada"));
  EXPECT_TRUE(row_lock(tx(), "account", {{"name", "nobody"}}).missing());
}

TEST_F(Guards, of_two_row_locks_the_second_waits_and_sees_what_the_first_did) {
  const auto take = [](Transaction& with) { return row_lock(with, "account", {{"name", "ada"}}, {"cents"}); };
  const auto take_and_spend = [&](Transaction& with) {
    Guarded locked = take(with);
    with.exec("UPDATE account SET cents = cents - 300 WHERE name = 'ada'");
    return locked;
  };
  EXPECT_THAT(cells(meet(take_and_spend, take, true).found), ElementsAre("700"));
  EXPECT_THAT(cells(meet(take_and_spend, take, false).found), ElementsAre("700"));
}

TEST_F(Guards, row_lock_that_does_not_wait_says_that_a_rival_has_the_row) {
  Sql rival(schema_->url());
  rival.exec("BEGIN");
  rival.exec("UPDATE account SET cents = 1 WHERE name = 'ada'");
  const Guarded locked = row_lock(tx(), "account", {{"name", "ada"}}, {"cents"}, Wait::no);
  EXPECT_TRUE(locked.conflict());
  EXPECT_FALSE(locked.missing());
  EXPECT_THAT(cells(locked.found), ElementsAre("1000"));
  EXPECT_TRUE(row_lock(tx(), "account", {{"name", "nobody"}}, {}, Wait::no).missing());
  rival.exec("COMMIT");
  const Guarded after = row_lock(tx(), "account", {{"name", "ada"}}, {"cents"}, Wait::no);
  EXPECT_TRUE(after.applied());
  EXPECT_THAT(cells(after.found), ElementsAre("1"));
}

TEST_F(Guards, a_wait_that_is_too_long_is_busy) {
  Sql rival(schema_->url());
  rival.exec("BEGIN");
  rival.exec("UPDATE account SET cents = 1 WHERE name = 'ada'");
  ports::InboxScope impatient = scope();
  impatient.lock_timeout = 50ms;
  session_->begin(impatient, {});
  EXPECT_THAT(message_of<StoreBusy>([&] { row_lock(tx(), "account", {{"name", "ada"}}); }), HasSubstr("55P03"));
}

// transition

TEST_F(Guards, transition_moves_once_and_says_where_it_stands_otherwise) {
  const auto pay = [&](int order) {
    return transition(tx(), "orders", {{"id", order}}, "state", "open", "paid", {{"paid_by", "ada"}});
  };
  const Guarded first = pay(1);
  EXPECT_TRUE(first.applied());
  EXPECT_THAT(cells(first.found), ElementsAre("open", "NULL"));
  commit();
  const Guarded again = pay(1);
  EXPECT_TRUE(again.already_applied());
  EXPECT_THAT(cells(again.found), ElementsAre("paid", "ada"));
  const Guarded cancelled = pay(2);
  EXPECT_TRUE(cancelled.conflict());
  EXPECT_THAT(cells(cancelled.found), ElementsAre("cancelled", "NULL"));
  EXPECT_TRUE(pay(4).missing());
  commit();
  EXPECT_THAT(sql().column("SELECT state || coalesce(paid_by, '-') FROM orders WHERE id < 3 ORDER BY id"),
              ElementsAre("paidada", "cancelled-"));
}

TEST_F(Guards, transition_takes_null_as_a_state) {
  EXPECT_TRUE(transition(tx(), "orders", {{"id", 3}}, "state", nullptr, "open").applied());
  EXPECT_TRUE(transition(tx(), "orders", {{"id", 3}}, "state", nullptr, "open").already_applied());
  EXPECT_TRUE(transition(tx(), "orders", {{"id", 3}}, "state", "open", nullptr).applied());
  EXPECT_TRUE(transition(tx(), "orders", {{"id", 3}}, "state", nullptr, nullptr).already_applied());
}

TEST_F(Guards, transition_knows_enums_and_short_texts) {
  sql().exec(
      "CREATE TYPE mood AS ENUM ('calm', 'cross'); CREATE TABLE cat (id varchar(5) PRIMARY KEY, mood mood, tag varchar(3));"
      "INSERT INTO cat VALUES ('tom', 'calm', 'new')");
  EXPECT_TRUE(transition(tx(), "cat", {{"id", "tom"}}, "mood", "calm", "cross", {{"tag", "old"}}).applied());
  EXPECT_TRUE(transition(tx(), "cat", {{"id", "tom"}}, "tag", "old", "odd").applied());
  EXPECT_TRUE(unique(tx(), "cat", {{"id", "tom"}}, {{"mood", "cross"}, {"tag", "odd"}}).already_applied());
  EXPECT_EQ(sqlstate_of([&] { transition(tx(), "cat", {{"id", "tom"}}, "mood", "cross", "jolly"); }), "22P02");
}

TEST_F(Guards, of_two_transitions_that_meet_one_moves_and_the_other_is_told) {  // hazard: stale-snapshot
  const auto to = [](const char* state) {
    return [state](Transaction& with) { return transition(with, "orders", {{"id", 1}}, "state", "open", state); };
  };
  EXPECT_TRUE(meet(to("paid"), false).applied());
  sql().exec("UPDATE orders SET state = 'open'");
  EXPECT_TRUE(meet(to("paid"), true).already_applied());
  sql().exec("UPDATE orders SET state = 'open'");
  const Guarded late = meet(to("cancelled"), to("paid"), true);
  EXPECT_TRUE(late.conflict());
  EXPECT_THAT(cells(late.found), ElementsAre("cancelled"));
  EXPECT_EQ(sql().one("SELECT state FROM orders WHERE id = 1"), "cancelled");
}

TEST_F(Guards, a_row_that_is_deleted_meanwhile_is_missing) {
  const auto remove = [](Transaction& with) {
    with.exec("DELETE FROM orders WHERE id = 1");
    return Guarded{Verdict::applied, {}};
  };
  const auto pay = [](Transaction& with) { return transition(with, "orders", {{"id", 1}}, "state", "open", "paid"); };
  EXPECT_TRUE(meet(remove, pay, true).missing());
}

// version

TEST_F(Guards, version_changes_what_was_read_and_nothing_else) {
  const auto spend = [&](int read) {
    return version(tx(), "account", {{"name", "ada"}}, "version", read, {{"cents", 900}});
  };
  EXPECT_TRUE(spend(7).applied());
  commit();
  // The same call again. The values in the row are the same too, but a concurrent transaction may have written them.
  const Guarded again = spend(7);
  EXPECT_TRUE(again.conflict());
  EXPECT_THAT(cells(again.found), ElementsAre("8", "900"));
  EXPECT_TRUE(spend(9).conflict());
  EXPECT_TRUE(version(tx(), "account", {{"name", "nobody"}}, "version", 1).missing());
  EXPECT_TRUE(version(tx(), "account", {{"name", "ada"}}, "version", 8).applied());
  commit();
  EXPECT_EQ(sql().one("SELECT cents || ' ' || version FROM account"), "900 9");
}

TEST_F(Guards, of_two_versions_that_meet_one_is_too_late) {
  const auto spend = [](int left) {
    return [left](Transaction& with) {
      return version(with, "account", {{"name", "ada"}}, "version", 7, {{"cents", left}});
    };
  };
  const Guarded late = meet(spend(900), spend(800), true);
  EXPECT_TRUE(late.conflict());
  EXPECT_THAT(cells(late.found), ElementsAre("8", "900"));
  sql().exec("UPDATE account SET version = 7");
  EXPECT_TRUE(meet(spend(700), spend(600), false).applied());
  EXPECT_EQ(sql().one("SELECT cents || ' ' || version FROM account"), "600 8");
}

TEST(GuardAnswers, may_come_from_a_test) {
  struct Answering final : Transaction {
    explicit Answering(Rows rows) : rows_(std::move(rows)) {}
    Rows run(std::string_view, std::span<const Param>) override { return rows_; }
    void queue(std::string_view, std::span<const Param>) override {}
    Rows rows_;
  };
  Rows rows(2, 1);
  rows.add("already_applied");
  rows.add("paid");
  Answering repeated(rows), missing(Rows(2, 0)), silent(Rows{});
  const Guarded told = transition(repeated, "orders", {{"id", 1}}, "state", "open", "paid");
  EXPECT_TRUE(told.already_applied());
  EXPECT_THAT(cells(told.found), ElementsAre("paid"));
  EXPECT_TRUE(transition(missing, "orders", {{"id", 1}}, "state", "open", "paid").missing());
  EXPECT_THAT(message_of<Error>([&] {
                transition(silent, "orders", {{"id", 1}}, "state", "open", "paid");
              }),
              HasSubstr("returned no columns"));
}

TEST_F(Guards, each_is_one_statement) {
  CountingTransaction with(tx());
  for (int round = 0; round < 2; ++round) {  // the first round applies, the second does not
    unique(with, "payment", {{"id", "p"}}, {{"cents", 1}});
    row_lock(with, "account", {{"name", "ada"}}, {}, Wait::no);
    row_lock(with, "account", {{"name", "ada"}});
    transition(with, "orders", {{"id", 1}}, "state", "open", "paid");
    version(with, "account", {{"name", "ada"}}, "version", 7);
  }
  EXPECT_EQ(with.count, 2 * 5);
}

}  // namespace
}  // namespace turnstile::test
