// PostgreSQL plans a prepared statement anew each time, unless the plan that fits all parameters seems as cheap. For a
// small transaction, planning is most of the work.

#include "tests/integration/postgres_fixture.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

class PostgresPlans : public PostgresTest {
 protected:
  /// The statements of this session that were run often, and planned each time.
  std::vector<std::string> planned_each_time() {
    begin("last");
    const Rows rows = tx().exec(
        "SELECT statement FROM pg_catalog.pg_prepared_statements WHERE custom_plans > 10 AND generic_plans = 0");
    std::vector<std::string> statements;
    for (std::size_t i = 0; i < rows.size(); ++i) statements.push_back(rows.get<std::string>(i, 0));
    session_->rollback();
    return statements;
  }
};

TEST_F(PostgresPlans, of_a_batch_are_kept_whatever_its_size) {
  for (const std::size_t messages : {1U, 2U, 3U, 7U, 50U}) {
    for (int i = 0; i < 15; ++i) {
      begin(std::to_string(messages) + "-" + std::to_string(i) + "-", messages);
      session_->commit();
    }
    EXPECT_THAT(planned_each_time(), ::testing::IsEmpty()) << messages;
  }
}

TEST_F(PostgresPlans, of_a_shared_transaction_are_kept_whatever_its_size) {
  for (const std::int32_t partitions : {2, 3, 8}) {
    std::vector<Fence> fences;
    for (std::int32_t p = 0; p < partitions; ++p) {
      const TopicPartition at{"payments", p};
      fences.push_back(store_->partitions().claim_partitions("group", {&at, 1}, 5s).at(0).fence);
    }
    fence_ = fences.front();
    for (int i = 0; i < 15; ++i) {
      std::vector<ports::InboxEntry> entries;
      for (std::int32_t p = 0; p < partitions; ++p)
        entries.push_back(
            {MessageId::from(std::to_string(partitions) + "-" + std::to_string(i) + "-" + std::to_string(p)), i,
             std::nullopt});
      std::vector<ports::InboxShare> shares;
      for (std::size_t p = 0; p < fences.size(); ++p) shares.push_back({fences[p], {&entries[p], 1}});
      ports::InboxScope common = scope();
      common.fence.reset();
      session_->begin_shared(common, shares);
      session_->commit();
    }
    EXPECT_THAT(planned_each_time(), ::testing::IsEmpty()) << partitions;
  }
}

}  // namespace
}  // namespace turnstile::test
