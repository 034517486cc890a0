// A whole token log is replayed, and compared with the limits and with the states that members have stored.

#include "turnstile/token_audit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokens/apply.hpp"
#include "tokens/member_settings.hpp"
#include "tokens/parts.hpp"
#include "tokens/snapshot.hpp"
#include "tokens/wire.hpp"
#include "turnstile/testing/token_log.hpp"

namespace turnstile {
namespace {

using namespace tokens;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using turnstile::testing::MemoryTokenLog;
using turnstile::testing::MemoryTokenTopic;

constexpr MemberId kBilling = 7, kMailer = 9;

class TokenAuditTest : public ::testing::Test {
 protected:
  void write(MemberId member, decltype(Event::body) body) {
    const Event event{.member = member, .epoch = 1, .seq = ++seq_[member], .body = std::move(body)};
    topic_->append(encode(event), 1'000 + topic_->end());
    apply(state_, topic_->end() - 1, event);
  }
  void join(MemberId member, const std::string& client) {
    write(member, Joined{.host = "h1", .pid = 11, .client = client, .lease_ms = 10'000});
  }
  void keep(MemberId member, Count wants, Count given_back = 0, std::optional<Checkpoint> checkpoint = {}) {
    write(member, Keep{.lines = {Line{.limiter = "psp", .limit = 4, .wants = wants, .given_back = given_back}},
                       .checkpoint = checkpoint});
  }
  void both() {
    join(kBilling, "billing");
    keep(kBilling, 4);
    join(kMailer, "mailer");
    keep(kMailer, 2);
    keep(kBilling, 2, 2);
    keep(kMailer, 2);
  }
  TokenAudit audit() {
    MemoryTokenLog log(topic_);
    return audit_token_log(log);
  }

  std::shared_ptr<MemoryTokenTopic> topic_ = std::make_shared<MemoryTokenTopic>();
  std::map<MemberId, std::uint64_t> seq_;
  State state_;
};

TEST_F(TokenAuditTest, a_log_that_keeps_the_limit_has_no_finding) {
  both();
  topic_->save(save(state_));
  keep(kMailer, 1, 1);
  const TokenAudit found = audit();
  EXPECT_TRUE(found.known);
  EXPECT_EQ(found.known_from, -1);
  EXPECT_EQ(found.records, 7);
  EXPECT_EQ(found.compared, 1);
  EXPECT_EQ(found.first_time_ms, 1'000);
  EXPECT_THAT(found.excesses, IsEmpty());
  EXPECT_THAT(found.differences, IsEmpty());
  EXPECT_THAT(found.lowered, IsEmpty());
}

// A grant that no record made: members that start from this snapshot would believe it.
TEST_F(TokenAuditTest, a_forged_grant_in_a_snapshot_is_found) {
  both();
  State forged = state_;
  forged.limiters.at("psp").holdings.at(kMailer).granted += 1;
  topic_->save(save(forged));
  const TokenAudit found = audit();
  ASSERT_EQ(found.differences.size(), 1U);
  EXPECT_EQ(found.differences[0].position, 5);
  EXPECT_EQ(found.differences[0].what, "a snapshot");
}

// The same where the log before the snapshot is gone: the replay can only begin with it.
TEST_F(TokenAuditTest, permits_above_the_limit_in_the_first_snapshot_cannot_be_judged_and_are_told) {
  both();
  State forged = state_;
  forged.limiters.at("psp").holdings.at(kMailer).granted += 1;
  topic_->save(save(forged));
  topic_->cut(6);
  keep(kMailer, 3);
  const TokenAudit found = audit();
  EXPECT_EQ(found.known_from, 5);
  ASSERT_EQ(found.lowered.size(), 1U);
  EXPECT_EQ(found.lowered[0].held, 5);
  EXPECT_EQ(found.lowered[0].limit, 4);
  EXPECT_THAT(found.excesses, IsEmpty()) << "nobody got more";
}

TEST_F(TokenAuditTest, a_member_with_another_state_is_found) {
  join(kBilling, "billing");
  const auto every = MemberSettings{}.checkpoint_every;
  while (topic_->end() <= every) keep(kBilling, 1);
  keep(kBilling, 1, 0, Checkpoint{every, digest(state_) + 1});
  const TokenAudit found = audit();
  ASSERT_EQ(found.differences.size(), 1U);
  EXPECT_EQ(found.differences[0].position, every);
  EXPECT_THAT(found.differences[0].what, HasSubstr("billing"));
}

TEST_F(TokenAuditTest, a_lowered_limit_is_no_finding_while_permits_return) {
  both();
  write(0, LimitSet{.limiter = "psp", .limit = 1, .seen = topic_->end() - 1});
  keep(kBilling, 1, 3);
  EXPECT_THAT(audit().excesses, IsEmpty());
}

TEST_F(TokenAuditTest, without_a_snapshot_that_continues_it_tells_nothing) {
  both();
  topic_->cut(3);
  const TokenAudit found = audit();
  EXPECT_FALSE(found.known);
  EXPECT_EQ(found.records, 0);
}

/// Parts as they must never be: the home of "psp" is open while a member still has permits of it in part 0.
TEST(TokenAuditOfParts, a_part_that_was_opened_too_early_is_an_excess) {
  const auto log = std::make_shared<turnstile::testing::MemoryTokenParts>();
  const auto write = [&](std::uint32_t part, const Event& event) { log->part(part)->append(encode(event)); };
  write(0, {7, 1, 1, Joined{.host = "h1", .pid = 11, .client = "billing", .lease_ms = 10'000, .knows = 2}});
  write(0, {7, 1, 2, Keep{.lines = {Line{.limiter = "psp", .limit = 4, .wants = 3}}, .checkpoint = {}}});
  write(0, {1, 1, 1, VersionSet{kDividedVersion}});
  write(0, {2, 1, 1, Divided{3, 77, 7, 0}});
  const auto parts = turnstile::testing::open_parts(log);
  const auto audit = [&] { return audit_token_log(*parts(0), parts); };
  EXPECT_THAT(audit().excesses, IsEmpty());
  const std::uint32_t home = part_of("psp", 3);
  write(home, {3, 1, 1, Opened{77, home, {}}});
  const auto excesses = audit().excesses;
  ASSERT_EQ(excesses.size(), 1U);
  EXPECT_EQ(excesses.front().limiter, "psp");
  EXPECT_EQ(excesses.front().held, 3);
  EXPECT_EQ(excesses.front().limit, 0);
  write(0, {7, 1, 3, Left{}});
  EXPECT_THAT(audit().excesses, IsEmpty());
}

}  // namespace
}  // namespace turnstile
