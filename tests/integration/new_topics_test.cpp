// Records to topics that the broker creates when a client names them (hazard: new-topics).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/own_kafka.hpp"
#include "tests/support/world.hpp"
#include "turnstile/kafka/broker.hpp"

namespace turnstile::test {
namespace {

using ::testing::Each;
using ::testing::Field;
using Fate = ports::BrokerSender::Fate;

std::vector<OwnedMessage> to_topics(int count, const std::string& prefix) {
  std::vector<OwnedMessage> records;
  for (int i = 0; i < 3 * count; ++i) {
    OwnedMessage record;
    record.topic = prefix + std::to_string(i % count);
    record.partition = -1;
    record.key = "k";
    record.payload = std::to_string(i);
    records.push_back(std::move(record));
  }
  return records;
}

/// Asked about one by one, so many take the broker longer to create than librdkafka waits for them.
TEST(NewTopics, many_at_once_are_created_and_none_of_their_records_is_refused) {
  if (kafka_servers().empty()) GTEST_SKIP() << "no Apache Kafka: TURNSTILE_TEST_KAFKA is not set";
  const OwnKafka kafka(true);
  const auto broker = kafka::open_broker({{"bootstrap.servers", kafka.servers()}}, nullptr);
  const auto sender = broker->open_sender();
  for (const int count : {1, 4, 5, 250}) {
    const auto records = to_topics(count, "new-" + std::to_string(count) + "-");
    EXPECT_THAT(sender->send(records), Each(Field(&Fate::kind, Fate::Kind::sent))) << count;
  }
}

}  // namespace
}  // namespace turnstile::test
