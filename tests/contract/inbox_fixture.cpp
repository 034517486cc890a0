#include "tests/contract/inbox_fixture.hpp"

#include "tests/support/eventually.hpp"
#include "tests/support/postgres_role.hpp"
#include "tests/support/postgres_schema.hpp"
#include "tests/support/tcp_proxy.hpp"
#include "turnstile/error.hpp"
#include "turnstile/postgres/store.hpp"
#include "turnstile/testing/inbox.hpp"

namespace turnstile::test {

namespace {

class MemoryInboxFixture final : public InboxFixture {
 public:
  MemoryInboxFixture() { inbox_.fail(kRefused, "42P01"); }
  ports::Store& store() override { return inbox_; }
  std::vector<std::string> effects() override {
    std::vector<std::string> what;
    for (const auto& statement : inbox_.committed()) {
      if (statement.sql == kEffect) what.push_back(statement.params.at(0).value_or("NULL"));
    }
    return what;
  }
  void lose_next_commit(bool carried_out) override {
    using turnstile::testing::CommitFault;
    inbox_.fail_next_commit(carried_out ? CommitFault::in_doubt_committed : CommitFault::in_doubt_lost);
  }
  void go_away() override { inbox_.set_unavailable(true); }
  void come_back() override { inbox_.set_unavailable(false); }
  void age_producers(std::chrono::milliseconds by) override { inbox_.age_producers(by); }

 private:
  turnstile::testing::MemoryInbox inbox_;
};

/// Its store has only the rights of migrations/roles.sql, which must be enough for the contract.
class PostgresInboxFixture final : public InboxFixture {
 public:
  explicit PostgresInboxFixture(int partitions = 1)
      : role_(schema_),
        proxy_(proxy_to(schema_.sql())),
        store_(postgres::open_store(role_.settings_through(proxy_.port()))) {
    schema_.sql().exec("SELECT partition_inbox(" + std::to_string(partitions) + ")");
    schema_.sql().exec("CREATE TABLE effect (number bigserial, what text)");
    role_.grant_from_file();
    schema_.sql().exec("GRANT INSERT ON effect TO " + role_.name() + "; GRANT USAGE ON SEQUENCE effect_number_seq TO " +
                       role_.name());
  }
  ports::Store& store() override { return *store_; }
  std::vector<std::string> effects() override {
    return schema_.sql().column("SELECT what FROM effect ORDER BY number");
  }
  void lose_next_commit(bool carried_out) override {
    carried_out ? proxy_.drop_next_answer() : proxy_.drop_next_request();
  }
  void go_away() override { proxy_.cut(true); }
  void come_back() override { proxy_.cut(false); }
  void age_producers(std::chrono::milliseconds by) override {
    // A server that has just started lets no session expire.
    EXPECT_TRUE(eventually(
        [&] { return schema_.sql().one("SELECT pg_postmaster_start_time() + interval '31 s' < now()") == "t"; },
        std::chrono::seconds(40)));
    const std::string age = std::to_string(by.count()) + " * interval '1 millisecond'";
    schema_.sql().exec("UPDATE producer SET heartbeat_at = heartbeat_at - " + age + ", expired_at = expired_at - " +
                       age);
  }

 private:
  PostgresSchema schema_;
  PostgresRole role_;
  TcpProxy proxy_;
  std::shared_ptr<ports::Store> store_;
};

}  // namespace

std::unique_ptr<InboxFixture> make_memory_world() { return std::make_unique<MemoryInboxFixture>(); }
std::unique_ptr<InboxFixture> make_postgres_world() {
  return postgres_url() ? std::make_unique<PostgresInboxFixture>() : nullptr;
}

std::unique_ptr<InboxFixture> make_partitioned_world() {
  return postgres_url() ? std::make_unique<PostgresInboxFixture>(8) : nullptr;
}

void InboxContract::SetUp() {
  world_ = GetParam().make();
  if (!world_) GTEST_SKIP() << kNoPostgres;
  handler_ = store().register_handler("charge");
  fence_ = claim();
}

Fence InboxContract::claim(std::int32_t partition, const std::string& topic) {
  const TopicPartition at{topic, partition};
  return store().partitions().claim_partitions("group", {&at, 1}, std::chrono::seconds(5)).at(0).fence;
}

std::vector<ports::InboxEntry> InboxContract::entries(const std::vector<std::string>& ids) {
  std::vector<ports::InboxEntry> entries;
  for (const auto& id : ids)
    entries.push_back({MessageId::from(id), static_cast<Offset>(entries.size()), std::nullopt});
  return entries;
}

std::string InboxContract::admit(ports::InboxSession& session, const ports::InboxScope& scope,
                                 const std::vector<ports::InboxEntry>& entries) {
  std::string letters;
  for (const ports::Admission admission : session.begin(scope, entries))
    letters += "fdmon"[static_cast<int>(admission)];
  return letters;
}

std::string InboxContract::admit(ports::InboxSession& session, const std::vector<std::string>& ids) {
  return admit(session, scope(fence_), entries(ids));
}

std::string InboxContract::admit_shared(ports::InboxSession& session,
                                        const std::vector<std::pair<Fence, std::vector<std::string>>>& shares) {
  std::vector<std::vector<ports::InboxEntry>> all;
  std::vector<ports::InboxShare> given;
  for (const auto& [fence, ids] : shares) all.push_back(entries(ids));
  for (std::size_t i = 0; i < shares.size(); ++i) given.push_back({shares[i].first, all[i]});
  ports::InboxScope common = scope(fence_);
  common.fence.reset();
  std::string letters;
  for (const ports::Admission admission : session.begin_shared(common, given))
    letters += "fdmon"[static_cast<int>(admission)];
  return letters;
}

std::string InboxContract::once(const std::vector<std::string>& ids) {
  const auto session = store().open_session();
  const std::string admitted = admit(*session, ids);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    session->at_message(i);
    if (admitted[i] == 'f') session->transaction().defer(InboxFixture::kEffect, ids[i]);
  }
  session->commit();
  return admitted;
}

}  // namespace turnstile::test
