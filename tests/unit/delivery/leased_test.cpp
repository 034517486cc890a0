// Mode leased, on the memory twin: claimed, run outside of any transaction, written down.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <thread>

#include "delivery/topic_runner.hpp"
#include "message/message_id.hpp"
#include "engine/end_bound.hpp"
#include "tests/support/captured_log.hpp"
#include "tests/support/eventually.hpp"
#include "turnstile/decorators.hpp"
#include "turnstile/error.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/testing/inbox.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using turnstile::testing::MemoryBroker;
using turnstile::testing::MemoryInbox;
using Kind = detail::Verdict::Kind;

/// Loses answers, and stays away, as told. What is lost has been done.
class LossyClaims final : public ports::Claims {
 public:
  explicit LossyClaims(std::shared_ptr<ports::Claims> inner) : inner_(std::move(inner)) {}
  std::vector<ports::Claim> claim(const ports::ClaimScope& scope, std::span<const ports::InboxEntry> entries) override {
    auto claims = inner_->claim(scope, entries);
    if (lose_claims > 0 && lose_claims-- > 0) throw StoreUnavailable("the answer was lost");
    return claims;
  }
  std::vector<bool> begin(HandlerId handler, const MessageId& owner, std::span<const ports::HeldClaim> held) override {
    begun += static_cast<int>(held.size());
    if (begins_fail) throw StoreUnavailable("away");
    return inner_->begin(handler, owner, held);
  }
  std::vector<bool> end(HandlerId handler, const MessageId& owner, std::span<const ports::ClaimEnd> ends) override {
    ++end_calls;
    if (away) throw StoreUnavailable("away");
    if (cancelled > 0 && cancelled-- > 0) throw SqlError("canceling statement due to statement timeout", "57014");
    for (const ports::ClaimEnd& end : ends) {
      if (end.claim.id == refused) throw SqlError("invalid byte sequence for encoding \"UTF8\": 0x00", "22021");
    }
    auto held = inner_->end(handler, owner, ends);
    if (lose_ends > 0 && lose_ends-- > 0) throw StoreUnavailable("the answer was lost");
    return held;
  }
  std::vector<bool> renew(HandlerId handler, const MessageId& owner, std::chrono::milliseconds lease,
                          std::span<const ports::HeldClaim> held) override {
    ++renewals;
    while (renewals_hang) std::this_thread::yield();
    if (renewals_fail) throw StoreUnavailable("away");
    return inner_->renew(handler, owner, lease, held);
  }

  std::atomic<int> lose_claims = 0, lose_ends = 0, end_calls = 0, renewals = 0, cancelled = 0;
  std::atomic<int> begun = 0;  ///< messages of which begin() was told
  std::atomic<bool> begins_fail = false;
  std::atomic<bool> away = false, renewals_fail = false, renewals_hang = false;
  MessageId refused;  ///< whose end is not taken

 private:
  std::shared_ptr<ports::Claims> inner_;
};

class Leased : public ::testing::Test {
 protected:
  Leased() {
    for (const char* topic : {"t", "t.dlq", "replies"}) broker_.create_topic(topic, 1);
    const TopicPartition at{"t", 0};
    const auto claim = inbox_->claim_partitions("g", {&at, 1}, 1s).front();
    place_ = {at, claim.fence, claim.incarnation};
    settings_.mode = Mode::leased;
    settings_.dead_letter = "";
    settings_.retry = RetryPolicy{3, 1ms, 4ms};
  }

  void handler(Pipeline pipeline) {
    auto logger = std::make_shared<spdlog::logger>("t", log_.sink());
    detail::TopicRunner::Services services;
    services.store = inbox_;
    services.dead_letters = std::make_shared<detail::DeadLetters>(broker_.open_producer(), inbox_);
    services.run_log = std::make_shared<detail::RunLog>(logger, "test");
    services.claims = std::make_shared<detail::LeaseRenewer>(claims_, services.run_log);
    services.caller_raises = caller_waits_;
    handler_ = inbox_->register_handler("t");
    runner_ = std::make_unique<detail::TopicRunner>(detail::plan_topic("t", settings_), std::move(pipeline), handler_,
                                                    std::move(services));
  }
  /// Notes who was run, and makes an effect elsewhere.
  auto noting() {
    return [this](const Message& message, Context& context) {
      runs_.emplace_back(message.text());
      fences_.push_back(context.claim_fence());
      keys_.push_back(*context.idempotency_key());
      if (act_) act_(message, context);
    };
  }
  /// A unit of messages with these ids; the payload is the id.
  detail::UnitResult run(const std::vector<std::string>& ids, int attempt = 1) {
    const auto works = messages_of(ids, attempt);
    const auto session = inbox_->open_session();
    watch_.reset();
    return runner_->run(works, place_, session.get(), watch_);
  }
  std::vector<detail::Work> messages_of(const std::vector<std::string>& ids, int attempt = 1) {
    messages_.clear();
    owned_.clear();
    for (const std::string& id : ids) {
      OwnedMessage message;
      message.topic = "t";
      message.offset = next_offset_++;
      message.key = "k" + id;
      message.payload = id;
      message.headers = {{"message-id", id}};
      owned_.push_back(std::move(message));
    }
    for (const auto& message : owned_) messages_.emplace_back(message);
    std::vector<detail::Work> works;
    for (std::size_t i = 0; i < ids.size(); ++i) works.push_back({&messages_[i], i, attempt});
    return works;
  }
  static std::vector<Kind> kinds(const detail::UnitResult& result) {
    std::vector<Kind> all;
    for (const detail::Verdict& verdict : result.verdicts) all.push_back(verdict.kind);
    return all;
  }
  bool done(const std::string& id) { return inbox_->contains(handler_, MessageId::from(id)); }
  /// Somebody else claims it, and vanishes if the lease is short.
  void claimed_elsewhere(const std::string& id, std::chrono::milliseconds lease = 60s,
                         std::optional<Fence> fence = {}) {
    const ports::InboxEntry entry{.id = MessageId::from(id), .offset = next_offset_};
    const ports::ClaimScope scope{
        .handler = handler_, .fence = fence, .owner = MessageId::from("other"), .lease = lease, .rerun_unknown = true};
    ASSERT_EQ(inbox_->claims()->claim(scope, {&entry, 1}).front().state, ports::Claim::State::claimed);
  }

  std::shared_ptr<MemoryInbox> inbox_ = std::make_shared<MemoryInbox>();
  std::shared_ptr<LossyClaims> claims_ = std::make_shared<LossyClaims>(inbox_->claims());
  MemoryBroker broker_;
  detail::OwnedPartition place_;
  TopicSettings settings_;
  test::CapturedLog log_;
  HandlerId handler_;
  std::unique_ptr<detail::TopicRunner> runner_;
  detail::RunState watch_;
  bool caller_waits_ = false;  ///< as on a PollLoop
  std::function<void(const Message&, Context&)> act_;
  std::vector<std::string> runs_;
  std::vector<std::int64_t> fences_;
  std::vector<MessageId> keys_;
  Offset next_offset_ = 0;
  std::vector<OwnedMessage> owned_;
  std::vector<Message> messages_;
};

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

/// The pauses between its tries have grown to a second.
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

TEST_F(Leased, a_fenced_partition_claims_nothing) {
  handler(noting());
  inbox_->claim_partitions("g", {&place_.at, 1}, 1s);
  EXPECT_EQ(run({"a"}).end, detail::UnitResult::End::fenced);
  EXPECT_THAT(runs_, IsEmpty());
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
