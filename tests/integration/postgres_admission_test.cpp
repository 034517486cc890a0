// How the real PostgreSQL takes in the ids of a batch.

#include <future>

#include "tests/integration/postgres_fixture.hpp"

namespace turnstile::test {
namespace {

using ports::Admission;
using ::testing::ElementsAre;

class PostgresAdmission : public PostgresTest {
 protected:
  /// What a session waits with for another transaction, until `rival` ends.
  std::string waits_with(ports::InboxSession& rival, std::vector<Admission>& admitted) {
    auto waiting = std::async(std::launch::async, [&] { return begin("batch", 3); });
    const std::string is_waiting =
        "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%" + schema_->name() + "%inbox%'";
    std::vector<std::string> found;
    EXPECT_TRUE(eventually([&] {
      found =
          sql().column("SELECT CASE WHEN query LIKE '%ON CONFLICT%' THEN 'contended' ELSE 'usual' END " + is_waiting);
      return !found.empty();
    }));
    rival.commit();
    admitted = waiting.get();
    return found.empty() ? "" : found.front();
  }
};

/// A failed statement costs a batch twice, so it is not tried again soon.
TEST_F(PostgresAdmission, waits_for_others_that_store_the_same_ids) {
  for (const std::string with : {"usual", "contended"}) {
    const auto rival = store_->open_session();
    const ports::InboxEntry entry{MessageId::from("batch1"), 0, std::nullopt};
    rival->begin(scope(), {&entry, 1});
    std::vector<Admission> admitted;
    EXPECT_EQ(waits_with(*rival, admitted), with);
    EXPECT_THAT(admitted, ElementsAre(Admission::fresh, Admission::duplicate, Admission::fresh));
    tx().exec("INSERT INTO effect (what) VALUES ($1)", with);
    session_->commit();
    EXPECT_EQ(ids(), "3");
    sql().exec("TRUNCATE inbox");
  }
  EXPECT_THAT(effects(), ElementsAre("usual", "contended"));
}

/// A connection keeps 256 prepared statements. The next transaction drops them if there are more.
TEST_F(PostgresAdmission, waits_for_others_with_as_many_statements_as_a_connection_keeps) {
  for (int statements = 240; statements <= 256; ++statements) {
    open(schema_->settings());
    begin("first", 3);
    for (int i = 0; i < statements; ++i) tx().exec("SELECT " + std::to_string(i));
    session_->commit();
    const auto rival = store_->open_session();
    const ports::InboxEntry entry{MessageId::from("batch1"), 0, std::nullopt};
    rival->begin(scope(), {&entry, 1});
    std::vector<Admission> admitted;
    EXPECT_EQ(waits_with(*rival, admitted), "usual") << statements;
    EXPECT_THAT(admitted, ElementsAre(Admission::fresh, Admission::duplicate, Admission::fresh)) << statements;
    session_->commit();
    sql().exec("TRUNCATE inbox");
  }
}

/// The inbox was small when the statement was planned.
TEST_F(PostgresAdmission, finds_ids_by_their_index_among_many) {
  begin("first", 20);
  session_->commit();
  sql().exec("VACUUM ANALYZE inbox");
  for (int i = 0; i < 10; ++i) {  // PostgreSQL may choose another plan from the sixth time on
    begin("batch" + std::to_string(i) + "/", 8);
    const Rows scans = tx().exec(
        "SELECT seq_scan, idx_scan FROM pg_catalog.pg_stat_xact_user_tables WHERE relname = 'inbox' AND schemaname = $1",
        schema_->name());
    EXPECT_EQ(scans.get<std::int64_t>(0, 0), 0) << i;
    EXPECT_GE(scans.get<std::int64_t>(0, 1), 8 * (i + 1)) << "each id of " << i;
    session_->commit();
  }
}

TEST_F(PostgresAdmission, leaves_the_plans_of_handlers_alone) {
  for (const std::string usual : {"on", "off"}) {
    PostgresSettings settings = schema_->settings();
    settings.url = Secret(with_parameter(schema_->url(), "options", "-c enable_seqscan=" + usual));
    open(settings);
    begin("batch", 3);
    EXPECT_EQ(tx().exec("SHOW enable_seqscan").get<std::string>(0, 0), usual);
    session_->rollback();
  }
}

}  // namespace
}  // namespace turnstile::test
