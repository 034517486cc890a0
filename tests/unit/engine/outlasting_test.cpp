// A handler that outlasts its partition: its process lives, and says so to the partition's next owners.

#include "tests/support/forwarding_broker.hpp"
#include "tests/support/forwarding_store.hpp"
#include "tests/unit/engine/engine_fixture.hpp"

namespace turnstile::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Records the calls that give what outlasts its owner some time. No end is recorded in the store.
class CountedTrials final : public ports::Trials {
 public:
  explicit CountedTrials(std::shared_ptr<ports::Trials> inner) : inner_(std::move(inner)) {}
  std::vector<ports::Suspect> take_over(const Fence& fence, Offset first) override {
    return inner_->take_over(fence, first);
  }
  void begin(const Fence& fence, std::span<const Offset> offsets, bool alone) override {
    inner_->begin(fence, offsets, alone);
  }
  void end(const Fence&, std::span<const Offset>, std::span<const Offset>) override {}  // as if the store was away
  void release(std::span<const Release> partitions) override {
    const bool ends = std::ranges::any_of(partitions, [](const Release& one) { return !one.runs_for; });
    if (failures > 0 && failures-- > 0) throw StoreUnavailable("a test says so");
    if (ends && failures_of_ends > 0 && failures_of_ends-- > 0) throw StoreUnavailable("a test says so");
    // Shorter, so that a renewal at the last moment comes too late.
    std::vector<Release> shorter(partitions.begin(), partitions.end());
    for (Release& one : shorter) {
      if (one.runs_for) one.runs_for = *one.runs_for * 2 / 3;
    }
    inner_->release(shorter);
    for (const Release& one : partitions) {
      const std::lock_guard lock(mutex_);
      if (one.runs_for) given_.push_back(*one.runs_for);
      else ended_.insert(one.fence.slot);
    }
  }
  std::size_t ended() {
    const std::lock_guard lock(mutex_);
    return ended_.size();
  }
  std::atomic<int> failures{0};          ///< of the next calls
  std::atomic<int> failures_of_ends{0};  ///< of the next calls for a handler that has returned
  std::vector<std::chrono::milliseconds> given() {
    const std::lock_guard lock(mutex_);
    return given_;
  }

 private:
  std::shared_ptr<ports::Trials> inner_;
  std::mutex mutex_;
  std::vector<std::chrono::milliseconds> given_;
  std::set<std::int64_t> ended_;  ///< slots
};

class CountedStore final : public ForwardingStore {
 public:
  explicit CountedStore(const std::shared_ptr<ports::Store>& inner)
      : ForwardingStore(inner), counted(std::make_shared<CountedTrials>(inner->trials())) {}
  std::shared_ptr<ports::Trials> trials() override { return counted; }
  const std::shared_ptr<CountedTrials> counted;
};

class Outlasting : public EngineTest {
 protected:
  std::vector<ports::Suspect> suspects() {
    const TopicPartition at{"t", 0};
    return inbox->trials()->take_over(inbox->claim_partitions(config().group(), {&at, 1}, 1s).front().fence, 0);
  }
};

/// Another member of the group, which makes the first one give its partitions up.
class Other final : ports::AssignmentListener {
 public:
  explicit Other(ports::Broker& broker) : consumer_(broker.open_consumer()) { consumer_->subscribe({"t"}, *this); }
  std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition>) override { return {}; }
  void on_revoked(std::span<const TopicPartition>, bool) override {}

 private:
  std::unique_ptr<ports::BrokerConsumer> consumer_;
};

/// Every rebalance would otherwise count as a death of a process that lives. The message would become a dead letter
/// while a service that its handler waits for is away.
TEST_F(Outlasting, does_not_count_as_a_death_as_long_as_its_process_lives) {
  topic("t", 1);
  topic("t.dlq", 1);
  publish("t", 1);
  {
    const TopicPartition at{"t", 0};
    const Offset first = 0;
    const Fence died = inbox->claim_partitions(config().group(), {&at, 1}, 1s).front().fence;
    inbox->trials()->begin(died, {&first, 1}, true);
  }
  Config c = config();
  c.consumer.drain_timeout = 10ms;
  const auto store = std::make_shared<CountedStore>(inbox);
  Door entered, open;
  Consumer app(c, Backends{broker, store});
  app.topic("t", Pipeline([&](const Message&, Context&) {
                   entered.open();
                   open.wait(60s);
                 }) | handler_timeout(6s) |
                     limit(8) | dead_letter())
      .handle_signals(false)
      .logger(logger);
  std::thread thread([&] { app.run(); });
  EXPECT_TRUE(entered.wait());
  Other other(*broker);
  EXPECT_TRUE(eventually([&] { return log_text().find("revoked 1 partitions") != std::string::npos; }));
  // A third of the time passes between two of them. Another owner looks all the while.
  bool lives = true;
  EXPECT_TRUE(eventually([&] {
    lives = lives && suspects() == std::vector{ports::Suspect{0, 1}};
    return !lives || store->counted->given().size() > 4;
  }));
  EXPECT_TRUE(lives) << "only the process that died before counts";
  EXPECT_THAT(store->counted->given(), ::testing::Each(6s)) << "handler_timeout";
  store->counted->failures = 2;
  open.open();
  EXPECT_TRUE(eventually([&] { return store->counted->ended() == 1; })) << "the handler has returned";
  EXPECT_EQ(store->counted->failures, 0);
  EXPECT_THAT(log_text(), HasSubstr("may count as if this process had died: a test says so"));
  EXPECT_THAT(suspects(), ElementsAre(ports::Suspect{0, 1})) << "though its end was not recorded";
  app.stop();
  thread.join();
  EXPECT_THAT(log_text(), HasSubstr("handler_not_stopping"));
}

/// A renewal of the other one that succeeds must not make the first one forgotten.
TEST_F(Outlasting, is_ended_in_the_store_though_the_first_attempts_fail_and_another_goes_on) {
  topic("t", 2);
  Config c = config();
  c.consumer.drain_timeout = 10ms;
  const auto store = std::make_shared<CountedStore>(inbox);
  std::atomic<int> entered{0};
  std::array<Door, 2> open;
  Consumer app(c, Backends{broker, store});
  app.topic("t", Pipeline([&](const Message& message, Context&) {
                   ++entered;
                   open.at(static_cast<std::size_t>(message.partition())).wait(60s);
                 }) | handler_timeout(1'050ms))  // renewed at each fourth look; what fails is tried at each second one
      .handle_signals(false)
      .logger(logger);
  std::thread thread([&] { app.run(); });
  publish("t", 7);
  EXPECT_TRUE(eventually([&] { return entered == 2; }));
  Other other(*broker);
  EXPECT_TRUE(eventually([&] { return store->counted->given().size() > 4; })) << "both are renewed";
  store->counted->failures_of_ends = 4;
  // Between two renewals of both, so that the next ones of the other come alone.
  const std::size_t given = store->counted->given().size();
  EXPECT_TRUE(eventually([&] { return store->counted->given().size() > given; }));
  open[0].open();
  EXPECT_TRUE(eventually([&] { return store->counted->failures_of_ends == 0; }));
  EXPECT_TRUE(eventually([&] { return store->counted->ended() == 1; })) << "the handler that has returned";
  open[1].open();
  app.stop();
  thread.join();
}

/// What is true when a member commits its offsets and waits for the answer.
struct AtLastCommit {
  std::shared_ptr<CountedTrials> trials;
  std::atomic<int> ended{-1};
};

class LastCommit final : public ForwardingConsumer {
 public:
  LastCommit(std::unique_ptr<ports::BrokerConsumer> inner, AtLastCommit& seen)
      : ForwardingConsumer(std::move(inner)), seen_(seen) {}
  void commit(std::span<const ports::OffsetCommit> offsets, bool wait) override {
    if (wait && seen_.ended < 0) seen_.ended = static_cast<int>(seen_.trials->ended());
    ForwardingConsumer::commit(offsets, wait);
  }

 private:
  AtLastCommit& seen_;
};

/// While Kafka does not answer, the time that the last calls to the store have may pass.
TEST_F(Outlasting, is_ended_in_the_store_at_the_shutdown_before_kafka_is_asked) {
  topic("t", 2);
  Config c = config();
  c.consumer.drain_timeout = 10ms;
  c.consumer.commit_interval = 1h;
  const auto store = std::make_shared<CountedStore>(inbox);
  const auto members = std::make_shared<ForwardingBroker<LastCommit, AtLastCommit>>(broker);
  members->state.trials = store->counted;
  Door entered, open;
  std::atomic<int> done{0};
  Consumer app(c, Backends{members, store});
  app.topic("t", Pipeline([&](const Message& message, Context&) {
              if (message.partition() == 1) return void(++done);
              entered.open();
              open.wait(60s);
            }))
      .handle_signals(false)
      .logger(logger);
  std::thread thread([&] { app.run(); });
  publish("t", 7);
  EXPECT_TRUE(entered.wait() && eventually([&] { return done > 0; }));
  app.stop();
  EXPECT_TRUE(eventually([&] { return members->state.ended >= 0; }));
  EXPECT_EQ(members->state.ended, 1) << "the handler that does not return";
  open.open();
  thread.join();
}

}  // namespace
}  // namespace turnstile::test
