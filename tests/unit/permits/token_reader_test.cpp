// A token log seen from outside, over a log in memory: what each record meant, which member held what before and after
// it, and limits that a program sets without being a member.

#include "turnstile/token_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokens/apply.hpp"
#include "tokens/snapshot.hpp"
#include "tokens/wire.hpp"
#include "turnstile/testing/token_log.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;
using namespace tokens;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using turnstile::testing::MemoryTokenLog;
using turnstile::testing::MemoryTokenTopic;

constexpr MemberId kBillingId = 7, kMailerId = 9;

/// What two members write, with one second between the events.
struct Log {
  std::shared_ptr<MemoryTokenTopic> topic = std::make_shared<MemoryTokenTopic>();
  std::map<MemberId, std::uint64_t> seq;
  std::int64_t time_ms = 1'000;

  void write(MemberId member, decltype(Event::body) body) {
    topic->append(encode({.member = member, .epoch = 1, .seq = ++seq[member], .body = std::move(body)}), time_ms);
    time_ms += 1'000;
  }
  void join(MemberId member, const std::string& client) {
    write(member, Joined{.host = "h1", .pid = 11, .client = client, .lease_ms = 10'000});
  }
  void keep(MemberId member, Count limit, Count wants, Count given_back = 0) {
    write(member, Keep{.lines = {Line{.limiter = "psp", .limit = limit, .wants = wants, .given_back = given_back}},
                       .checkpoint = std::nullopt});
  }
  /// Positions 0 to 5: both members join, billing gets all four permits and gives two back, and mailer gets those.
  void both() {
    join(kBillingId, "billing");
    keep(kBillingId, 4, 4);
    join(kMailerId, "mailer");
    keep(kMailerId, 8, 2);
    keep(kBillingId, 4, 2, 2);
    keep(kMailerId, 8, 2);
  }
  [[nodiscard]] std::unique_ptr<ports::TokenLog> open() const { return std::make_unique<MemoryTokenLog>(topic); }
  [[nodiscard]] State state_at(Position position) const {
    State state;
    for (const auto& record : topic->from(0)) {
      if (record.position <= position) apply(state, record.position, decode(record.bytes));
    }
    return state;
  }
};

std::map<std::string, std::int64_t> held(const PermitsView& view) {
  std::map<std::string, std::int64_t> all;
  for (const auto& entry : view.limiters) {
    for (const auto& who : entry.holders) all[who.client] += who.held;
  }
  return all;
}

using Held = std::map<std::string, std::int64_t>;

TEST(TokenReader, shows_who_holds_what_at_the_end) {
  Log log;
  log.both();
  TokenReader reader(log.open());
  reader.start(reader.end());
  const PermitsView view = reader.permits();
  EXPECT_EQ(view.position, 5);
  EXPECT_EQ(held(view), (Held{{"billing", 2}, {"mailer", 2}}));
  ASSERT_EQ(view.limiters.size(), 1U);
  EXPECT_EQ(view.limiters[0].limit, 4);
  EXPECT_EQ(view.limiters[0].held(), 4);
  EXPECT_EQ(view.limiters[0].waiting(), 0);
  EXPECT_EQ(view.limiters[0].set_aside, 0);
  const auto& billing = view.limiters[0].holders[0];
  EXPECT_EQ(billing.configured, 4);
  EXPECT_EQ(billing.heard_at, 4);
  EXPECT_EQ(billing.lease, 10s);
}

TEST(TokenReader, shows_who_held_what_after_each_position) {
  Log log;
  log.both();
  const std::vector<Held> expected{{},
                                   {{"billing", 4}},
                                   {{"billing", 4}},
                                   {{"billing", 4}, {"mailer", 0}},
                                   {{"billing", 2}, {"mailer", 2}},
                                   {{"billing", 2}, {"mailer", 2}}};
  for (std::int64_t at = 0; at < 6; ++at) {
    TokenReader reader(log.open());
    reader.start(0);
    reader.read_to(at);
    EXPECT_EQ(held(reader.permits()), expected[static_cast<std::size_t>(at)]) << "at position " << at;
    EXPECT_EQ(reader.time_of(at), 1'000 * (at + 1));
  }
}

TEST(TokenReader, shows_what_is_set_aside_of_a_limit) {
  Log log;
  log.join(kBillingId, "billing");
  log.write(kBillingId, Acquire{.line = {.limiter = "psp", .limit = 8, .wants = 9, .set_aside = 3}});
  TokenReader reader(log.open());
  reader.start(1);
  EXPECT_EQ(reader.next().details, "psp: wants 9, busy 0, given back 0, 3 set aside");
  const PermitsView permits = reader.permits();
  const auto& psp = permits.limiters[0];
  EXPECT_EQ(psp.limit, 8);
  EXPECT_EQ(psp.set_aside, 3);
  EXPECT_EQ(psp.held(), 5);
  EXPECT_EQ(psp.waiting(), 4);
}

TEST(TokenReader, shows_no_record_before_the_one_before_it_whatever_clocks_say) {
  Log log;
  log.join(kBillingId, "billing");
  log.time_ms = 500;  // from a writer whose clock is behind
  log.write(kBillingId, Acquire{.line = {.limiter = "psp", .limit = 8, .wants = 1}});
  TokenReader reader(log.open());
  reader.start(0);
  EXPECT_EQ(reader.next().time_ms, 1'000);
  EXPECT_EQ(reader.peek(std::chrono::milliseconds(0))->time_ms, 1'000);
  EXPECT_EQ(reader.next().time_ms, 1'000);
}

TEST(TokenReader, tells_of_each_record_what_it_says_and_what_it_meant) {
  Log log;
  log.both();
  TokenReader reader(log.open());
  reader.start(3);
  const TokenRecord waits = reader.next();
  EXPECT_EQ(waits.position, 3);
  EXPECT_EQ(waits.time_ms, 4'000);
  ASSERT_TRUE(waits.written_by);
  EXPECT_EQ(waits.written_by->client, "mailer");
  EXPECT_EQ(waits.kind, "keep");
  EXPECT_EQ(waits.details, "psp: wants 2, busy 0, given back 0");
  EXPECT_EQ(waits.outcome, "applied");
  EXPECT_THAT(waits.changes, IsEmpty());

  const TokenRecord gives = reader.next();
  ASSERT_EQ(gives.changes.size(), 2U);
  EXPECT_EQ(gives.changes[0].member.client, "billing");
  EXPECT_EQ(gives.changes[0].before, 4);
  EXPECT_EQ(gives.changes[0].after, 2);
  EXPECT_EQ(gives.changes[1].member.client, "mailer");
  EXPECT_EQ(gives.changes[1].before, 0);
  EXPECT_EQ(gives.changes[1].after, 2);
}

TEST(TokenReader, tells_what_changed_nothing_and_why) {
  Log log;
  log.both();
  log.topic->append("rubbish", 9'000);
  log.keep(99, 1, 1);
  log.seq[kBillingId] = 0;
  log.keep(kBillingId, 4, 4);
  log.write(0, LimitSet{.limiter = "psp", .limit = kMostPermits + 1, .seen = 5});
  TokenReader reader(log.open());
  reader.start(6);
  const TokenRecord rubbish = reader.next();
  EXPECT_EQ(rubbish.kind, "unknown");
  EXPECT_EQ(rubbish.outcome, "unknown");
  EXPECT_EQ(rubbish.details, "7 bytes that are not an event");
  EXPECT_FALSE(rubbish.written_by);
  const TokenRecord stranger = reader.next();
  EXPECT_EQ(stranger.outcome, "stranger");
  ASSERT_TRUE(stranger.written_by);
  EXPECT_EQ(stranger.written_by->id, 99U);
  EXPECT_EQ(reader.next().outcome, "duplicate");
  const TokenRecord too_much = reader.next();
  EXPECT_EQ(too_much.kind, "limit set");
  EXPECT_EQ(too_much.outcome, "not allowed");
  EXPECT_FALSE(too_much.written_by);
}

TEST(TokenReader, tells_whose_permits_came_back_when_a_member_ends) {
  Log log;
  log.both();
  log.write(kMailerId, Expire{.member = kBillingId, .silent_since = 5});
  log.write(kMailerId, Left{});
  TokenReader reader(log.open());
  reader.start(6);
  const TokenRecord expired = reader.next();
  EXPECT_EQ(expired.details, "billing@h1:11, silent since position 5");
  ASSERT_TRUE(expired.ended);
  EXPECT_EQ(expired.ended->client, "billing");
  ASSERT_EQ(expired.changes.size(), 1U) << "the limit is 8 now, but mailer wants no more than it has";
  EXPECT_EQ(expired.changes[0].member.client, "billing");
  EXPECT_EQ(expired.changes[0].after, 0);
  const TokenRecord left = reader.next();
  ASSERT_TRUE(left.written_by);
  EXPECT_EQ(left.written_by->client, "mailer");
  ASSERT_TRUE(left.ended);
}

TEST(TokenReader, begins_with_the_newest_snapshot_below) {
  Log log;
  log.both();
  log.topic->save(save(log.state_at(2)));
  log.topic->save("torn");
  log.topic->save(save(log.state_at(4)));
  log.topic->cut(3);
  for (const std::int64_t from : {3, 4, 5, 6}) {
    TokenReader reader(log.open());
    reader.start(from);
    EXPECT_EQ(reader.position(), from - 1);
    EXPECT_EQ(reader.known_from(), from < 5 ? 2 : 4);
    reader.read_to(5);
    EXPECT_EQ(held(reader.permits()), (Held{{"billing", 2}, {"mailer", 2}})) << "from " << from;
  }
}

TEST(TokenReader, says_where_the_log_was_cut_off) {
  Log log;
  log.both();
  log.topic->save(save(log.state_at(4)));
  log.topic->cut(2);
  TokenReader reader(log.open());
  reader.start(0);
  EXPECT_EQ(reader.begin(), 2);
  EXPECT_EQ(reader.position(), 1);
  EXPECT_EQ(reader.known_from(), 4);
  EXPECT_THROW((void)reader.permits(), TokenLogBroken);
  const TokenRecord before = reader.next();
  EXPECT_EQ(before.kind, "joined");
  EXPECT_EQ(before.outcome, "");
  reader.read_to(4);
  EXPECT_EQ(held(reader.permits()), (Held{{"billing", 2}, {"mailer", 2}}));
  EXPECT_EQ(reader.next().outcome, "applied");
}

TEST(TokenReader, without_a_snapshot_a_log_that_was_cut_off_tells_nothing_of_holders) {
  Log log;
  log.both();
  log.topic->cut(2);
  TokenReader reader(log.open());
  reader.start(reader.begin());
  EXPECT_FALSE(reader.known_from());
  EXPECT_EQ(reader.next().kind, "joined");
  EXPECT_THROW((void)reader.permits(), TokenLogBroken);
  EXPECT_THROW(reader.set_limit("psp", 1, 1s), TokenLogBroken);
}

TEST(TokenReader, a_snapshot_of_an_older_log_of_this_name_does_not_count) {
  Log old, log;
  old.both();
  log.join(kBillingId, "billing");
  log.topic->save(save(old.state_at(5)));
  TokenReader reader(log.open());
  reader.start(reader.end());
  EXPECT_EQ(reader.permits().position, 0);
}

TEST(TokenReader, an_empty_log_has_no_holders) {
  const Log log;
  TokenReader reader(log.open());
  reader.start(reader.end());
  EXPECT_THAT(reader.permits().limiters, IsEmpty());
  EXPECT_FALSE(reader.peek(1ms));
}

TEST(TokenReader, sets_and_unsets_limits_without_being_a_member) {
  Log log;
  log.both();
  TokenReader reader(log.open());
  reader.start(reader.end());
  EXPECT_TRUE(reader.set_limit("psp", 0, 5s));
  EXPECT_EQ(log.state_at(100).limiters.at("psp").set, Count{0});
  EXPECT_EQ(reader.permits().limiters[0].limit, 0);
  EXPECT_TRUE(reader.set_limit("psp", 1'000'000'000, 5s));
  EXPECT_EQ(reader.permits().limiters[0].limit, 1'000'000'000);
  EXPECT_TRUE(reader.set_limit("psp", std::nullopt, 5s));
  EXPECT_EQ(reader.permits().limiters[0].limit, 4);
  EXPECT_TRUE(reader.set_limit("unheard-of", std::nullopt, 5s)) << "there is nothing to unset";
  EXPECT_EQ(log.state_at(100).members.size(), 2U);
}

TEST(TokenReader, refuses_limits_that_cannot_be) {
  const Log log;
  TokenReader reader(log.open());
  reader.start(reader.end());
  EXPECT_THROW(reader.set_limit("psp", -1, 1s), Error);
  EXPECT_THROW(reader.set_limit("psp", 1'000'000'001, 1s), Error);
  EXPECT_THROW(reader.set_limit("", 1, 1s), Error);
  EXPECT_THROW(reader.set_limit(std::string(256, 'x'), 1, 1s), Error);
  EXPECT_EQ(log.topic->end(), 0);
}

/// Another writer's event arrives just before each of the first two events of this one.
class RacedLog final : public ports::TokenLog {
 public:
  explicit RacedLog(const Log& log) : topic_(log.topic), log_(log.open()) {}
  std::optional<Snapshot> snapshot(std::int64_t before) override { return log_->snapshot(before); }
  std::int64_t begin() override { return log_->begin(); }
  std::int64_t end() override { return log_->end(); }
  void seek(std::int64_t position) override { log_->seek(position); }
  std::vector<Record> read(std::chrono::milliseconds timeout) override { return log_->read(timeout); }
  void append(std::string bytes) override {
    if (++said <= 2) {
      topic_->append(encode({.member = static_cast<MemberId>(said),
                             .epoch = 1,
                             .seq = 1,
                             .body = LimitSet{.limiter = "psp", .limit = 100, .seen = topic_->end() - 1}}));
    }
    log_->append(std::move(bytes));
  }
  bool failed() override { return log_->failed(); }
  [[nodiscard]] std::string why_failed() const override { return log_->why_failed(); }
  void save(std::int64_t position, std::string snapshot) override { log_->save(position, std::move(snapshot)); }
  [[nodiscard]] std::int64_t saved() const override { return log_->saved(); }
  void trim(std::int64_t below) override { log_->trim(below); }
  void wake() noexcept override { log_->wake(); }
  void flush(std::chrono::milliseconds timeout) override { log_->flush(timeout); }
  [[nodiscard]] std::string name() const override { return log_->name(); }

  int said = 0;

 private:
  std::shared_ptr<MemoryTokenTopic> topic_;
  std::unique_ptr<ports::TokenLog> log_;
};

TEST(TokenReader, says_a_limit_again_when_somebody_elses_came_between) {
  Log log;
  log.both();
  auto raced = std::make_unique<RacedLog>(log);
  const RacedLog& seen = *raced;
  TokenReader reader(std::move(raced));
  reader.start(reader.end());
  EXPECT_TRUE(reader.set_limit("psp", 3, 5s));
  EXPECT_EQ(seen.said, 3);
  EXPECT_EQ(log.state_at(100).limiters.at("psp").set, Count{3});
}

TEST(TokenReader, gives_up_when_the_log_is_away_and_says_why) {
  Log log;
  log.both();
  TokenReader reader(log.open());
  reader.start(reader.end());
  log.topic->away(true);
  EXPECT_FALSE(reader.set_limit("psp", 3, 50ms));
  EXPECT_EQ(reader.why_not_written(), "it is away");
  log.topic->away(false);
  EXPECT_TRUE(reader.set_limit("psp", 3, 5s));
}

TEST(TokenReader, guesses_the_limiter_that_was_meant) {
  Log log;
  log.both();
  TokenReader reader(log.open());
  reader.start(reader.end());
  EXPECT_EQ(nearest_limiter(reader.permits(), "pps"), "psp");
  EXPECT_EQ(nearest_limiter(reader.permits(), "something"), std::nullopt);
}

}  // namespace
}  // namespace turnstile
