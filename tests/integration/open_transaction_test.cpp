// Records that consumers cannot read, because a producer's transaction is open, on Apache Kafka.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "tests/support/running.hpp"
#include "tests/support/transactional_producer.hpp"
#include "tests/support/world.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class OpenTransactionInKafka : public ::testing::Test {
 protected:
  void SetUp() override {
    TURNSTILE_NEEDS_SERVERS();
    world = std::make_unique<World>(1);
    producer = std::make_unique<TransactionalProducer>(world->topic());
  }
  std::unique_ptr<Running> consumer(Config config, Pipeline (*over)(Pipeline)) {
    return std::make_unique<Running>(std::move(config), [this, over](Consumer& app) {
      app.topic(world->topic(), over(Pipeline([this](const Message& message, Context&) {
                  const std::lock_guard lock(mutex_);
                  ran_.insert(message.offset());
                })));
    });
  }
  [[nodiscard]] std::multiset<Offset> ran() {
    const std::lock_guard lock(mutex_);
    return ran_;
  }

  std::unique_ptr<World> world;
  std::unique_ptr<TransactionalProducer> producer;

 private:
  std::mutex mutex_;
  std::multiset<Offset> ran_;
};

TEST_F(OpenTransactionInKafka, is_between_the_end_that_can_be_read_and_the_end_of_the_log) {
  producer->write(3);  // and a marker
  producer->begin();
  producer->send(5);
  world->publish("behind", "behind");
  const TopicPartition at{world->topic(), 0};
  const auto reader = world->broker().open_consumer();
  EXPECT_THAT(reader->bounds({&at, 1}, 10s), ElementsAre(std::pair(Offset{0}, Offset{4})));
  EXPECT_THAT(reader->log_ends({&at, 1}, 10s), ElementsAre(std::optional<Offset>(10)));
  producer->abort();
  const Offset all = 11;
  EXPECT_TRUE(eventually([&] { return reader->bounds({&at, 1}, 10s).front() == std::pair(Offset{0}, all); }));
  EXPECT_THAT(reader->log_ends({&at, 1}, 10s), ElementsAre(std::optional(all)));
}

/// The offsets cannot tell the records of a log that was cut off from those that were read, so effects would be made twice.
TEST_F(OpenTransactionInKafka, that_was_read_uncommitted_is_no_sign_that_records_were_cut_off) {
  const auto by_offset = [](Pipeline p) { return std::move(p) | turnstile::by_offset(); };
  producer->write(10);
  producer->begin();
  producer->send(1);  // at offset 11
  for (int i = 0; i < 20; ++i) world->publish("m" + std::to_string(i), "behind");
  Config config = world->config();
  config.kafka["isolation.level"] = "read_uncommitted";
  {
    const auto app = consumer(config, by_offset);
    ASSERT_TRUE(eventually([&] { return ran().size() == 31 && world->committed(0) == 32; })) << app->log_text();
  }
  config.kafka.erase("isolation.level");
  config.consumer.stall_after = 1s;
  world->publish("last", "last");
  const auto app = consumer(config, by_offset);
  EXPECT_TRUE(app->says("transaction that began at offset 11 is open")) << app->log_text();
  EXPECT_TRUE(app->says("hides 1 offset:")) << app->log_text();
  producer->commit();
  EXPECT_TRUE(eventually([&] { return ran().contains(32); })) << app->log_text();
  EXPECT_THAT(app->log_text(), Not(HasSubstr("cut off")));
  EXPECT_EQ(ran().size(), 32U) << app->log_text();
}

TEST_F(OpenTransactionInKafka, that_hangs_is_reported_by_the_consumer) {
  world->publish("first", "first");
  Config config = world->config();
  config.consumer.stall_after = 1s;
  const auto app = consumer(config, [](Pipeline p) { return std::move(p) | transactional(); });
  ASSERT_TRUE(eventually([&] { return world->committed(0) == 1; })) << app->log_text();
  producer->begin();
  producer->send(1);
  world->publish("behind", "behind");
  EXPECT_TRUE(app->says("a producer's transaction that began at offset 1 is open")) << app->log_text();
  EXPECT_TRUE(app->says("--partition 0 --start-offset 1")) << app->log_text();
  producer->commit();
  EXPECT_TRUE(eventually([&] { return world->committed(0) == 4; })) << app->log_text();
}

}  // namespace
}  // namespace turnstile::test
