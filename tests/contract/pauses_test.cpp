// The contract of pauses for every store (ports/pauses.hpp).

#include <gmock/gmock.h>

#include "inbox_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "turnstile/error.hpp"

namespace turnstile::test {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class PausesContract : public InboxContract {
 protected:
  void SetUp() override {
    InboxContract::SetUp();
    if (world_) pauses_ = store().pauses();
  }
  void begin(const ports::PausedPart& part, std::optional<milliseconds> left = {}, const std::string& why = "") {
    pauses_->begin({.part = part, .by = "anna@host1", .why = why, .left = left});
  }
  std::vector<ports::PausedPart> parts() {
    std::vector<ports::PausedPart> all;
    for (const auto& pause : pauses_->active()) all.push_back(pause.part);
    return all;
  }

  std::shared_ptr<ports::Pauses> pauses_;
};

INSTANTIATE_TEST_SUITE_P(Pauses, PausesContract, inbox_kinds(), kind_name);

TEST_P(PausesContract, nothing_is_paused_at_first) { EXPECT_THAT(pauses_->active(), IsEmpty()); }

TEST_P(PausesContract, a_pause_tells_who_when_and_why) {
  begin({"payments"}, milliseconds(3'600'000), "the bank is down");
  const auto all = pauses_->active();
  ASSERT_EQ(all.size(), 1U);
  const ports::Pause& pause = all.front();
  EXPECT_EQ(pause.part, (ports::PausedPart{"payments"}));
  EXPECT_EQ(pause.by, "anna@host1");
  EXPECT_EQ(pause.why, "the bank is down");
  ASSERT_TRUE(pause.left && pause.until);
  EXPECT_GT(*pause.left, milliseconds(3'500'000));
  EXPECT_LE(*pause.left, milliseconds(3'600'000));
  EXPECT_GT(pause.since, Timestamp{});
  // Both are rounded to milliseconds.
  EXPECT_LE(std::chrono::abs(*pause.until - pause.since - milliseconds(3'600'000)), milliseconds(5'000));
}

TEST_P(PausesContract, a_pause_without_an_end_has_none) {
  begin({"payments"});
  const auto all = pauses_->active();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_FALSE(all.front().left);
  EXPECT_FALSE(all.front().until);
}

TEST_P(PausesContract, topics_partitions_and_keys_do_not_mix) {
  const std::string binary("\0\xff key", 6), empty, longer(10'000, 'k');
  const std::vector<ports::PausedPart> all{
      {"orders"},      {"payments"},    {"payments", {}, empty}, {"payments", {}, binary}, {"payments", {}, longer},
      {"payments", 0}, {"payments", 3}, {"payments", 3, binary}};
  for (auto at = all.rbegin(); at != all.rend(); ++at) begin(*at);
  EXPECT_EQ(parts(), all) << "in the order of the parts";
  EXPECT_TRUE(pauses_->end({"payments"}));
  EXPECT_FALSE(pauses_->end({"payments"}));
  EXPECT_FALSE(pauses_->end({"payments", 4}));
  EXPECT_EQ(parts().size(), 7U);
  for (const auto& part : all) EXPECT_EQ(pauses_->end(part), part != all[1]);
  EXPECT_THAT(pauses_->active(), IsEmpty());
}

TEST_P(PausesContract, pausing_again_replaces_the_end_and_the_reason) {
  begin({"payments", 3}, milliseconds(3'600'000), "the bank is down");
  const Timestamp since = pauses_->active().front().since;
  pauses_->begin({.part = {"payments", 3}, .by = "ben@host2", .why = "still"});
  const auto all = pauses_->active();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all.front().by, "ben@host2");
  EXPECT_EQ(all.front().why, "still");
  EXPECT_FALSE(all.front().until);
  EXPECT_EQ(all.front().since, since) << "it has been paused all the time";
}

TEST_P(PausesContract, a_pause_ends_by_itself) {
  begin({"payments"}, milliseconds(100));
  begin({"orders"});
  EXPECT_TRUE(eventually([&] { return parts() == std::vector<ports::PausedPart>{{"orders"}}; }));
  EXPECT_FALSE(pauses_->end({"payments"})) << "it had ended";
  begin({"payments"}, milliseconds(50));
  EXPECT_TRUE(eventually([&] { return parts().size() == 1; }));
  begin({"payments"});
  const auto all = pauses_->active();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_GT(all[1].since, all[0].since) << "it was not paused in between";
}

TEST_P(PausesContract, that_of_a_circuit_breaker_stays_until_it_is_ended) {
  const ports::PausedPart billing{"payments", {}, {}, "billing"}, mailing{"payments", {}, {}, "mailing"};
  begin({"payments"});
  begin(billing, milliseconds(0));
  begin(mailing, milliseconds(3'600'000));
  const auto all = pauses_->active();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_THAT(parts(), ElementsAre(ports::PausedPart{"payments"}, billing, mailing));
  EXPECT_EQ(all[1].left, milliseconds(0));
  begin({"orders"});
  EXPECT_EQ(parts().size(), 4U) << "beginning another does not end it";
  EXPECT_TRUE(pauses_->end(billing));
  EXPECT_TRUE(pauses_->end(mailing));
  EXPECT_EQ(parts().size(), 2U);
}

TEST_P(PausesContract, what_people_write_is_stored_whatever_it_is) {
  pauses_->begin({.part = {"payments"}, .by = "a\xff", .why = std::string("b\0c", 3)});
  ASSERT_EQ(pauses_->active().size(), 1U);
  EXPECT_TRUE(pauses_->end({"payments"}));
}

TEST_P(PausesContract, an_outage_is_reported) {
  begin({"payments"});
  world_->go_away();
  EXPECT_THROW(pauses_->active(), StoreUnavailable);
  EXPECT_THROW(begin({"orders"}), StoreUnavailable);
  EXPECT_THROW(pauses_->end({"payments"}), StoreUnavailable);
  world_->come_back();
  EXPECT_THAT(parts(), ElementsAre(ports::PausedPart{"payments"}));
}

}  // namespace
}  // namespace turnstile::test
