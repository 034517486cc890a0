// A consumer that closes while the broker is unavailable must not wait forever: SIGTERM must end the process.

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/eventually.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/kafka/mock.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;

class Assignment final : public ports::AssignmentListener {
 public:
  std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition> partitions) override {
    held += partitions.size();
    return {};
  }
  void on_revoked(std::span<const TopicPartition> partitions, bool) override { held -= partitions.size(); }
  std::size_t held = 0;
};

TEST(KafkaClose, ends_although_the_broker_is_away) {
  auto mock = std::make_unique<kafka::MockBroker>();
  mock->create_topic("t", 2);
  auto settings = mock->settings();
  settings["group.id"] = "g";
  const auto broker = kafka::open_broker(settings, nullptr);
  Assignment assignment;
  const auto consumer = broker->open_consumer();
  consumer->subscribe({"t"}, assignment);
  ASSERT_TRUE(test::eventually([&] {
    consumer->poll(50ms);
    return assignment.held == 2;
  }));
  mock->down();
  const auto begin = std::chrono::steady_clock::now();
  consumer->close();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  EXPECT_EQ(assignment.held, 0U) << "the listener was not told";
}

}  // namespace
}  // namespace turnstile
