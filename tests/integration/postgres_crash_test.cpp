// A process of PostgreSQL is killed. The server recovers without another start, and has lost commits that did not wait
// for the disk.

#include "tests/integration/postgres_fixture.hpp"
#include "tests/support/own_postgres.hpp"
#include "turnstile/ports/claims.hpp"
#include "turnstile/postgres/migrations.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

class PostgresCrash : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!postgres_url()) GTEST_SKIP() << kNoPostgres;
    own_.emplace();
    PostgresSettings settings;
    settings.url = Secret(own_->url());
    postgres::migrate_up(settings, postgres::embedded_migration_list());
    store_ = postgres::open_store(settings);
    handler_ = store_->register_handler("charge");
  }
  /// A letter for each message: c(laimed), d(one), m(ismatch), r(unning), p(arked). The lease of such a claim ends at
  /// once, and its handlers have not begun.
  std::string claim(const std::string& owner, const std::vector<std::string>& ids) {
    std::vector<ports::InboxEntry> entries;
    for (const std::string& id : ids) entries.push_back({MessageId::from(id), 0, std::nullopt});
    std::string letters;
    for (const ports::Claim& claim : store_->claims()->claim(
             {.handler = handler_, .owner = MessageId::from(owner), .lease = 0ms, .begins = false}, entries))
      letters += "cdmrp"[static_cast<int>(claim.state)];
    return letters;
  }
  void begin(const std::string& owner, const std::string& id) {
    const ports::HeldClaim held{MessageId::from(id), 1};
    ASSERT_EQ(store_->claims()->begin(handler_, MessageId::from(owner), {&held, 1}), std::vector{true});
  }
  std::string begun() { return Sql(own_->url()).one("SELECT count(*) FROM turnstile.claim WHERE unbegun_by IS NULL"); }

  std::optional<OwnPostgres> own_;
  std::shared_ptr<ports::Store> store_;
  HandlerId handler_;
};

/// Otherwise the handler would make its effect again.
TEST_F(PostgresCrash, a_claim_whose_begin_was_lost_is_in_doubt) {
  for (const char* time : {"first", "second"}) {
    const std::string ran = std::string("ran ") + time, waits = std::string("waits ") + time;
    ASSERT_EQ(claim("before", {ran, waits}), "cc");
    own_->hold_writers();
    begin("before", ran);
    ASSERT_EQ(begun(), "1");
    own_->crash();
    ASSERT_EQ(begun(), "0") << "the server has not lost what this test is about";
    EXPECT_EQ(store_->claims()->count(handler_).in_doubt, 2);
    EXPECT_EQ(claim("after", {ran, waits}), "pp") << "after the " << time << " crash";
  }
  EXPECT_EQ(claim("one", {"a", "b"}), "cc");
  EXPECT_EQ(claim("two", {"a", "b"}), "cc") << "they have not begun, and the server has lost nothing since";
}

/// Otherwise a message that ends its process and one of PostgreSQL's does so for ever.
TEST_F(PostgresCrash, what_had_begun_is_suspected) {
  const TopicPartition at{"payments", 0};
  const auto claim_partition = [&] { return store_->partitions().claim_partitions("group", {&at, 1}, 5s).at(0).fence; };
  const Fence died = claim_partition();
  own_->hold_writers();
  const Offset offset = 7;
  store_->trials()->begin(died, {&offset, 1}, true);
  own_->crash();
  EXPECT_THAT(store_->trials()->take_over(claim_partition(), 0), ::testing::ElementsAre(ports::Suspect{7, 1}));
}

}  // namespace
}  // namespace turnstile::test
