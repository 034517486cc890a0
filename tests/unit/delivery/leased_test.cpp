// Mode leased, on the memory twin: claimed, run outside of any transaction, written down.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/delivery/leased_fixture.hpp"

namespace turnstile::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(Leased, each_runs_once_and_is_done) {
  handler(noting());
  EXPECT_THAT(kinds(run({"a", "b"})), ElementsAre(Kind::settled, Kind::settled));
  const auto again = run({"b", "c", "a"});
  EXPECT_THAT(kinds(again), ElementsAre(Kind::settled, Kind::settled, Kind::settled));
  EXPECT_EQ(again.counts.duplicates, 2);
  EXPECT_EQ(again.counts.done, 1);
  EXPECT_THAT(runs_, ElementsAre("a", "b", "c"));
  EXPECT_TRUE(done("a") && done("b") && done("c"));
  EXPECT_EQ(inbox_->commits(), 0U) << "no transaction was open while handlers ran";
  EXPECT_NE(keys_[0], keys_[1]);
  EXPECT_NE(keys_[0], MessageId::from("a")) << "another handler of the same message must not have the same key";
}

TEST_F(Leased, what_fails_runs_again_under_a_higher_fence_and_the_same_key) {
  act_ = [](const Message& message, Context& context) {
    if (message.text() == "b" && context.attempt() < 3) throw std::runtime_error("refused");
  };
  handler(noting());
  const auto first = run({"a", "b", "c"});
  EXPECT_THAT(kinds(first), ElementsAre(Kind::settled, Kind::retry, Kind::put_back)) << "in the order of the partition";
  EXPECT_EQ(first.verdicts[1].attempt, 2);
  EXPECT_TRUE(done("a"));
  EXPECT_FALSE(done("b") || done("c"));
  EXPECT_THAT(kinds(run({"b"}, 2)), ElementsAre(Kind::retry));
  EXPECT_THAT(kinds(run({"b", "c"}, 3)), ElementsAre(Kind::settled, Kind::settled));
  EXPECT_THAT(runs_, ElementsAre("a", "b", "b", "b", "c"));
  EXPECT_THAT(fences_, ElementsAre(1, 1, 2, 3, 1));
  EXPECT_EQ(keys_[1], keys_[3]);
}

TEST_F(Leased, what_fails_for_good_is_a_dead_letter_and_can_be_brought_back) {
  act_ = [&](const Message&, Context&) {
    if (runs_.size() == 1) throw std::runtime_error("refused");
  };
  handler(noting());
  EXPECT_THAT(kinds(run({"a"}, 3)), ElementsAre(Kind::settled));
  ASSERT_THAT(inbox_->dead(), SizeIs(1));
  EXPECT_EQ(inbox_->dead()[0].reason, DeadReason::failed);
  EXPECT_FALSE(done("a"));
  EXPECT_THAT(kinds(run({"a"})), ElementsAre(Kind::settled)) << "replayed";
  EXPECT_TRUE(done("a"));
}

TEST_F(Leased, what_is_unknown_is_parked_with_what_to_do) {
  handler(noting());
  claimed_elsewhere("a");
  inbox_->lapse_leases();
  EXPECT_THAT(kinds(run({"a", "b"})), ElementsAre(Kind::settled, Kind::settled));
  EXPECT_THAT(runs_, ElementsAre("b"));
  ASSERT_THAT(inbox_->dead(), SizeIs(1));
  EXPECT_EQ(inbox_->dead()[0].reason, DeadReason::unknown);
  EXPECT_THAT(inbox_->dead()[0].error,
              HasSubstr("turnstile inbox unpark " + MessageId::from("a").text() + " --handler t --done"));
  EXPECT_THAT(kinds(run({"a"})), ElementsAre(Kind::settled));
  EXPECT_THAT(runs_, ElementsAre("b")) << "delivered again, it is still parked";
}

TEST_F(Leased, what_is_unknown_runs_again_where_that_is_the_policy) {
  settings_.unknown = UnknownPolicy::rerun;
  handler(noting());
  claimed_elsewhere("a");
  inbox_->lapse_leases();
  EXPECT_THAT(kinds(run({"a"})), ElementsAre(Kind::settled));
  EXPECT_THAT(fences_, ElementsAre(2));
}

TEST_F(Leased, while_it_runs_elsewhere_its_duplicate_waits) {
  handler(noting());
  claimed_elsewhere("a");
  const auto result = run({"a", "b"}, 2);
  EXPECT_THAT(kinds(result), ElementsAre(Kind::retry, Kind::put_back));
  EXPECT_EQ(result.verdicts[0].attempt, 2) << "waiting is no attempt";
  EXPECT_GT(result.verdicts[0].delay, 0ms);
  EXPECT_LE(result.verdicts[0].delay, 1s);
  EXPECT_THAT(runs_, IsEmpty());
}

TEST_F(Leased, while_it_runs_elsewhere_its_duplicate_is_skipped_or_fails_where_that_is_the_policy) {
  settings_.while_running = RunningPolicy::skip;
  handler(noting());
  claimed_elsewhere("a");
  EXPECT_THAT(kinds(run({"a"})), ElementsAre(Kind::settled));
  settings_.while_running = RunningPolicy::retry;
  handler(noting());
  const auto result = run({"a"}, 2);
  EXPECT_THAT(kinds(result), ElementsAre(Kind::retry));
  EXPECT_EQ(result.verdicts[0].attempt, 3);
  EXPECT_THAT(kinds(run({"a"}, 3)), ElementsAre(Kind::settled));
  EXPECT_THAT(inbox_->dead(), SizeIs(1));
  EXPECT_THAT(runs_, IsEmpty());
}

/// Its last owner lost the partition while it ran, or died: it may yet fail, or never end.
TEST_F(Leased, a_record_that_still_runs_under_its_last_owner_is_no_duplicate_of_itself) {
  for (const RunningPolicy policy : {RunningPolicy::skip, RunningPolicy::retry}) {
    settings_.while_running = policy;
    handler(noting());
    const std::string id = policy == RunningPolicy::skip ? "a" : "b";
    claimed_elsewhere(id, 60s, place_.fence);
    const auto result = run({id}, 2);
    EXPECT_THAT(kinds(result), ElementsAre(Kind::retry));
    EXPECT_EQ(result.verdicts[0].attempt, 2) << "waiting is no attempt";
    inbox_->lapse_leases();
    EXPECT_THAT(kinds(run({id}, 2)), ElementsAre(Kind::settled));
    EXPECT_EQ(inbox_->dead().back().reason, DeadReason::unknown);
  }
  EXPECT_THAT(runs_, IsEmpty());
}

TEST_F(Leased, equal_ids_in_one_unit_run_once) {
  handler(noting());
  const auto result = run({"a", "a", "b"});
  EXPECT_THAT(kinds(result), ElementsAre(Kind::settled, Kind::settled, Kind::settled));
  EXPECT_EQ(result.counts.duplicates, 1);
  EXPECT_THAT(runs_, ElementsAre("a", "b"));
}

TEST_F(Leased, equal_ids_in_one_unit_are_no_duplicates_of_one_that_failed) {
  settings_.order = Order::none;
  handler(noting());
  act_ = [](const Message&, Context& context) {
    if (context.attempt() < 9) throw std::runtime_error("no");
  };
  EXPECT_THAT(kinds(run({"a", "a"})), ElementsAre(Kind::retry, Kind::retry));
  EXPECT_THAT(kinds(run({"a", "a"}, 3)), ElementsAre(Kind::settled, Kind::retry))
      << "a dead letter has not taken effect";
  EXPECT_EQ(run({"a"}, 9).counts.done, 1);
}

TEST_F(Leased, there_is_no_transaction) {
  act_ = [](const Message&, Context& context) { context.tx().exec("SELECT 1"); };
  handler(noting());
  EXPECT_THAT(kinds(run({"a"})), ElementsAre(Kind::retry));
  EXPECT_THAT(log_.str(), HasSubstr("in mode leased a handler runs outside a transaction"));
}

TEST_F(Leased, replies_and_messages_go_out_with_the_end) {
  settings_.reply_topics = "replies";
  settings_.duplicates = DuplicatePolicy::replay;
  act_ = [&](const Message& message, Context& context) {
    OwnedMessage made;
    made.topic = "orders";
    made.payload = "made of " + std::string(message.text());
    context.publish(made);
    context.reply("re " + std::string(message.text()));
    EXPECT_THROW(context.reply("again"), std::logic_error);
    EXPECT_THAT(inbox_->published(), IsEmpty()) << "not before it is done";
    if (runs_.size() == 1) throw std::runtime_error("refused");
  };
  handler(noting());
  run({"a"});
  EXPECT_THAT(inbox_->published(), IsEmpty());
  run({"a"}, 2);
  EXPECT_EQ(inbox_->response(handler_, MessageId::from("a")), "re a");
  EXPECT_THAT(inbox_->published(), SizeIs(2));
  run({"a"});
  const auto published = inbox_->published();
  ASSERT_THAT(published, SizeIs(3)) << "the duplicate is answered";
  EXPECT_EQ(published[2].topic, "replies");
  EXPECT_EQ(published[2].payload, "re a");
  EXPECT_THAT(runs_, SizeIs(2));
}

TEST_F(Leased, a_handler_of_spans_is_called_once_and_who_fails_in_it_is_found) {
  std::vector<std::vector<std::string>> calls;
  settings_.order = Order::none;
  handler([&](std::span<const Message> messages, Context& context) {
    auto& call = calls.emplace_back();
    for (const Message& message : messages) call.emplace_back(message.text());
    for (const Message& message : messages) {
      if (message.text() == "c") throw std::runtime_error("refused");
      context.reply(message, "re " + std::string(message.text()));
    }
  });
  EXPECT_THAT(kinds(run({"a", "b", "c", "d"})), ElementsAre(Kind::settled, Kind::settled, Kind::retry, Kind::settled));
  EXPECT_THAT(calls, ElementsAre(ElementsAre("a", "b", "c", "d"), ElementsAre("a", "b"), ElementsAre("c", "d"),
                                 ElementsAre("c"), ElementsAre("d")));
  EXPECT_EQ(inbox_->response(handler_, MessageId::from("d")), "re d");
}

/// The pauses between its tries have grown to a second.
TEST_F(Leased, what_was_not_run_is_given_back) {
  handler(noting());
  act_ = [&](const Message&, Context&) { watch_.cancel().request_stop(); };
  EXPECT_THAT(kinds(run({"a", "b"})), ElementsAre(Kind::settled, Kind::put_back));
  act_ = nullptr;
  EXPECT_THAT(kinds(run({"b"})), ElementsAre(Kind::settled));
  EXPECT_THAT(fences_, ElementsAre(1, 1));
}

/// Were the process to die now, nobody would know of these alone what became of them.
TEST_F(Leased, each_is_recorded_as_begun_before_its_handler_starts) {
  std::vector<int> begun;
  act_ = [&](const Message&, Context&) { begun.push_back(claims_->begun); };
  handler(noting());
  run({"a", "b", "c"});
  EXPECT_THAT(begun, ElementsAre(1, 2, 3));
  run({"d"});
  EXPECT_EQ(claims_->begun, 3) << "the claim of one says it";
}

TEST_F(Leased, a_lease_is_renewed_while_the_handler_runs) {
  settings_.lease = 1s;
  handler(noting());
  act_ = [&](const Message&, Context& context) {
    EXPECT_TRUE(eventually([&] { return claims_->renewals >= 2; }));
    EXPECT_FALSE(context.stop_token().stop_requested());
  };
  EXPECT_THAT(kinds(run({"a"})), ElementsAre(Kind::settled));
}

TEST_F(Leased, a_lost_claim_stops_its_handler_and_writes_nothing) {
  settings_.lease = 1s;
  handler(noting());
  act_ = [&](const Message&, Context& context) {
    inbox_->lapse_leases();
    claimed_elsewhere("a");
    EXPECT_TRUE(eventually([&] { return context.stop_token().stop_requested(); }));
  };
  const auto result = run({"a", "b"});
  EXPECT_THAT(kinds(result), ElementsAre(Kind::put_back, Kind::put_back));
  EXPECT_FALSE(done("a"));
  EXPECT_THAT(runs_, ElementsAre("a"));
  EXPECT_THAT(log_.str(), HasSubstr("The claim of a running message was lost, and its handler is asked to stop"));
  EXPECT_THAT(log_.str(), HasSubstr("Handler finished, but its claim was lost meanwhile"));
}

TEST_F(Leased, a_fenced_partition_claims_nothing) {
  handler(noting());
  inbox_->claim_partitions("g", {&place_.at, 1}, 1s);
  EXPECT_EQ(run({"a"}).end, detail::UnitResult::End::fenced);
  EXPECT_THAT(runs_, IsEmpty());
}

/// As after a long stop of the process: nobody has been told yet that the lease is over, and others may have what was not begun.
TEST_F(Leased, who_wakes_past_its_lease_starts_nothing_more) {
  settings_.lease = 100ms;
  handler(noting() | leased());
  act_ = [&](const Message&, Context&) {
    claims_->renewals_hang = true;
    const auto woken = std::chrono::steady_clock::now() + settings_.lease.value();
    while (std::chrono::steady_clock::now() < woken) std::this_thread::yield();
  };
  EXPECT_THAT(kinds(run({"a", "b"})), ElementsAre(Kind::settled, Kind::put_back));
  EXPECT_THAT(runs_, ElementsAre("a"));
  claims_->renewals_hang = false;
}

}  // namespace
}  // namespace turnstile::test
