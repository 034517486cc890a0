// A handler that does not return must not stop the others: a suspect, which runs alone, does not wait for it.

#include <array>

#include "delivery/recorded_trials.hpp"
#include "tests/support/forwarding_store.hpp"
#include "tests/unit/engine/engine_fixture.hpp"

namespace turnstile::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Records how trials begin. Ends can fail.
class WatchedTrials final : public ports::Trials {
 public:
  explicit WatchedTrials(std::shared_ptr<ports::Trials> inner) : inner_(std::move(inner)) {}
  std::vector<ports::Suspect> take_over(const Fence& fence, Offset first) override {
    return inner_->take_over(fence, first);
  }
  void begin(const Fence& fence, std::span<const Offset> offsets, bool alone) override {
    inner_->begin(fence, offsets, alone);
    if (fails_after_begin.exchange(false)) throw StoreUnavailable("a test says so, after the record");
    const std::lock_guard lock(mutex_);
    for (const Offset offset : offsets) begun_.emplace_back(offset, alone);
  }
  void end(const Fence& fence, std::span<const Offset> offsets, std::span<const Offset> settled) override {
    if (fails) {
      ++failures;
      throw StoreUnavailable("a test says so");
    }
    inner_->end(fence, offsets, settled);
    ++ended;
  }
  void release(std::span<const Release> partitions) override { inner_->release(partitions); }
  std::vector<std::pair<Offset, bool>> begun() {
    const std::lock_guard lock(mutex_);
    return begun_;
  }
  std::atomic<bool> fails{false}, fails_after_begin{false};
  std::atomic<int> ended{0}, failures{0};  ///< calls

 private:
  std::shared_ptr<ports::Trials> inner_;
  std::mutex mutex_;
  std::vector<std::pair<Offset, bool>> begun_;
};

class WatchedStore final : public ForwardingStore {
 public:
  explicit WatchedStore(const std::shared_ptr<ports::Store>& inner)
      : ForwardingStore(inner), watched(std::make_shared<WatchedTrials>(inner->trials())) {}
  std::shared_ptr<ports::Trials> trials() override { return watched; }
  const std::shared_ptr<WatchedTrials> watched;
};

class LeftBehind : public EngineTest {
 protected:
  LeftBehind() {
    topic("hangs", 1);
    topic("t", 1);
  }
  Config config() {
    Config c = EngineTest::config();
    c.consumer.workers = 4;
    c.consumer.drain_timeout = 10ms;
    c.consumer.stall_after = 100ms;
    return c;
  }
  Fence claim() {
    const TopicPartition at{"t", 0};
    return inbox->claim_partitions(config().group(), {&at, 1}, 1s).front().fence;
  }
  /// An owner that dies while these messages run.
  void die_of(const std::vector<Offset>& offsets, bool alone) {
    const Fence fence = claim();
    inbox->trials()->take_over(fence, 0);
    inbox->trials()->begin(fence, offsets, alone);
  }
  /// A handler that opens `entered`, and ignores its stop_token.
  static auto hangs(Door& entered, Door& until) {
    return [&](const Message&) {
      entered.open();
      until.wait(60s);
    };
  }
  /// What the next owner finds if this process is killed now.
  std::vector<ports::Suspect> suspects() { return inbox->trials()->take_over(claim(), 0); }

  std::shared_ptr<WatchedStore> store = std::make_shared<WatchedStore>(inbox);
};

/// The consumer would start nothing at all until the handler returns.
TEST_F(LeftBehind, does_not_keep_a_suspect_from_starting_beside_it) {
  die_of({0}, true);
  Door hung, open, ran, finish;
  std::atomic<int> after{0};
  Consumer app(config(), Backends{broker, store});
  app.topic("hangs", Pipeline(hangs(hung, open)) | handler_timeout(300ms))
      .topic("t", Pipeline([&](const Message& message) {
                    if (message.offset() > 0) return void(++after);
                    ran.open();
                    finish.wait(60s);
                  }) | limit(8))
      .handle_signals(false)
      .logger(logger);
  publish("hangs", 1);
  std::thread thread = start(app);
  EXPECT_TRUE(hung.wait());
  publish("t", 3);
  EXPECT_TRUE(eventually([&] { return log_text().find("this message has not started") != std::string::npos; }));
  EXPECT_THAT(log_text(), HasSubstr("it ran when a process died, and must run alone. It waits for the handler of "
                                    "hangs[0]@0, which has been running for"));
  EXPECT_TRUE(ran.wait()) << log_text();
  EXPECT_THAT(store->watched->begun(), ElementsAre(std::pair<Offset, bool>{0, false}));
  EXPECT_EQ(suspects(), (std::vector{ports::Suspect{0, 1}})) << "if the process dies now, that counts for nobody";
  EXPECT_EQ(after, 0) << "nothing starts beside a suspect";
  finish.open();
  EXPECT_TRUE(eventually([&] { return after == 2; })) << log_text();
  open.open();
  app.stop();
  thread.join();
}

/// It still has time, but its partition is gone.
TEST_F(LeftBehind, does_not_keep_a_suspect_from_starting_after_a_rebalance) {
  topic("other", 1);
  Door hung, open, ran;
  std::atomic<bool> is_first{true};
  Consumer app(config(), Backends{broker, store});
  app.topic("hangs", Pipeline([&](const Message&) {
                       if (!is_first.exchange(false)) return;
                       hung.open();
                       open.wait(60s);
                     }) | handler_timeout(60s))
      .topic("t", Pipeline([&](const Message&) { ran.open(); }) | limit(8))
      .handle_signals(false)
      .logger(logger);
  publish("hangs", 1);
  std::thread thread = start(app);
  EXPECT_TRUE(hung.wait());
  struct Nothing final : ports::AssignmentListener {
    std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition>) override { return {}; }
    void on_revoked(std::span<const TopicPartition>, bool) override {}
  } nothing;
  const auto other = broker->open_consumer();
  other->subscribe({"other"}, nothing);
  EXPECT_TRUE(eventually([&] { return log_text().find("revoked 2 partitions") != std::string::npos; }));
  die_of({0}, true);
  publish("t", 1);
  EXPECT_TRUE(eventually([&] { return other->poll(1ms), ran.wait(1ms); })) << log_text();
  EXPECT_THAT(store->watched->begun(), ::testing::Each(::testing::Field(&std::pair<Offset, bool>::second, false)));
  open.open();
  app.stop();
  thread.join();
}

/// A handler that has still time may end, and then the death of the process counts.
TEST_F(LeftBehind, is_only_what_should_have_ended) {
  die_of({0}, true);
  Door hung, open, ran;
  Consumer app(config(), Backends{broker, store});
  app.topic("hangs", Pipeline(hangs(hung, open)) | handler_timeout(60s))
      .topic("t", Pipeline([&](const Message&) { ran.open(); }) | limit(8))
      .handle_signals(false)
      .logger(logger);
  publish("hangs", 1);
  std::thread thread = start(app);
  EXPECT_TRUE(hung.wait());
  publish("t", 1);
  EXPECT_TRUE(eventually([&] { return log_text().find("this message has not started") != std::string::npos; }));
  EXPECT_FALSE(ran.wait(100ms)) << "it waits for the other handler";
  open.open();
  EXPECT_TRUE(ran.wait());
  EXPECT_THAT(store->watched->begun(), ElementsAre(std::pair<Offset, bool>{0, true}));
  app.stop();
  thread.join();
}

/// Two handlers that hang, one of a suspect that did not run alone.
TEST_F(LeftBehind, is_a_suspect_too_that_did_not_run_alone) {
  die_of({0}, true);
  Door hung, open, ran;
  std::atomic<int> after{0};
  Consumer app(config(), Backends{broker, store});
  app.topic("hangs", Pipeline([&](const Message& message) {
                       if (message.offset() > 0) return void(++after);
                       hangs(hung, open)(message);
                     }) | handler_timeout(300ms) |
                         limit(8) | ordered_by(Order::none))
      .topic("t", Pipeline(hangs(ran, open)) | handler_timeout(300ms) | limit(8))
      .handle_signals(false)
      .logger(logger);
  publish("hangs", 1);
  std::thread thread = start(app);
  EXPECT_TRUE(hung.wait());
  publish("t", 1);
  EXPECT_TRUE(ran.wait()) << log_text();
  publish("hangs", 2);
  EXPECT_TRUE(eventually([&] { return after == 2; })) << log_text();
  EXPECT_THAT(suspects(), ElementsAre(ports::Suspect{0, 1}));
  open.open();
  app.stop();
  thread.join();
}

/// It stays alone: otherwise a message that kills its process later than handler_timeout would never be found.
TEST_F(LeftBehind, is_no_suspect_that_runs_alone) {
  die_of({0}, true);
  Door ran, open;
  std::atomic<int> other{0};
  Consumer app(config(), Backends{broker, store});
  app.topic("hangs", Pipeline([&](const Message&) { ++other; }))
      .topic("t", Pipeline(hangs(ran, open)) | handler_timeout(1ms) | limit(8))
      .handle_signals(false)
      .logger(logger);
  publish("t", 1);
  std::thread thread = start(app);
  EXPECT_TRUE(ran.wait());
  publish("hangs", 1);
  EXPECT_TRUE(eventually([&] {
    return log_text().find(
               "nothing else starts before it has ended. It is the handler of t[0]@0, which has been "
               "running for") != std::string::npos;
  })) << log_text();
  // Each message wakes a worker, after handler_timeout and the grace too.
  EXPECT_FALSE(eventually([&] { return publish("hangs", 1), other > 0; }, 2500ms));
  EXPECT_THAT(suspects(), ElementsAre(ports::Suspect{0, 2})) << "if the process dies now, that counts";
  open.open();
  EXPECT_TRUE(eventually([&] { return other > 0; }));
  app.stop();
  thread.join();
}

TEST_F(LeftBehind, does_not_keep_a_suspect_of_a_poll_loop_from_starting_beside_it) {
  die_of({0}, true);
  Door hung, open, ran, finish;
  std::atomic<int> after{0};
  PollLoop loop(config(), Backends{broker, store});
  loop.topic("hangs", Pipeline(hangs(hung, open)) | handler_timeout(300ms))
      .topic("t", Pipeline([&](const Message& message) {
                    if (message.offset() > 0) return void(++after);
                    ran.open();
                    finish.wait(60s);
                  }) | limit(8))
      .logger(logger);
  publish("hangs", 1);
  publish("t", 2);
  const auto handle = [&](const std::string& of, std::size_t which) {
    return std::thread([this, &loop, of, which] { loop.handle(Message(broker->records(of).at(which))); });
  };
  std::thread first = handle("hangs", 0);
  EXPECT_TRUE(hung.wait());
  std::thread suspect = handle("t", 0);
  EXPECT_TRUE(ran.wait());
  EXPECT_THAT(store->watched->begun(), ElementsAre(std::pair<Offset, bool>{0, false}));
  std::thread next = handle("t", 1);
  EXPECT_FALSE(eventually([&] { return after > 0; }, 100ms)) << "nothing starts beside a suspect";
  finish.open();
  for (std::thread* thread : {&suspect, &next}) thread->join();
  EXPECT_EQ(after, 1);
  open.open();
  first.join();
}

// --- ends that could not be recorded -----------------------------------------------------------------------------------

using UnrecordedEnd = LeftBehind;

/// Otherwise a later death of the process, which does nothing any more, would count for this message.
TEST_F(UnrecordedEnd, is_recorded_when_the_store_answers_again) {
  die_of({0}, true);
  store->watched->fails = true;
  std::atomic<int> done{0};
  Consumer app(config(), Backends{broker, store});
  app.topic("t", Pipeline([&](const Message&) { ++done; }) | limit(8)).handle_signals(false).logger(logger);
  publish("t", 1);
  std::thread thread = start(app);
  EXPECT_TRUE(eventually([&] { return store->watched->failures > 2; })) << "it is tried again";
  store->watched->fails = false;
  EXPECT_TRUE(eventually([&] { return suspects().empty(); })) << "it ended, and is settled";
  EXPECT_EQ(done, 1);
  app.stop();
  thread.join();
}

/// What the message did may be lost with the store's last commits, so it stays a suspect.
TEST_F(UnrecordedEnd, does_not_count_after_a_restart_of_the_store_either) {
  die_of({0}, false);
  Door ran, open;
  Consumer app(config(), Backends{broker, store});
  app.topic("t", Pipeline(hangs(ran, open)) | limit(8)).handle_signals(false).logger(logger);
  publish("t", 1);
  std::thread thread = start(app);
  EXPECT_TRUE(ran.wait());
  inbox->fail_over(inbox->replica());
  store->watched->fails = true;
  open.open();
  EXPECT_TRUE(eventually([&] { return store->watched->failures > 0; }));
  store->watched->fails = false;
  EXPECT_TRUE(eventually([&] { return store->watched->ended > 0; }));
  EXPECT_THAT(suspects(), ElementsAre(ports::Suspect{0, 0}));
  app.stop();
  thread.join();
}

/// The record may have been written though the call failed.
TEST_F(UnrecordedEnd, is_that_of_a_begin_whose_result_is_unknown_too) {
  topic("t2", 1);
  die_of({0}, true);
  store->watched->fails_after_begin = true;
  store->watched->fails = true;
  Door ran, open;
  Consumer app(config(), Backends{broker, store});
  app.topic("t", Pipeline([&](const Message&, Context&) {
                   ran.open();
                   open.wait(60s);
                 }) | transactional())
      .handle_signals(false)
      .logger(logger);
  publish("t", 1);
  std::thread thread = start(app);
  EXPECT_TRUE(eventually([&] { return store->watched->failures > 0; })) << "it ends what it may have begun";
  store->watched->fails = false;
  open.open();
  EXPECT_TRUE(eventually([&] { return broker->committed({"t", 0}) == 1; })) << log_text();
  EXPECT_TRUE(eventually([&] { return suspects().empty(); }));
  app.stop();
  thread.join();
}

TEST_F(UnrecordedEnd, of_a_poll_loop_is_recorded_with_the_next_message) {
  die_of({0}, true);
  store->watched->fails = true;
  PollLoop loop(config(), Backends{broker, store});
  loop.topic("t", Pipeline([&](const Message&) {}) | limit(8)).topic("hangs", [](const Message&) {}).logger(logger);
  publish("t", 1);
  publish("hangs", 1);
  loop.handle(Message(broker->records("t").at(0)));
  store->watched->fails = false;
  loop.handle(Message(broker->records("hangs").at(0)));
  EXPECT_THAT(suspects(), ::testing::IsEmpty());
}

TEST_F(UnrecordedEnd, is_recorded_at_the_shutdown) {
  die_of({0}, true);
  store->watched->fails = true;
  Consumer app(config(), Backends{broker, store});
  app.topic("t", Pipeline([&](const Message&) {}) | limit(8)).handle_signals(false).logger(logger);
  publish("t", 1);
  std::thread thread = start(app);
  EXPECT_TRUE(eventually([&] { return store->watched->failures > 0; }));
  store->watched->fails = false;
  app.stop();
  thread.join();
  EXPECT_THAT(suspects(), ::testing::IsEmpty());
}

/// Its store answers slowly.
class SlowTrials final : public ports::Trials {
 public:
  std::vector<ports::Suspect> take_over(const Fence&, Offset) override { return {}; }
  void begin(const Fence&, std::span<const Offset>, bool) override {}
  void end(const Fence&, std::span<const Offset>, std::span<const Offset>) override {
    if (fails) throw StoreUnavailable("a test says so");
    waits.open();
    EXPECT_TRUE(go_on.wait(30s));
    ++ended;
  }
  void release(std::span<const Release>) override {}
  std::atomic<bool> fails{true};
  std::atomic<int> ended{0};
  Door waits, go_on;
};

TEST(RecordedTrials, retry_while_another_thread_waits_for_the_store) {
  const auto trials = std::make_shared<SlowTrials>();
  detail::RecordedTrials recorded(trials);
  const Fence fence{.slot = 1, .epoch = Epoch{1}};
  const std::array<Offset, 1> offsets{7};
  recorded.begin(fence, offsets, true);
  EXPECT_THROW(recorded.end(fence, offsets, offsets), StoreUnavailable);
  EXPECT_TRUE(recorded.keeps_some());
  trials->fails = false;
  std::thread slow([&] { EXPECT_FALSE(recorded.retry()); });
  EXPECT_TRUE(trials->waits.wait(30s));
  EXPECT_TRUE(recorded.retry()) << "it returns at once, and the end is still kept";
  trials->go_on.open();
  slow.join();
  EXPECT_EQ(trials->ended, 1);
  EXPECT_FALSE(recorded.keeps_some());
}

TEST(RecordedTrials, rest_after_a_failure) {
  const auto trials = std::make_shared<SlowTrials>();
  detail::RecordedTrials recorded(trials);
  const Fence fence{.slot = 1, .epoch = Epoch{1}};
  const std::array<Offset, 1> offsets{7};
  recorded.begin(fence, offsets, true);
  EXPECT_THROW(recorded.end(fence, offsets, offsets), StoreUnavailable);
  EXPECT_TRUE(recorded.retry());  // fails
  trials->fails = false;
  trials->go_on.open();
  const auto failed_at = std::chrono::steady_clock::now();
  while (recorded.retry()) std::this_thread::yield();
  EXPECT_GE(std::chrono::steady_clock::now() - failed_at, 100ms);
  EXPECT_EQ(trials->ended, 1);
}

}  // namespace
}  // namespace turnstile::test
