// Messages that are older than the ids that are remembered.

#include <gtest/gtest.h>

#include "tests/support/forwarding_store.hpp"
#include "tests/unit/delivery/runner_fixture.hpp"
#include "turnstile/decorators.hpp"
#include "turnstile/error.hpp"

namespace turnstile::detail {
namespace {

using namespace test;

class Horizon : public ::testing::Test {
 protected:
  Horizon() {
    TopicSettings settings;
    settings.order = Order::none;
    world_ = std::make_unique<RunnerFixture>(settings, handler_);
  }
  /// Ids from before this second are forgotten from now on.
  void forget_before(std::int64_t second, TopicSettings settings = {}) {
    const auto store = std::make_shared<Forgetful>(world_->inbox, second);
    settings.order = Order::none;
    settings.mode = Mode::transactional;
    settings.dead_letter = "";
    auto services = world_->runner->services();
    services.store = store;
    services.retention = std::make_shared<HandlerRetention>(store->retention(), world_->runner->handler(), "t",
                                                            std::optional(std::chrono::seconds(3'600)));
    const HandlerId handler = world_->runner->handler();
    world_->runner = std::make_unique<TopicRunner>(plan_topic("t", settings), handler_, handler, std::move(services));
  }
  /// One unit of messages of these seconds since 1970; their ids are their places.
  void run(const std::vector<std::int64_t>& seconds) {
    std::vector<OwnedMessage> owned;
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      OwnedMessage message;
      message.topic = "t";
      message.offset = static_cast<Offset>(i);
      message.payload = std::to_string(i);
      message.timestamp = Timestamp(std::chrono::seconds(seconds[i]));
      message.headers = {{"message-id", std::to_string(i)}};
      owned.push_back(std::move(message));
    }
    std::vector<Message> messages(owned.begin(), owned.end());
    std::vector<Work> works;
    for (std::size_t i = 0; i < messages.size(); ++i) works.push_back({&messages[i], i, 1});
    const auto session = world_->inbox->open_session();
    RunState watch;
    const auto result = world_->runner->run(works, world_->place, session.get(), watch);
    for (const Verdict& verdict : result.verdicts) EXPECT_EQ(verdict.kind, Verdict::Kind::settled) << result.why;
  }
  std::vector<std::string> effects() {
    std::vector<std::string> effects;
    for (const auto& statement : world_->inbox->committed()) effects.push_back(statement.params.at(0).value_or(""));
    return effects;
  }
  std::vector<Offset> parked() {
    std::vector<Offset> offsets;
    for (const auto& dead : world_->inbox->dead()) {
      EXPECT_EQ(dead.reason, DeadReason::too_old);
      offsets.push_back(dead.record.offset);
    }
    return offsets;
  }

  /// Has purged what is older.
  class Forgetful final : public test::ForwardingStore {
   public:
    Forgetful(std::shared_ptr<ports::Store> inner, std::int64_t second)
        : ForwardingStore(std::move(inner)), since_(second) {}
    KeptIds keep_ids(HandlerId handler, std::optional<std::chrono::seconds> keep_for) override {
      auto kept = ForwardingStore::keep_ids(handler, keep_for);
      kept.all_since = Timestamp(std::chrono::seconds(since_));
      return kept;
    }

   private:
    const std::int64_t since_;
  };

  Pipeline handler_{[](const Message& message, Context& context) {
    context.tx().exec(kInsert, message.text());
    return Outcome::done();
  }};
  std::unique_ptr<RunnerFixture> world_;
};

TEST_F(Horizon, what_may_have_been_forgotten_is_parked_and_its_neighbours_run) {
  forget_before(1'000);
  run({1'000, 999, 5'000, 1});
  EXPECT_EQ(effects(), (std::vector<std::string>{"0", "2"}));
  EXPECT_EQ(parked(), (std::vector<Offset>{1, 3}));
}

TEST_F(Horizon, what_is_remembered_is_a_duplicate_however_old) {
  world_->inbox->insert(world_->runner->handler(), {.id = MessageId::from("1")});
  forget_before(1'000);
  run({1'000, 999});
  EXPECT_EQ(effects(), (std::vector<std::string>{"0"}));
  EXPECT_TRUE(parked().empty());
}

TEST_F(Horizon, a_message_without_a_time_runs) {
  forget_before(1'000);
  run({0});
  EXPECT_EQ(effects().size(), 1U);
}

TEST_F(Horizon, old_times_are_no_sign_where_that_is_said) {
  TopicSettings settings;
  settings.too_old = HorizonPolicy::run;
  forget_before(1'000, settings);
  run({5});
  EXPECT_EQ(effects().size(), 1U);
}

}  // namespace
}  // namespace turnstile::detail
