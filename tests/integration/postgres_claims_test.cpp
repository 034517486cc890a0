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

  std::vector<ports::InboxEntry> claim_new(int count) {
    std::vector<ports::InboxEntry> entries;
    for (int i = 0; i < count; ++i)
      entries.push_back({MessageId::from("many" + std::to_string(made_++)), 0, std::nullopt});
    for (const ports::Claim& claimed :
         claims()->claim({.handler = handler_, .fence = fence_, .owner = owner_, .lease = 60s}, entries))
      EXPECT_EQ(claimed.state, ports::Claim::State::claimed);
    return entries;
  }
  std::int64_t counted(const std::string& what, const std::string& view, const std::string& name) {
    return std::stoll(sql().one("SELECT coalesce(sum(" + what + "), 0) FROM pg_stat_user_" + view + " = '" + name +
                                "' AND schemaname = '" + schema_->name() + "'"));
  }
  /// Runs `batch`, which looks up 8 ids, ten times, in a table with 20,000 rows.
  template <class Batch>
  void expect_look_ups(const std::string& table, const Batch& batch) {
    const auto of_index = [&](const char* what) {
      return counted(what, "indexes WHERE indexrelname", table + "_pkey");
    };
    const auto seq_scans = [&] { return counted("seq_scan", "tables WHERE relname", table); };
    const auto scans = of_index("idx_scan"), rows = of_index("idx_tup_read"), before = seq_scans();
    for (int i = 0; i < 10; ++i) batch();
    ASSERT_TRUE(eventually([&] {
      batch();  // the statistics come with a later transaction
      return of_index("idx_scan") >= scans + 80;
    }));
    EXPECT_LT(of_index("idx_tup_read") - rows, 20'000);
    EXPECT_EQ(seq_scans(), before);
  }

  const MessageId owner_ = MessageId::from("owner");
  int made_ = 0;
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

/// PostgreSQL keeps plans from when the tables were small.
TEST_F(PostgresClaims, that_are_done_are_found_by_their_ids_among_many) {
  const auto add = [&](int ids) {
    sql().exec("INSERT INTO inbox (handler, id, slot, record_offset) SELECT " + std::to_string(handler_.value) +
               ", gen_random_uuid(), 0, n FROM generate_series(1, " + std::to_string(ids) + ") n");
  };
  add(20);
  sql().exec("ANALYZE inbox");
  for (int i = 0; i < 10; ++i) claim_new(1);
  for (int i = 0; i < 10; ++i) claim_new(8);
  add(20'000);
  expect_look_ups("inbox", [&] { claim_new(8); });
}

TEST_F(PostgresClaims, are_ended_by_their_ids_among_many) {
  const auto end_batch = [&] {
    std::vector<ports::ClaimEnd> ends;
    for (const ports::InboxEntry& entry : claim_new(8))
      ends.push_back({.kind = ports::ClaimEnd::Kind::done, .claim = {entry.id, 1}});
    EXPECT_EQ(claims()->end(handler_, owner_, ends), std::vector<bool>(8, true));
  };
  claim_new(20);
  sql().exec("ANALYZE claim");
  for (int i = 0; i < 10; ++i) end_batch();
  sql().exec("INSERT INTO claim (handler, id, state, owner, expires_at, slot, record_offset) SELECT " +
             std::to_string(handler_.value) +
             ", gen_random_uuid(), 'parked', gen_random_uuid(), now(), 0, n FROM generate_series(1, 20000) n");
  expect_look_ups("claim", end_batch);
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
