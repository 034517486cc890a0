// How claims wait for the last owner, and what the log says of sessions that they end.

#include "engine/claim_wait.hpp"

#include "tests/support/forwarding_store.hpp"
#include "tests/unit/engine/engine_fixture.hpp"

namespace turnstile::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

/// Ends a session in each claim. The first `busy` claims wait in vain.
class EndsSessions final : public ForwardingStore {
 public:
  EndsSessions(std::shared_ptr<ports::Store> inner, int busy) : ForwardingStore(std::move(inner)), busy_(busy) {}
  std::vector<ports::PartitionClaim> claim_partitions(const std::string& group,
                                                      std::span<const TopicPartition> partitions,
                                                      const ports::ClaimWait& wait) override {
    {
      const std::lock_guard lock(mutex_);
      stuck_after_.push_back(wait.stuck_after.value_or(0ms));
    }
    if (wait.on_ended) wait.on_ended("pid 4711 (turnstile as app, active for 36 s)");
    if (--busy_ >= 0) throw StoreBusy("another session holds the lock");
    return ForwardingStore::claim_partitions(group, partitions, wait);
  }
  std::vector<std::chrono::milliseconds> stuck_after() {
    const std::lock_guard lock(mutex_);
    return stuck_after_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::chrono::milliseconds> stuck_after_;
  std::atomic<int> busy_;
};

class ClaimWait : public EngineTest {
 protected:
  ClaimWait() { topic("t", 1); }
  static Pipeline nothing() {
    return Pipeline([](const Message&, Context&) {}) | transactional();
  }
  Config with_timeout(std::chrono::milliseconds handler_timeout) {
    Config c = config();
    c.postgres.emplace().lock_timeout = 3s;
    c.topics["t"].handler_timeout = handler_timeout;
    return c;
  }
  /// Runs the consumer until it has tried so many claims.
  void run(Consumer& app, EndsSessions& store, std::size_t claims) {
    app.handle_signals(false).logger(logger);
    auto thread = start(app);
    EXPECT_TRUE(eventually([&] { return store.stuck_after().size() >= claims; }));
    app.stop();
    thread.join();
  }
  void expect_told(const std::string& claimed, const std::string& after) {
    EXPECT_THAT(log_text(),
                AllOf(HasSubstr("pid 4711 (turnstile as app, active for 36 s) kept this consumer from claiming " +
                                claimed + ", and has sent no statement for longer than " + after),
                      HasSubstr("code=session_ended")));
  }
};

TEST_F(ClaimWait, ends_a_session_that_stands_still_for_longer_than_a_handler_may_run) {
  for (const int busy : {0, 1}) {  // the second time, the keeper claims
    const auto store = std::make_shared<EndsSessions>(inbox, busy);
    Consumer app(with_timeout(20s), Backends{broker, store});
    app.topic("t", nothing());
    run(app, *store, static_cast<std::size_t>(busy) + 1);
    EXPECT_THAT(store->stuck_after(), Each(23s));
  }
  expect_told("t[0]", "23000 ms");
}

/// Their handlers hold no session.
TEST_F(ClaimWait, of_modes_without_a_transaction_does_not_wait_for_handlers) {
  const auto store = std::make_shared<EndsSessions>(inbox, 0);
  Consumer app(with_timeout(12h), Backends{broker, store});
  app.topic("t", Pipeline([](const Message&, Context&) {}) | leased());
  run(app, *store, 1);
  EXPECT_THAT(store->stuck_after(), Each(33s));
}

TEST_F(ClaimWait, of_several_partitions_waits_for_the_slowest_handler) {
  topic("u", 3);
  const auto store = std::make_shared<EndsSessions>(inbox, 0);
  Config c = with_timeout(20s);
  c.topics["u"].handler_timeout = 25s;
  Consumer app(c, Backends{broker, store});
  app.topic("t", nothing()).topic("u", nothing());
  run(app, *store, 1);
  EXPECT_THAT(store->stuck_after(), Each(28s));
  expect_told("t[0] or another of 4 partitions", "28000 ms");
}

TEST_F(ClaimWait, of_a_poll_loop_is_the_same) {
  publish("t", 1);
  const auto store = std::make_shared<EndsSessions>(inbox, 0);
  PollLoop loop(with_timeout(20s), Backends{broker, store});
  loop.topic("t", nothing()).logger(logger);
  EXPECT_EQ(loop.handle(Message(broker->records("t").front())), Settled::done);
  EXPECT_THAT(store->stuck_after(), Each(23s));
  expect_told("t[0]", "23000 ms");
}

}  // namespace
}  // namespace turnstile::test
