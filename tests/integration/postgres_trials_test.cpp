// Trials on the real PostgreSQL, where transactions of handlers hold the row of the partition.

#include <future>

#include "tests/integration/postgres_fixture.hpp"

namespace turnstile::test {
namespace {

using ::testing::IsEmpty;
using namespace std::chrono_literals;

class PostgresTrials : public PostgresTest {};

/// As a PollLoop does if its caller revokes a partition while a message of it is handled on another thread.
TEST_F(PostgresTrials, an_owner_whose_release_waits_in_vain_has_not_died) {
  PostgresSettings settings = schema_->settings();
  settings.lock_timeout = 200ms;
  open(settings);
  const auto trials = store_->trials();
  const Offset offset = 0;
  trials->begin(fence_, {&offset, 1}, true);
  begin("m");
  const ports::Trials::Release released{fence_};
  EXPECT_THROW(trials->release({&released, 1}), StoreBusy);
  session_->rollback();
  const TopicPartition at{"payments", 0};
  const auto next = store_->partitions().claim_partitions("group", {&at, 1}, 5s).front();
  EXPECT_FALSE(next.is_clean);
  EXPECT_THAT(trials->take_over(next.fence, 0), IsEmpty());
}

/// Otherwise the trial would count as a death although its handler has returned.
TEST_F(PostgresTrials, an_end_that_waits_for_the_release_sees_what_it_left) {
  const auto trials = store_->trials();
  const Offset offset = 7;
  trials->begin(fence_, {&offset, 1}, true);
  Sql release(schema_->url());
  release.exec(
      "BEGIN; WITH begun AS (DELETE FROM trial RETURNING *) INSERT INTO outlasting (slot, first_offset, epoch, "
      "offsets, alone, incarnation, ends_by) SELECT slot, first_offset, epoch, offsets, alone, incarnation, "
      "clock_timestamp() FROM begun");
  auto end = std::async(std::launch::async, [&] { trials->end(fence_, {&offset, 1}, {}); });
  ASSERT_TRUE(eventually([&] {
    return sql().one("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%" +
                     schema_->name() + "%trial%'") == "1";
  }));
  release.exec("COMMIT");
  end.get();
  const TopicPartition at{"payments", 0};
  const auto next = store_->partitions().claim_partitions("group", {&at, 1}, 5s).front();
  EXPECT_THAT(trials->take_over(next.fence, 0), IsEmpty());
}

}  // namespace
}  // namespace turnstile::test
