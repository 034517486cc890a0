// The contract of the inbox without Kafka (turnstile/inbox.hpp), for every store.

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <latch>

#include "inbox_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "turnstile/error.hpp"
#include "turnstile/inbox.hpp"

namespace turnstile {
void PrintTo(Once::Kind kind, std::ostream* out) {
  *out << std::array{"ran", "repeated", "mismatch", "running"}.at(static_cast<std::size_t>(kind));
}
}  // namespace turnstile

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using enum Once::Kind;

class OnceContract : public InboxContract {
 protected:
  void SetUp() override {
    InboxContract::SetUp();
    if (world_) inbox_.emplace(std::shared_ptr<ports::Store>(&store(), [](ports::Store*) {}));
  }
  Inbox& inbox() { return *inbox_; }
  /// An effect with this name, which replies with `response`.
  static Inbox::Effect effect(const std::string& name, const std::string& response) {
    return [=](Context& ctx) {
      ctx.tx().exec(InboxFixture::kEffect, name);
      ctx.reply(response);
    };
  }
  static void nothing(Context&) { ADD_FAILURE() << "was run"; }

  std::optional<Inbox> inbox_;
};

INSTANTIATE_TEST_SUITE_P(Once, OnceContract, all_inbox_kinds(), kind_name);

TEST_P(OnceContract, runs_once_and_answers_all_alike) {
  using namespace std::string_literals;
  const std::string receipt = "receipt\0 17\xff"s;
  const Once first = inbox().once("charge", "r1", effect("paid", receipt));
  EXPECT_EQ(first.kind, ran);
  EXPECT_EQ(first.response, receipt);
  for (int i = 0; i < 2; ++i) {
    const Once again = inbox().once("charge", "r1", nothing);
    EXPECT_EQ(again.kind, repeated);
    EXPECT_EQ(again.response, receipt);
  }
  EXPECT_THAT(world_->effects(), ElementsAre("paid"));
}

TEST_P(OnceContract, without_a_reply_there_is_none) {
  EXPECT_EQ(inbox().once("charge", "r1", [](Context&) {}).response, std::nullopt);
  EXPECT_EQ(inbox().once("charge", "r1", nothing).response, std::nullopt);
  EXPECT_EQ(inbox().once("charge", "r2", [](Context& ctx) { ctx.reply(""); }).response, "");
  EXPECT_EQ(inbox().once("charge", "r2", nothing).response, "");
}

TEST_P(OnceContract, two_handlers_see_the_same_id_once_each) {
  EXPECT_EQ(inbox().once("charge", "r1", effect("a", "")).kind, ran);
  EXPECT_EQ(inbox().once("notify", "r1", effect("b", "")).kind, ran);
  EXPECT_THAT(world_->effects(), ElementsAre("a", "b"));
}

TEST_P(OnceContract, a_message_of_the_main_job_and_a_call_are_one_id) {
  EXPECT_EQ(once({"r1"}), "f");
  EXPECT_EQ(inbox().once("charge", "r1", nothing).kind, repeated);
  EXPECT_EQ(inbox().once("charge", "r2", effect("r2", "")).kind, ran);
  EXPECT_EQ(once({"r2"}), "d");
}

TEST_P(OnceContract, another_body_under_the_same_id_is_told_apart) {
  const auto with = [&](std::optional<std::string_view> body, const Inbox::Effect& effect) {
    return inbox().once("charge", "r1", effect, {.body = body}).kind;
  };
  EXPECT_EQ(with("10 cents", effect("paid", "ok")), ran);
  EXPECT_EQ(with("10 cents", nothing), repeated);
  EXPECT_EQ(with("99 cents", nothing), mismatch);
  EXPECT_EQ(with(std::nullopt, nothing), repeated);
  EXPECT_EQ(inbox().once("charge", "r1", nothing, {.body = "99 cents"}).response, std::nullopt)
      << "the answer to another request";
}

TEST_P(OnceContract, what_throws_leaves_nothing) {
  const auto broken = [](Context& ctx) {
    effect("half", "ok")(ctx);
    throw std::runtime_error("the card was refused");
  };
  EXPECT_THROW(inbox().once("charge", "r1", broken), std::runtime_error);
  EXPECT_EQ(inbox().check("charge", "r1"), std::nullopt);
  EXPECT_THAT(world_->effects(), IsEmpty());
  EXPECT_EQ(inbox().once("charge", "r1", effect("whole", "ok")).kind, ran);
  EXPECT_THAT(world_->effects(), ElementsAre("whole"));
}

TEST_P(OnceContract, wrong_use_of_a_reply_leaves_nothing) {
  EXPECT_THROW(inbox().once("charge", "r1", effect("a", std::string(101, 'x')), {.max_response = 100}),
               ResponseTooLarge);
  EXPECT_EQ(inbox().once("charge", "r1", effect("b", std::string(100, 'x')), {.max_response = 100}).kind, ran);
  EXPECT_THROW(inbox().once("charge", "r2",
                            [](Context& ctx) {
                              ctx.reply("a");
                              ctx.reply("b");
                            }),
               std::logic_error);
  EXPECT_THROW(inbox().once("charge", "r2", [](Context& ctx) { ctx.publish({}); }), std::logic_error);
  EXPECT_THROW(inbox().once("charge", "r2", [](Context& ctx) { ctx.tx().exec(InboxFixture::kRefused, "x"); }),
               SqlError);
  EXPECT_EQ(inbox().check("charge", "r2"), std::nullopt);
  EXPECT_THROW(inbox().once("", "r2", nothing), Error);
}

TEST_P(OnceContract, of_many_at_once_one_runs_and_all_get_its_response) {
  constexpr int kCallers = 8, kIds = 10;
  std::latch together(kCallers);
  std::vector<std::future<std::vector<Once>>> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.push_back(std::async(std::launch::async, [&, caller] {
      together.arrive_and_wait();
      std::vector<Once> answers;
      for (int id = 0; id < kIds; ++id) {
        answers.push_back(inbox().once("charge", "r" + std::to_string(id),
                                       effect("r" + std::to_string(id), "by " + std::to_string(caller)),
                                       {.wait = 60s}));
      }
      return answers;
    }));
  }
  std::vector<std::vector<Once>> all;
  for (auto& caller : callers) all.push_back(caller.get());
  for (std::size_t id = 0; id < kIds; ++id) {
    int runs = 0;
    for (const auto& answers : all) {
      runs += answers[id].kind == ran;
      EXPECT_EQ(answers[id].response, all[0][id].response);
    }
    EXPECT_EQ(runs, 1);
  }
  EXPECT_THAT(world_->effects(), SizeIs(kIds));
}

TEST_P(OnceContract, a_rival_that_takes_too_long_is_told_apart) {
  std::latch inside(1);
  std::promise<void> go;
  auto slow = std::async(std::launch::async, [&] {
    return inbox().once("charge", "r1", [&](Context& ctx) {
      effect("slow", "done")(ctx);
      inside.count_down();
      go.get_future().wait();
    });
  });
  inside.wait();
  EXPECT_EQ(inbox().once("charge", "r1", nothing, {.wait = 50ms}).kind, running);
  EXPECT_EQ(inbox().once("charge", "r1", nothing, {.wait = 0ms}).kind, running);
  EXPECT_EQ(inbox().once("charge", "r2", effect("beside", "")).kind, ran) << "others are not held up";
  EXPECT_EQ(inbox().check("charge", "r1"), std::nullopt) << "not committed yet";
  go.set_value();
  EXPECT_EQ(slow.get().kind, ran);
  EXPECT_EQ(inbox().once("charge", "r1", nothing).response, "done");
}

TEST_P(OnceContract, an_answer_to_commit_that_is_lost_doubles_nothing) {
  for (const bool carried_out : {true, false}) {
    const std::string id = carried_out ? "carried out" : "not carried out";
    std::atomic<int> calls = 0;
    const Once done = inbox().once("charge", id, [&](Context& ctx) {
      effect(id, "ok")(ctx);
      if (++calls == 1) world_->lose_next_commit(carried_out);
    });
    EXPECT_EQ(done.response, "ok");
    EXPECT_EQ(calls, carried_out ? 1 : 2);
  }
  EXPECT_THAT(world_->effects(), ElementsAre("carried out", "not carried out"));
}

TEST_P(OnceContract, while_the_store_is_away_nothing_runs) {
  inbox().once("charge", "r1", effect("a", ""));
  world_->go_away();
  EXPECT_THROW(inbox().once("charge", "r2", nothing), StoreUnavailable);
  EXPECT_THROW(inbox().check("charge", "r1"), StoreUnavailable);
  EXPECT_THROW(inbox().record("charge", "r1"), StoreUnavailable);
  world_->come_back();
  EXPECT_EQ(inbox().once("charge", "r2", effect("b", "")).kind, ran);
  EXPECT_THAT(world_->effects(), ElementsAre("a", "b"));
}

TEST_P(OnceContract, check_and_record) {
  EXPECT_EQ(inbox().check("charge", "r1"), std::nullopt);
  EXPECT_TRUE(inbox().record("charge", "r1"));
  EXPECT_FALSE(inbox().record("charge", "r1", "too late"));
  ASSERT_TRUE(inbox().check("charge", "r1"));
  EXPECT_EQ(inbox().check("charge", "r1")->response, std::nullopt);
  const std::string large(1 << 20, 'x');
  EXPECT_TRUE(inbox().record("charge", "r2", large));
  EXPECT_EQ(inbox().check("charge", "r2")->response, large);
  EXPECT_EQ(inbox().once("charge", "r2", nothing).response, large);
}

TEST_P(OnceContract, what_is_published_goes_with_the_effect) {
  OwnedMessage message;
  message.topic = "orders";
  message.payload = "paid";
  const auto publish = [&](Context& ctx) { ctx.publish(message); };
  inbox().once("charge", "r1", publish);
  inbox().once("charge", "r1", nothing);
  EXPECT_THROW(inbox().once("charge", "r2",
                            [&](Context& ctx) {
                              publish(ctx);
                              throw std::runtime_error("no");
                            }),
               std::runtime_error);
  const auto outbox = store().outbox();
  EXPECT_THAT(outbox->waiting(outbox->keep_shards("relay", 30s), 10), SizeIs(1));
}

/// once() does not see what runs under a claim, nor what may have taken effect there.
TEST_P(OnceContract, a_handler_of_mode_leased_is_refused) {
  const auto claims = store().claims();
  const ports::InboxEntry entry{.id = MessageId::from("r1")};
  const ports::ClaimScope scope{
      .handler = store().register_handler("ship"), .fence = fence_, .owner = MessageId::from("consumer")};
  const auto claim = claims->claim(scope, {&entry, 1}).at(0);
  ASSERT_EQ(claim.state, ports::Claim::State::claimed);
  const auto session = store().open_session();
  session->begin(this->scope(fence_), {});
  EXPECT_THROW(inbox().once("ship", "r1", nothing), Error) << "it runs";
  EXPECT_THROW(inbox().once(session->transaction(), "ship", "r1", nothing), Error);
  EXPECT_THROW(inbox().record("ship", "r2"), Error) << "the handler has another mode, whatever the id";
  session->rollback();
  EXPECT_EQ(inbox().check("ship", "r1"), std::nullopt) << "looking is no run";
  EXPECT_EQ(inbox().once("charge", "r1", effect("beside", "")).kind, ran) << "another handler has claims of its own";

  const ports::ClaimEnd end{.claim = {entry.id, claim.fence}};
  EXPECT_THAT(claims->end(scope.handler, scope.owner, {&end, 1}), ElementsAre(true));
  EXPECT_EQ(inbox().once("ship", "r1", nothing).kind, repeated) << "it is done, and no claim is left";
}

// --- in the caller's transaction ---

TEST_P(OnceContract, within_a_transaction_its_owner_decides) {
  for (const bool committed : {false, true}) {
    const auto session = store().open_session();
    session->begin(scope(fence_), {});
    const auto call = [&](const Inbox::Effect& effect, std::optional<std::string_view> body = {}) {
      return inbox().once(session->transaction(), "charge", "r1", effect, {.body = body});
    };
    EXPECT_EQ(call(effect("paid", "ok"), "10").kind, ran);
    const Once again = call(nothing, "10");
    EXPECT_EQ(again.kind, repeated) << "by the same transaction";
    EXPECT_EQ(again.response, "ok");
    EXPECT_EQ(call(nothing, "99").kind, mismatch);
    EXPECT_TRUE(inbox().record(session->transaction(), "charge", "r2", "two"));
    EXPECT_FALSE(inbox().record(session->transaction(), "charge", "r2"));
    if (committed) session->commit();
    else session->rollback();
    EXPECT_EQ(inbox().check("charge", "r1").has_value(), committed);
    EXPECT_EQ(inbox().check("charge", "r2").has_value(), committed);
  }
  EXPECT_THAT(world_->effects(), ElementsAre("paid"));
  EXPECT_EQ(inbox().once("charge", "r1", nothing).response, "ok");
}

TEST_P(OnceContract, a_handlers_message_and_a_call_within_it_have_ids_of_their_own) {
  const auto session = store().open_session();
  EXPECT_EQ(admit(*session, {"m1"}), "f");
  EXPECT_FALSE(inbox().record(session->transaction(), "charge", "m1")) << "the message's own";
  EXPECT_TRUE(inbox().record(session->transaction(), "mail", "m1"));
  session->commit();
  EXPECT_TRUE(inbox().check("charge", "m1"));
  EXPECT_TRUE(inbox().check("mail", "m1"));
}

}  // namespace
}  // namespace turnstile::test
