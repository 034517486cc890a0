// A transaction of several partitions in the real PostgreSQL.

#include <future>

#include "tests/integration/postgres_fixture.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

class PostgresShared : public PostgresTest {
 protected:
  std::vector<ports::Admission> begin_shared(const std::vector<Fence>& fences) {
    std::vector<std::vector<ports::InboxEntry>> entries;
    std::vector<ports::InboxShare> shares;
    for (std::size_t i = 0; i < fences.size(); ++i)
      entries.push_back({{MessageId::from("shared" + std::to_string(i)), 0, std::nullopt}});
    for (std::size_t i = 0; i < fences.size(); ++i) shares.push_back({fences[i], entries[i]});
    ports::InboxScope common = scope();
    common.fence.reset();
    return session_->begin_shared(common, shares);
  }
  Fence claim(std::int32_t partition) {
    const TopicPartition at{"payments", partition};
    return store_->partitions().claim_partitions("group", {&at, 1}, 5s).at(0).fence;
  }
};

/// The claim has raised the epoch and is not committed yet: the transaction waits for it, and then sees it (hazard:
/// stale-snapshot).
TEST_F(PostgresShared, sees_a_claim_that_it_waited_for) {
  const Fence other = claim(1);
  for (const Fence& taken : {fence_, other}) {
    Sql claiming(schema_->url());
    claiming.exec("BEGIN; UPDATE fence SET epoch = epoch + 1 WHERE slot = " + std::to_string(taken.slot));
    auto begun = std::async(std::launch::async, [&] { return begin_shared({other, fence_}); });
    ASSERT_TRUE(eventually([&] {
      return !sql()
                  .column("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%LATERAL%'")
                  .empty();
    }));
    claiming.exec("COMMIT");
    EXPECT_THROW(begun.get(), Fenced);
    EXPECT_EQ(ids(), "0");
    sql().exec("UPDATE fence SET epoch = epoch - 1 WHERE slot = " + std::to_string(taken.slot));
  }
  EXPECT_EQ(begin_shared({other, fence_}).size(), 2U);
  session_->commit();
  EXPECT_EQ(ids(), "2");
}

/// Each id is stored with the partition and the offset of its own record, as the audit reads them.
TEST_F(PostgresShared, stores_each_id_with_its_own_partition) {
  const Fence other = claim(1);
  begin_shared({other, fence_});
  session_->commit();
  EXPECT_EQ(sql().one("SELECT slot FROM inbox WHERE id = '" + MessageId::from("shared0").text() + "'"),
            std::to_string(other.slot));
  EXPECT_EQ(sql().one("SELECT slot FROM inbox WHERE id = '" + MessageId::from("shared1").text() + "'"),
            std::to_string(fence_.slot));
}

/// With statistics of any age: a table that was small when they were made may have many partitions now.
TEST_F(PostgresShared, finds_its_fences_by_their_slots_among_many) {
  sql().exec("ANALYZE fence");
  sql().exec(
      "INSERT INTO fence (consumer_group, topic, partition) SELECT 'other', 'many', n FROM generate_series(1, 20000) n");
  const Fence other = claim(1);
  for (int i = 0; i < 10; ++i) {  // PostgreSQL may choose another plan from the sixth time on
    begin_shared({other, fence_});
    const Rows scans = tx().exec(
        "SELECT seq_scan, idx_scan FROM pg_catalog.pg_stat_xact_user_tables WHERE relname = 'fence' AND schemaname = $1",
        schema_->name());
    EXPECT_EQ(scans.get<std::int64_t>(0, 0), 0) << i;
    EXPECT_GE(scans.get<std::int64_t>(0, 1), 2) << i;
    session_->rollback();
  }
}

}  // namespace
}  // namespace turnstile::test
