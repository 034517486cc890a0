// Claims in the real PostgreSQL.

#include <algorithm>
#include <future>

#include "tests/integration/postgres_fixture.hpp"
#include "turnstile/ports/claims.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

class PostgresClaims : public PostgresTest {
 protected:
  /// In the order of ids, which is not the order in which the table has them.
  std::vector<MessageId> claim(std::size_t count) {
    std::vector<MessageId> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(MessageId::from("claimed" + std::to_string(i)));
    std::sort(all.begin(), all.end());
    for (auto id = all.rbegin(); id != all.rend(); ++id) {
      const ports::InboxEntry entry{*id, 0, std::nullopt};
      EXPECT_EQ(claims()
                    ->claim({.handler = handler_, .fence = fence_, .owner = owner_, .lease = 60s}, {&entry, 1})
                    .at(0)
                    .state,
                ports::Claim::State::claimed);
    }
    return all;
  }
  std::shared_ptr<ports::Claims> claims() { return store_->claims(); }

  const MessageId owner_ = MessageId::from("owner");
};

/// Another consumer that claims the same messages locks them in the order of ids, too (hazard: insert-order).
TEST_F(PostgresClaims, are_ended_in_the_order_of_ids) {
  const auto ids = claim(8);
  std::vector<ports::ClaimEnd> ends;
  for (const MessageId& id : ids) ends.push_back({.kind = ports::ClaimEnd::Kind::done, .claim = {id, 1}});
  Sql other(schema_->url());
  const auto lock = [&](const MessageId& id) {
    return other.column("SELECT 1 FROM claim WHERE id = '" + id.text() + "' FOR UPDATE NOWAIT");
  };
  other.exec("BEGIN");
  EXPECT_EQ(lock(ids.front()).size(), 1U);
  auto ended = std::async(std::launch::async, [&] { return claims()->end(handler_, owner_, ends); });
  ASSERT_TRUE(eventually([&] {
    return !sql()
                .column(
                    "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%taken_in AS (%'")
                .empty();
  }));
  for (const MessageId& id : ids)
    EXPECT_EQ(lock(id).size(), 1U) << "it waits for the first one, and has locked no other";
  other.exec("COMMIT");
  EXPECT_EQ(ended.get(), std::vector<bool>(ids.size(), true));
  EXPECT_EQ(this->ids(), "8");
  EXPECT_EQ(sql().one("SELECT count(*) FROM claim"), "0");
}

/// PostgreSQL keeps a plan from when the inbox was small.
TEST_F(PostgresClaims, that_are_done_are_found_by_their_ids_among_many) {
  const auto add = [&](int ids) {
    sql().exec("INSERT INTO inbox (handler, id, slot, record_offset) SELECT " + std::to_string(handler_.value) +
               ", gen_random_uuid(), 0, n FROM generate_series(1, " + std::to_string(ids) + ") n");
  };
  int claimed = 0;
  const auto claim_batches = [&](int batches, int size) {
    for (; batches > 0; --batches) {
      std::vector<ports::InboxEntry> entries;
      for (int i = 0; i < size; ++i)
        entries.push_back({MessageId::from("many" + std::to_string(claimed++)), 0, std::nullopt});
      (void)claims()->claim({.handler = handler_, .fence = fence_, .owner = owner_, .lease = 60s}, entries);
    }
  };
  const auto read = [&](const char* what) {
    return std::stoll(sql().one(std::string("SELECT coalesce(sum(") + what +
                                "), 0) FROM pg_stat_user_indexes WHERE indexrelname = 'inbox_pkey' AND schemaname = '" +
                                schema_->name() + "'"));
  };
  const auto seq_scans = [&] {
    return sql().one("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'inbox' AND schemaname = '" +
                     schema_->name() + "'");
  };
  add(20);
  sql().exec("ANALYZE inbox");
  claim_batches(10, 1);
  claim_batches(10, 8);
  add(20'000);
  const auto scans = read("idx_scan"), rows = read("idx_tup_read");
  const auto before = seq_scans();
  claim_batches(10, 8);
  ASSERT_TRUE(eventually([&] {
    claim_batches(1, 8);  // the statistics come with a later transaction
    return read("idx_scan") >= scans + 80;
  }));
  EXPECT_LT(read("idx_tup_read") - rows, 20'000);
  EXPECT_EQ(seq_scans(), before);
}

/// The lease of a claim is renewed by another thread of its owner.
TEST_F(PostgresClaims, are_ended_although_they_were_renewed_meanwhile) {
  const auto ids = claim(2);
  std::vector<ports::ClaimEnd> ends;
  for (const MessageId& id : ids) ends.push_back({.kind = ports::ClaimEnd::Kind::done, .claim = {id, 1}});
  Sql renewing(schema_->url());
  renewing.exec("BEGIN; UPDATE claim SET expires_at = expires_at + interval '1 minute'");
  auto ended = std::async(std::launch::async, [&] { return claims()->end(handler_, owner_, ends); });
  ASSERT_TRUE(eventually([&] {
    return !sql()
                .column(
                    "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%taken_in AS (%'")
                .empty();
  }));
  renewing.exec("COMMIT");
  EXPECT_EQ(ended.get(), std::vector<bool>(2, true));
  EXPECT_EQ(sql().one("SELECT count(*) FROM claim"), "0");
}

}  // namespace
}  // namespace turnstile::test
