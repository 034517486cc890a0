// Where partitions begin and end, while some of them have no leader that answers (hazard: silent-leader).

#include <gmock/gmock.h>
#include <librdkafka/rdkafka.h>
// after rdkafka.h, because it does not include it
#include <librdkafka/rdkafka_mock.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/support/eventually.hpp"
#include "turnstile/kafka/broker.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;

constexpr int kPartitions = 6;

/// Three brokers. Each leads two partitions of topic t: 1 those with numbers 0 and 3, and so on.
class EdgesInKafka : public ::testing::Test {
 protected:
  EdgesInKafka() {
    rd_kafka_mock_topic_create(cluster_.get(), "t", kPartitions, 1);
    for (int p = 0; p < kPartitions; ++p) {
      rd_kafka_mock_partition_set_leader(cluster_.get(), "t", p, p % 3 + 1);
      all_.push_back({"t", p});
    }
    consumer_ =
        kafka::open_broker({{"bootstrap.servers", rd_kafka_mock_cluster_bootstraps(cluster_.get())}, {"group.id", "g"}},
                           nullptr)
            ->open_consumer();
  }

  /// Which partitions the brokers told of.
  [[nodiscard]] std::vector<int> told() const {
    const auto ends = consumer_->ends(all_, 4s);
    const auto bounds = consumer_->bounds(all_, 4s);
    std::vector<int> told;
    for (int p = 0; p < kPartitions; ++p) {
      const auto place = static_cast<std::size_t>(p);
      EXPECT_EQ(ends.at(place).has_value(), bounds.at(place).has_value()) << p;
      if (ends.at(place)) told.push_back(p);
    }
    return told;
  }

  static std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)> client() {
    auto* conf = rd_kafka_conf_new();
    rd_kafka_conf_set_log_cb(conf, [](const rd_kafka_t*, int, const char*, const char*) {});
    char why[256];
    return {rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why), &rd_kafka_destroy};
  }

  std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)> client_ = client();
  std::unique_ptr<rd_kafka_mock_cluster_t, decltype(&rd_kafka_mock_cluster_destroy)> cluster_{
      rd_kafka_mock_cluster_new(client_.get(), 3), &rd_kafka_mock_cluster_destroy};
  std::vector<TopicPartition> all_;
  std::unique_ptr<ports::BrokerConsumer> consumer_;
};

TEST_F(EdgesInKafka, are_told_of_partitions_with_a_leader_while_another_has_none) {
  EXPECT_THAT(told(), ::testing::ElementsAre(0, 1, 2, 3, 4, 5));
  rd_kafka_mock_partition_set_leader(cluster_.get(), "t", 4, -1);
  const auto stale = kafka::open_broker(
      {{"bootstrap.servers", rd_kafka_mock_cluster_bootstraps(cluster_.get())}, {"group.id", "g"}}, nullptr);
  consumer_ = stale->open_consumer();  // it has not seen the leader that is gone
  EXPECT_THAT(told(), ::testing::ElementsAre(0, 1, 2, 3, 5));
  EXPECT_THAT(consumer_->why_no_end({{{"t", 4}}}, 4s),
              ::testing::ElementsAre(::testing::StartsWith("it has no leader")));
}

TEST_F(EdgesInKafka, are_told_of_partitions_whose_leaders_answer_while_another_is_down) {
  EXPECT_THAT(told(), ::testing::ElementsAre(0, 1, 2, 3, 4, 5));
  rd_kafka_mock_broker_set_down(cluster_.get(), 2);
  EXPECT_THAT(told(), ::testing::ElementsAre(0, 2, 3, 5));
  // The text has the last failure of all connections, if it is one of this broker. The client's first connection may have
  // been to it, and has another name.
  std::string why;
  EXPECT_TRUE(test::eventually([&] {
    consumer_->poll(0ms);  // it hears of the connections' failures
    why = consumer_->why_no_end({{{"t", 1}}}, 4s).front();
    return ::testing::Matches(::testing::ContainsRegex("^broker 2, which leads it, does not answer: .*/2: "))(why);
  })) << why;
  rd_kafka_mock_broker_set_up(cluster_.get(), 2);
  EXPECT_THAT(told(), ::testing::ElementsAre(0, 1, 2, 3, 4, 5));
}

}  // namespace
}  // namespace turnstile
