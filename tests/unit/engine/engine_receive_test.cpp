// Workers that take records from the broker themselves (engine/idle_workers.hpp).

#include <atomic>
#include <new>

#include "tests/support/forwarding_broker.hpp"
#include "tests/unit/engine/engine_fixture.hpp"

namespace turnstile::test {
namespace {

struct Losing {
  std::atomic<bool> armed{false}, held{false}, lost{false};
  std::atomic<int> taken_after{0};
};

/// Once it is armed, it loses the first block in an exception, and the polling thread learns of it late.
struct LosingMember final : ForwardingConsumer {
  LosingMember(std::unique_ptr<ports::BrokerConsumer> inner, Losing& s)
      : ForwardingConsumer(std::move(inner)), state(s) {}
  std::unique_ptr<ports::Block> take(const TopicPartition& from, std::size_t most) override {
    auto block = ForwardingConsumer::take(from, most);
    if (!block || !state.armed) return block;
    if (!state.lost.exchange(true)) throw std::bad_alloc();
    ++state.taken_after;
    return block;
  }
  void wait(std::chrono::milliseconds timeout) override {
    if (!state.armed) return ForwardingConsumer::wait(timeout);
    state.held = true;
    eventually([&] { return state.lost.load(); });
    eventually([&] { return state.taken_after > 0; }, 300ms);
  }
  Losing& state;
};

TEST_F(EngineTest, feeds_nothing_that_follows_a_block_that_was_lost) {
  topic("t", 1);
  const auto losing = std::make_shared<ForwardingBroker<LosingMember, Losing>>(broker);
  Consumer app(config(), Backends{losing, inbox});
  app.topic("t", kEffect | transactional()).observe(counts).handle_signals(false).logger(logger);
  auto thread = start(app);
  publish("t", 1, "before");
  EXPECT_TRUE(eventually([&] { return inbox->size() == 1; }));
  losing->state.armed = true;
  EXPECT_TRUE(eventually([&] { return losing->state.held.load(); }));
  publish("t", 1, "lost");
  EXPECT_TRUE(eventually([&] { return losing->state.lost.load(); })) << "no worker took it";
  publish("t", 1, "after");
  thread.join();
  EXPECT_EQ(failure, "std::bad_alloc");
  EXPECT_EQ(losing->state.taken_after, 0);
  EXPECT_EQ(inbox->size(), 1U);
  EXPECT_EQ(broker->committed({"t", 0}), 1);
}

}  // namespace
}  // namespace turnstile::test
