// Mode leased while the store does not answer, refuses results, or loses answers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/end_bound.hpp"
#include "tests/unit/delivery/leased_fixture.hpp"

namespace turnstile::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(Leased, what_needs_the_store_while_it_is_away_waits_for_it_one_by_one_or_together) {
  settings_.store_down = StoreDownPolicy::run;
  settings_.order = Order::none;
  const auto reply = [](const Message& message, Context& context) {
    if (message.text() != "quiet") context.reply("re");
  };
  const auto reply_to_first = [](std::span<const Message> messages, Context& context) {
    context.reply(messages.front(), "re");
  };
  for (const bool together : {false, true}) {
    if (together) handler(reply_to_first);
    else handler(reply);
    const auto works = messages_of({"a", "b"});
    watch_.reset();
    const auto result = runner_->run_unclaimed(works, place_, watch_);
    EXPECT_EQ(result.end, detail::UnitResult::End::ran);
    for (const detail::Verdict& verdict : result.verdicts) {
      EXPECT_EQ(verdict.kind, Kind::retry) << together;
      EXPECT_GE(verdict.delay, 100ms) << "not in a circle";
      EXPECT_EQ(verdict.attempt, 1) << "no attempt is counted";
    }
  }
  handler(reply);
  const auto works = messages_of({"quiet"});
  EXPECT_EQ(runner_->run_unclaimed(works, place_, watch_).counts.unclaimed, 1);
}

TEST_F(Leased, messages_that_run_unclaimed_have_their_ids) {
  settings_.store_down = StoreDownPolicy::run;
  std::vector<MessageId> seen;
  const auto note = [&](const Message& message, Context& context) {
    ASSERT_EQ(context.ids().size(), 1U);
    EXPECT_EQ(message.id(), context.ids()[0]);
    seen.push_back(*message.id());
  };
  const auto note_all = [&](std::span<const Message> messages, Context& context) {
    ASSERT_EQ(context.ids().size(), messages.size());
    for (const Message& message : messages) seen.push_back(*message.id());
  };
  for (const bool together : {false, true}) {
    if (together) handler(note_all);
    else handler(note);
    const auto works = messages_of({"a", "b"});
    watch_.reset();
    EXPECT_EQ(runner_->run_unclaimed(works, place_, watch_).counts.unclaimed, 2);
    EXPECT_THAT(seen, ElementsAre(MessageId::from("a"), MessageId::from("b"))) << together;
    seen.clear();
  }
}

TEST_F(Leased, a_claim_whose_answer_was_lost_is_taken_over_by_the_same_process) {
  handler(noting());
  claims_->lose_claims = 2;
  EXPECT_EQ(run({"a"}).end, detail::UnitResult::End::store_unavailable);
  EXPECT_EQ(run({"a", "b"}).end, detail::UnitResult::End::store_unavailable);
  EXPECT_THAT(runs_, IsEmpty());
  EXPECT_THAT(kinds(run({"a", "b"})), ElementsAre(Kind::settled, Kind::settled));
  EXPECT_THAT(runs_, ElementsAre("a", "b"));
}

TEST_F(Leased, an_end_whose_answer_was_lost_is_said_again) {
  handler(noting());
  claims_->lose_ends = 2;
  EXPECT_THAT(kinds(run({"a", "b"})), ElementsAre(Kind::settled, Kind::settled));
  EXPECT_EQ(claims_->end_calls, 3);
  EXPECT_TRUE(done("a") && done("b"));
  EXPECT_THAT(runs_, ElementsAre("a", "b"));
}

TEST_F(Leased, what_cannot_be_written_down_is_not_settled_and_not_run_again) {
  handler(noting());
  act_ = [&](const Message&, Context&) {
    claims_->away = true;
    watch_.cancel().request_stop();  // the partition is taken away meanwhile
  };
  const auto result = run({"a", "b"});
  EXPECT_EQ(result.end, detail::UnitResult::End::store_unavailable);
  EXPECT_THAT(kinds(result), ElementsAre(Kind::put_back, Kind::put_back));
  EXPECT_THAT(
      log_.str(),
      HasSubstr(
          "Handler finished, but PostgreSQL became unavailable before its result was recorded (away). This process goes on trying. "
          "Until then, the message is parked for an operator when its lease ends"));
  act_ = nullptr;
  // The ends stay away: what had ended would else be written down late, and be done.
  EXPECT_THAT(kinds(run({"a"})), ElementsAre(Kind::retry)) << "its lease goes on";
  inbox_->lapse_leases();
  run({"a"});
  EXPECT_THAT(inbox_->dead(), SizeIs(1));
  claims_->away = false;
  run({"b"});
  EXPECT_THAT(runs_, ElementsAre("a", "b")) << "b had not begun";
  EXPECT_TRUE(done("b"));
}

TEST_F(Leased, who_is_cancelled_in_a_long_outage_gives_up_before_its_partition_is_released) {
  handler(noting());
  claims_->away = true;
  std::chrono::steady_clock::time_point cancelled;
  std::thread other([&] {
    EXPECT_TRUE(eventually([&] { return claims_->end_calls >= 6; }));
    cancelled = std::chrono::steady_clock::now();
    watch_.cancel().request_stop();
  });
  EXPECT_THAT(kinds(run({"a"})), ElementsAre(Kind::put_back));
  const auto ended = std::chrono::steady_clock::now();
  other.join();
  EXPECT_LT(ended - cancelled, detail::kGrace);
}

TEST_F(Leased, nothing_starts_that_cannot_be_recorded_as_begun) {
  handler(noting());
  claims_->begins_fail = true;
  const auto result = run({"a", "b"});
  EXPECT_EQ(result.end, detail::UnitResult::End::store_unavailable);
  EXPECT_THAT(kinds(result), ElementsAre(Kind::put_back, Kind::put_back));
  EXPECT_THAT(runs_, IsEmpty());
  claims_->begins_fail = false;
  EXPECT_THAT(kinds(run({"a", "b"})), ElementsAre(Kind::settled, Kind::settled));
}

TEST_F(Leased, a_lease_that_cannot_be_renewed_stops_its_handler_before_it_ends) {
  settings_.lease = 1s;
  handler(noting());
  claims_->renewals_fail = true;
  act_ = [&](const Message&, Context& context) {
    const auto began = std::chrono::steady_clock::now();
    EXPECT_TRUE(eventually([&] { return context.stop_token().stop_requested(); }));
    EXPECT_GT(std::chrono::steady_clock::now() - began, 300ms);
  };
  EXPECT_THAT(kinds(run({"a"})), ElementsAre(Kind::settled)) << "nobody else has it: it is written down after all";
  EXPECT_THAT(log_.str(), HasSubstr("its lease ended before PostgreSQL renewed it"));
}

TEST_F(Leased, what_is_refused_holds_up_nobody_else) {
  handler(noting() | leased());
  claims_->refused = MessageId::from("b");
  const auto result = run({"a", "b", "c"});
  EXPECT_THAT(kinds(result), ElementsAre(Kind::settled, Kind::put_back, Kind::settled));
  EXPECT_TRUE(done("a") && done("c"));
  EXPECT_FALSE(done("b"));
  EXPECT_THAT(log_.str(), HasSubstr("Handler finished, but PostgreSQL refused its result (invalid byte sequence"));
}

TEST_F(Leased, what_passes_is_no_refusal) {
  handler(noting() | leased());
  claims_->cancelled = 2;
  EXPECT_THAT(kinds(run({"a", "b"})), ElementsAre(Kind::settled, Kind::settled));
  EXPECT_TRUE(done("a") && done("b"));
  EXPECT_THAT(log_.str(),
              HasSubstr("Handler finished but its result could not be recorded; retrying: canceling statement"));
  EXPECT_THAT(log_.str(), HasSubstr("the results are recorded now"));
}

TEST_F(Leased, what_ended_while_the_store_was_away_is_settled_where_the_topic_goes_on) {
  settings_.store_down = StoreDownPolicy::run;
  handler(noting() | leased());
  act_ = [&](const Message&, Context&) { claims_->away = true; };
  EXPECT_THAT(kinds(run({"a", "b"})), ElementsAre(Kind::settled, Kind::settled));
  EXPECT_THAT(runs_, ElementsAre("a", "b"));
  EXPECT_THAT(log_.str(),
              HasSubstr("Handler finished; its result is recorded once PostgreSQL answers (store_down is run)"));
  EXPECT_FALSE(done("a") || done("b"));
  claims_->cancelled = 2;  // what passes is no refusal here either
  claims_->away = false;
  EXPECT_TRUE(eventually([&] { return done("a") && done("b"); }, 10s));
}

TEST_F(Leased, what_failed_when_the_store_went_away_is_tried_again_without_it) {
  settings_.store_down = StoreDownPolicy::run;
  handler(noting() | leased());
  act_ = [&](const Message&, Context&) {
    if (!claims_->away.exchange(true)) throw std::runtime_error("not yet");
  };
  EXPECT_THAT(kinds(run({"a"})), ElementsAre(Kind::retry));
  const auto again = messages_of({"a"}, 2);
  watch_.reset();
  EXPECT_THAT(kinds(runner_->run_unclaimed(again, place_, watch_)), ElementsAre(Kind::settled));
  EXPECT_THAT(runs_, ElementsAre("a", "a"));
  claims_->away = false;
}

TEST_F(Leased, what_is_published_exists_nowhere_else_and_so_waits_for_the_store) {
  settings_.store_down = StoreDownPolicy::run;
  handler(noting() | leased());
  act_ = [&](const Message& message, Context& context) {
    OwnedMessage made;
    made.topic = "replies";
    made.payload = message.text();
    context.publish(made);
    claims_->away = true;
  };
  std::thread back([&] {
    EXPECT_TRUE(eventually([&] { return claims_->end_calls > 12; }, 30s)) << "longer than for what may be late";
    claims_->away = false;
  });
  EXPECT_THAT(kinds(run({"a"})), ElementsAre(Kind::settled));
  back.join();
  EXPECT_TRUE(done("a"));
  EXPECT_THAT(inbox_->published(), SizeIs(1));
}

TEST_F(Leased, a_caller_that_waits_is_told_that_the_store_is_away) {
  caller_waits_ = true;
  handler(noting() | leased());
  claims_->away = true;
  const auto result = run({"a"});
  EXPECT_EQ(result.end, detail::UnitResult::End::store_unavailable);
  EXPECT_THAT(kinds(result), ElementsAre(Kind::put_back));
  EXPECT_EQ(runner_->services().claims->pending().holds(handler_, MessageId::from("a")), true);
  claims_->away = false;
  EXPECT_TRUE(eventually([&] { return done("a"); }, 10s)) << "written down late, so that it does not run again";
}

}  // namespace
}  // namespace turnstile::test
