// The token log in Kafka while its broker misbehaves.

#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>
// after rdkafka.h, which it does not include itself
#include <librdkafka/rdkafka_mock.h>

#include <array>
#include <thread>

#include "tests/support/eventually.hpp"
#include "tests/support/own_kafka.hpp"
#include "tests/support/token_topic.hpp"
#include "tests/support/world.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/kafka/limiters.hpp"
#include "turnstile/log.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::int16_t kListOffsetsApi = 2;

std::unique_ptr<ports::TokenLog> open_log(const std::string& servers) {
  return kafka::open_token_log({{"bootstrap.servers", servers}}, {.name = "tokens"}, make_logger({"off", "text"}));
}

/// Writes transactions of one record each. Kafka writes a marker behind each record.
void write_transactions(const std::string& servers, const std::string& topic, int count) {
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  std::array<char, 256> why{};
  rd_kafka_conf_set(conf, "bootstrap.servers", servers.c_str(), why.data(), why.size());
  rd_kafka_conf_set(conf, "transactional.id", "somebody", why.data(), why.size());
  const std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)> producer{
      rd_kafka_new(RD_KAFKA_PRODUCER, conf, why.data(), why.size()), &rd_kafka_destroy};
  const auto succeeded = [](rd_kafka_error_t* error) {
    const std::string text = error != nullptr ? rd_kafka_error_string(error) : "";
    if (error != nullptr) rd_kafka_error_destroy(error);
    return text;
  };
  ASSERT_EQ(succeeded(rd_kafka_init_transactions(producer.get(), 20'000)), "");
  const std::unique_ptr<rd_kafka_topic_t, decltype(&rd_kafka_topic_destroy)> handle{
      rd_kafka_topic_new(producer.get(), topic.c_str(), nullptr), &rd_kafka_topic_destroy};
  for (int i = 0; i < count; ++i) {
    ASSERT_EQ(succeeded(rd_kafka_begin_transaction(producer.get())), "");
    std::string text = "record";
    ASSERT_EQ(rd_kafka_produce(handle.get(), 0, RD_KAFKA_MSG_F_COPY, text.data(), text.size(), nullptr, 0, nullptr), 0);
    ASSERT_EQ(succeeded(rd_kafka_commit_transaction(producer.get(), 20'000)), "");
  }
}

/// Reads until there are `least` records, or until no record has come for 5 s.
std::vector<ports::TokenLog::Record> read(ports::TokenLog& log, std::size_t least) {
  std::vector<ports::TokenLog::Record> all;
  for (auto until = Clock::now() + 5s; all.size() < least && Clock::now() < until;) {
    for (auto& record : log.read(50ms)) all.push_back(std::move(record));
  }
  return all;
}

TEST(TokenLogInKafka, reads_past_the_marks_of_transactions_though_its_broker_answers_nothing) {
  if (kafka_servers().empty()) GTEST_SKIP() << "no Apache Kafka: TURNSTILE_TEST_KAFKA is not set";
  const OwnKafka kafka;
  const auto log = open_log(kafka.servers());
  log->seek(0);
  write_transactions(kafka.servers(), "tokens", 3);
  std::this_thread::sleep_for(2s);  // by then, librdkafka has fetched them
  kafka.freeze();
  const auto frozen = Clock::now();
  const auto records = read(*log, 5);
  EXPECT_LT(Clock::now() - frozen, 2s);
  ASSERT_EQ(records.size(), 5U);
  for (std::size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].position, static_cast<std::int64_t>(i));
    EXPECT_EQ(records[i].bytes, i % 2 == 0 ? "record" : "");
  }
}

TEST(TokenLogInKafka, does_not_take_deleted_records_for_marks) {
  if (kafka_servers().empty()) GTEST_SKIP() << "no Apache Kafka: TURNSTILE_TEST_KAFKA is not set";
  const OwnKafka kafka;
  const auto log = open_log(kafka.servers());
  write_transactions(kafka.servers(), "tokens", 3);
  log->trim(3);
  ASSERT_TRUE(eventually([&] { return log->begin() == 3; }));
  log->seek(0);
  EXPECT_THROW(read(*log, 1), TokenLogTrimmed);
  log->seek(3);
  EXPECT_EQ(read(*log, 2).back().position, 4);
  EXPECT_EQ(log->end(), 6);
}

TEST(TokenLogInKafka, gives_a_question_up_in_time_while_its_broker_answers_nothing) {
  if (kafka_servers().empty()) GTEST_SKIP() << "no Apache Kafka: TURNSTILE_TEST_KAFKA is not set";
  const OwnKafka kafka;
  const auto log = open_log(kafka.servers());
  EXPECT_EQ(log->begin(), 0);
  const auto consumer =
      kafka::open_broker({{"bootstrap.servers", kafka.servers()}, {"group.id", "g"}}, nullptr)->open_consumer();
  const std::vector<TopicPartition> tokens{{"tokens", 0}};
  EXPECT_EQ(consumer->bounds(tokens, 10s).front().value_or(std::pair<Offset, Offset>()).first, 0);
  kafka.freeze();
  const auto frozen = Clock::now();
  EXPECT_EQ(consumer->bounds(tokens, 1s).front(), std::nullopt);
  EXPECT_LT(Clock::now() - frozen, 5s) << "consumers and doctor ask so";
  EXPECT_THROW(static_cast<void>(log->begin()), BrokerError);
  EXPECT_LT(Clock::now() - frozen, 15s);
  kafka.thaw();
  EXPECT_EQ(log->begin(), 0);
}

/// The state just after the start of a broker.
TEST(TokenLogInKafka, asks_again_where_the_broker_does_not_lead_the_partition_yet) {
  std::array<char, 256> why{};
  const std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)> host{
      rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), why.data(), why.size()), &rd_kafka_destroy};
  const std::unique_ptr<rd_kafka_mock_cluster_t, decltype(&rd_kafka_mock_cluster_destroy)> broker{
      rd_kafka_mock_cluster_new(host.get(), 1), &rd_kafka_mock_cluster_destroy};
  ASSERT_EQ(rd_kafka_mock_topic_create(broker.get(), "tokens", 1, 1), RD_KAFKA_RESP_ERR_NO_ERROR);
  const auto log = open_log(rd_kafka_mock_cluster_bootstraps(broker.get()));
  for (const auto code : {RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART}) {
    const std::vector<rd_kafka_resp_err_t> errors(5, code);
    rd_kafka_mock_push_request_errors_array(broker.get(), kListOffsetsApi, errors.size(), errors.data());
    EXPECT_EQ(log->begin(), 0) << rd_kafka_err2name(code);
  }
  const std::vector<rd_kafka_resp_err_t> forbidden(1, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
  rd_kafka_mock_push_request_errors_array(broker.get(), kListOffsetsApi, forbidden.size(), forbidden.data());
  const auto asked = Clock::now();
  EXPECT_THROW(static_cast<void>(log->begin()), BrokerError);
  EXPECT_LT(Clock::now() - asked, 5s) << "waiting does not mend that";
}

}  // namespace
}  // namespace turnstile::test
