// Records that are dead letters already, and are read again by several workers at once.

#include "tests/support/forwarding_store.hpp"
#include "tests/unit/engine/engine_fixture.hpp"

namespace turnstile::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// The first two look-ups of a record's dead letter wait for each other.
class TwoAtOnce final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  std::set<Offset> dead_between(HandlerId handler, const Fence& fence, Offset first, Offset last,
                                std::optional<DeadReason> reason) override {
    if (first == last) {
      std::unique_lock lock(mutex_);
      ++inside_;
      changed_.notify_all();
      met_ = changed_.wait_for(lock, 20s, [this] { return inside_ >= 2; });
    }
    return ForwardingStore::dead_between(handler, fence, first, last, reason);
  }
  bool met() {
    const std::lock_guard lock(mutex_);
    return met_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;
  bool met_ = false;
};

class DeadLettersAgain : public EngineTest {};

TEST_F(DeadLettersAgain, do_not_count_for_stop_after_dead) {
  topic("t", 1);
  topic("t.dlq", 1);
  publish("t", 4);
  const TopicPartition at{"t", 0};
  Config c = config();
  c.consumer.workers = 4;
  c.topics["t"].stop_after_dead = 1;
  const auto fence = inbox->claim_partitions(c.group(), {&at, 1}, 1s).front().fence;
  for (const OwnedMessage& record : broker->records("t")) {
    inbox->record_dead({.handler = inbox->register_handler("t"),
                        .fence = fence,
                        .record = record,
                        .id = {},
                        .reason = DeadReason::failed,
                        .error = "told to fail",
                        .attempts = 1,
                        .dead_letter = {}});
  }
  const auto store = std::make_shared<TwoAtOnce>(inbox);
  Consumer app(c, Backends{broker, store});
  const auto fails = [](const Message&, Context&) { throw std::runtime_error("told to fail"); };
  app.topic("t", Pipeline(fails) | transactional() | ordered_by(Order::none) | batch(1) | dead_letter())
      .handle_signals(false)
      .logger(logger);
  auto thread = start(app);
  EXPECT_TRUE(eventually([&] { return all_committed("t", 1); })) << log_text();
  app.stop();
  thread.join();
  EXPECT_TRUE(store->met());
  EXPECT_THAT(log_text(), Not(HasSubstr("too_many_dead_in_a_row")));
  EXPECT_EQ(inbox->dead().size(), 4U);
  EXPECT_TRUE(broker->records("t.dlq").empty());
}

}  // namespace
}  // namespace turnstile::test
