// What a PollLoop tells the next owner of a partition while a handler of it runs on another thread.

#include <functional>
#include <future>

#include "tests/unit/engine/engine_fixture.hpp"

namespace turnstile::test {
namespace {

using ::testing::IsEmpty;

class PollLoopRelease : public EngineTest {
 protected:
  PollLoopRelease() {
    topic("t", 1);
    publish("t", 1);
  }
  ports::PartitionClaim claim() { return inbox->claim_partitions(config().group(), {&at, 1}, 1s).front(); }
  /// Revokes the partition in the handler of its message, and lets the handler return after `then`.
  void revoke_while_it_runs(const std::function<void()>& then) {
    Config c = config();
    c.topics["t"].handler_timeout = 1ms;
    std::promise<void> entered, end;
    PollLoop loop(c, Backends{broker, inbox});
    loop.logger(logger).topic("t", Pipeline([&](const Message&, Context&) {
                                entered.set_value();
                                end.get_future().wait();
                              }));
    auto handled = std::async(std::launch::async, [&] { return loop.handle(Message(broker->records("t").front())); });
    entered.get_future().wait();
    loop.revoked(at);
    then();
    end.set_value();
    EXPECT_EQ(handled.get(), Settled::done);
  }

  const TopicPartition at{"t", 0};
};

TEST_F(PollLoopRelease, proves_nothing_of_a_message_that_runs) {
  revoke_while_it_runs([&] { EXPECT_FALSE(claim().is_clean); });
}

/// It may still kill the process.
TEST_F(PollLoopRelease, leaves_a_message_that_runs_on_trial) {
  const Offset first = 0;
  inbox->trials()->begin(claim().fence, {&first, 1}, true);
  const auto suspects = [&] { return inbox->trials()->take_over(claim().fence, 0); };
  revoke_while_it_runs([&] {
    EXPECT_TRUE(eventually([&] { return suspects() == std::vector{ports::Suspect{0, 2}}; })) << "over its time";
  });
  EXPECT_THAT(suspects(), IsEmpty()) << "it has ended, and took effect";
}

/// The loop's thread requests the stop, and the callback runs there.
TEST_F(PollLoopRelease, may_come_from_a_handlers_stop_callback) {
  Config c = config();
  c.topics["t"].handler_timeout = 1ms;
  PollLoop loop(c, Backends{broker, inbox});
  std::promise<void> called;
  loop.logger(logger).topic("t", Pipeline([&](const Message&, Context& context) {
                              const std::stop_callback stopped(context.stop_token(), [&] {
                                loop.revoked(at);
                                called.set_value();
                              });
                              EXPECT_EQ(called.get_future().wait_for(20s), std::future_status::ready);
                            }));
  EXPECT_EQ(loop.handle(Message(broker->records("t").front())), Settled::done);
}

}  // namespace
}  // namespace turnstile::test
