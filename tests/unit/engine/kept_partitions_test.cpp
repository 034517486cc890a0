// A rebalance while the store is unavailable: what a process keeps goes on where store_down is run, and what it gains
// waits.

#include <set>

#include "tests/unit/engine/engine_fixture.hpp"

namespace turnstile::test {
namespace {

using ::testing::HasSubstr;

class KeptPartitionsTest : public EngineTest {
 protected:
  std::unique_ptr<Consumer> leased_consumer() {
    return consumer("t",
                    Pipeline([this](const Message& message, Context&) {
                      const std::lock_guard lock(mutex);
                      runs_.insert(message.partition());
                    }) | leased(5s) |
                        on_store_down(StoreDownPolicy::run),
                    config());
  }
  /// One message into each partition.
  void publish_to_all() {
    for (std::int32_t p = 0; p < kPartitions; ++p) {
      OwnedMessage message;
      message.topic = "t";
      message.partition = p;
      message.headers = {{"message-id", std::to_string(p) + " " + std::to_string(published_)}};
      broker->produce(message);
    }
    ++published_;
  }
  /// Runs of the first two partitions, and of the others.
  std::pair<std::size_t, std::size_t> runs() {
    const std::lock_guard lock(mutex);
    return {runs_.count(0) + runs_.count(1), runs_.count(2) + runs_.count(3)};
  }
  bool has_logged(const std::string& line, int times) {
    const std::string log = log_text();
    int found = 0;
    for (auto at = log.find(line); at != std::string::npos; at = log.find(line, at + 1)) ++found;
    return found >= times;
  }

  static constexpr std::int32_t kPartitions = 4;
  using Runs = std::pair<std::size_t, std::size_t>;
  std::multiset<std::int32_t> runs_;
  int published_ = 0;
};

TEST_F(KeptPartitionsTest, go_on_in_a_rebalance_without_the_store_and_gained_ones_wait) {
  topic("t", kPartitions);
  auto first = leased_consumer(), second = leased_consumer();
  auto first_thread = start(*first);
  ASSERT_TRUE(eventually([&] { return has_logged("assigned 4 partitions", 1); })) << log_text();
  auto second_thread = start(*second);
  ASSERT_TRUE(eventually([&] { return has_logged("assigned 2 partitions", 2); })) << log_text();
  publish_to_all();
  ASSERT_TRUE(eventually([&] { return runs() == Runs{2, 2} && all_committed("t", kPartitions); }));

  inbox->set_unavailable(true);
  publish_to_all();
  ASSERT_TRUE(eventually([&] { return runs() == Runs{4, 4} && all_committed("t", kPartitions); }));
  second->stop();
  second_thread.join();
  ASSERT_TRUE(eventually([&] { return has_logged("assigned 4 partitions", 2); })) << log_text();
  for (std::size_t more = 1; more <= 3; ++more) {
    publish_to_all();
    EXPECT_TRUE(eventually([&] { return runs().first == 4 + 2 * more; })) << log_text();
  }
  EXPECT_EQ(runs(), Runs(10, 4)) << "its last owner may have begun what is not recorded";
  EXPECT_THAT(log_text(), HasSubstr("stays in this process, and goes on without PostgreSQL"));

  inbox->set_unavailable(false);
  EXPECT_TRUE(eventually([&] { return runs() == Runs{10, 10} && all_committed("t", kPartitions); })) << log_text();
  const std::size_t claimed = inbox->size();
  publish_to_all();
  EXPECT_TRUE(eventually([&] { return inbox->size() == claimed + kPartitions; })) << "claimed again";
  EXPECT_EQ(runs(), Runs(12, 12));
  first->stop();
  first_thread.join();
  EXPECT_EQ(failure, "");
}

}  // namespace
}  // namespace turnstile::test
