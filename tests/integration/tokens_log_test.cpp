// The token log in Kafka while its broker misbehaves.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>
// after rdkafka.h, which it does not include itself
#include <librdkafka/rdkafka_mock.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/sink.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "tests/support/captured_log.hpp"
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
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr std::int16_t kProduceApi = 0, kFetchApi = 1, kListOffsetsApi = 2;

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

/// Brokers refuse a record whose sender's clock is an hour ahead (message.timestamp.after.max.ms), unless they stamp it.
TEST(TokenLogInKafka, takes_records_of_a_clock_that_is_ahead) {
  if (kafka_servers().empty()) GTEST_SKIP() << "no Apache Kafka: TURNSTILE_TEST_KAFKA is not set";
  const std::string topic = "tokens-ahead-" + std::to_string(::getpid());
  const auto log = kafka::open_token_log({{"bootstrap.servers", kafka_servers()}}, {.name = topic}, nullptr);
  log->seek(0);
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  std::array<char, 256> why{};
  rd_kafka_conf_set(conf, "bootstrap.servers", kafka_servers().c_str(), why.data(), why.size());
  const std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)> producer{
      rd_kafka_new(RD_KAFKA_PRODUCER, conf, why.data(), why.size()), &rd_kafka_destroy};
  const auto ahead = std::chrono::system_clock::now() + 2h;
  std::string text = "record";
  std::array<rd_kafka_vu_t, 4> fields{};
  fields[0].vtype = RD_KAFKA_VTYPE_TOPIC;
  fields[0].u.cstr = topic.c_str();
  fields[1].vtype = RD_KAFKA_VTYPE_PARTITION;
  fields[1].u.i32 = 0;
  fields[2].vtype = RD_KAFKA_VTYPE_VALUE;
  fields[2].u.mem = {text.data(), text.size()};
  fields[3].vtype = RD_KAFKA_VTYPE_TIMESTAMP;
  fields[3].u.i64 = std::chrono::duration_cast<std::chrono::milliseconds>(ahead.time_since_epoch()).count();
  ASSERT_EQ(rd_kafka_produceva(producer.get(), fields.data(), fields.size()), nullptr);
  rd_kafka_flush(producer.get(), 10'000);
  const auto records = read(*log, 1);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records.front().bytes, "record");
}

/// librdkafka's mock of a broker, with the topic of a token log.
class MockedLog {
 public:
  MockedLog() { EXPECT_EQ(rd_kafka_mock_topic_create(broker_.get(), "tokens", 1, 1), RD_KAFKA_RESP_ERR_NO_ERROR); }
  [[nodiscard]] std::string servers() const { return rd_kafka_mock_cluster_bootstraps(broker_.get()); }
  /// The answers to the next `count` requests of this kind.
  void answer(std::int16_t api, rd_kafka_resp_err_t code, std::size_t count) const {
    const std::vector<rd_kafka_resp_err_t> errors(count, code);
    rd_kafka_mock_push_request_errors_array(broker_.get(), api, errors.size(), errors.data());
  }

 private:
  const std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)> host_{
      rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), nullptr, 0), &rd_kafka_destroy};
  const std::unique_ptr<rd_kafka_mock_cluster_t, decltype(&rd_kafka_mock_cluster_destroy)> broker_{
      rd_kafka_mock_cluster_new(host_.get(), 1), &rd_kafka_mock_cluster_destroy};
};

/// The state just after the start of a broker.
TEST(TokenLogInKafka, asks_again_where_the_broker_does_not_lead_the_partition_yet) {
  const MockedLog broker;
  const auto log = open_log(broker.servers());
  for (const auto code : {RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART}) {
    broker.answer(kListOffsetsApi, code, 5);
    EXPECT_EQ(log->begin(), 0) << rd_kafka_err2name(code);
  }
  broker.answer(kListOffsetsApi, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, 1);
  const auto asked = Clock::now();
  EXPECT_THROW(static_cast<void>(log->begin()), BrokerError);
  EXPECT_LT(Clock::now() - asked, 5s) << "waiting does not mend that";
}

TEST(TokenLogInKafka, a_member_waits_until_it_may_read_again) {
  const MockedLog broker;
  CapturedLog lines;
  const auto log = kafka::open_token_log({{"bootstrap.servers", broker.servers()}}, {.name = "tokens"},
                                         std::make_shared<spdlog::logger>("log", lines.sink()));
  broker.answer(kFetchApi, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, 2);
  log->seek(0);
  log->append("record");
  const auto records = read(*log, 1);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records.front().bytes, "record");
  EXPECT_THAT(lines.str(), ContainsRegex("Grant this user Read .*code=kafka_permission_denied"));
}

TEST(TokenLogInKafka, tells_what_a_compacted_topic_refuses) {
  const MockedLog broker;
  const auto log = open_log(broker.servers());
  log->seek(0);
  broker.answer(kProduceApi, RD_KAFKA_RESP_ERR_INVALID_RECORD, 1);
  log->append("record");
  ASSERT_TRUE(eventually([&] {
    static_cast<void>(log->read(10ms));
    return log->failed();
  }));
  EXPECT_THAT(log->why_failed(), HasSubstr("--entity-name tokens --add-config cleanup.policy=delete"));
}

/// While it is armed, it holds the thread on which a client ends. `debug = generic` makes librdkafka log that.
class HoldsEnds final : public spdlog::sinks::sink {
 public:
  ~HoldsEnds() override { release(); }
  void arm() { armed_ = true; }
  void release() {
    armed_ = false;
    armed_.notify_all();
  }
  [[nodiscard]] bool holds() const { return held_ > 0; }

  void log(const spdlog::details::log_msg& line) override {
    if (std::string_view(line.payload.data(), line.payload.size()).find("TERMINATE") == std::string_view::npos) return;
    if (!armed_) return;
    ++held_;
    armed_.wait(true);
  }
  void flush() override {}
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

 private:
  std::atomic<bool> armed_ = false;
  std::atomic<int> held_ = 0;
};

/// The thread of a member also tells handlers that their permits are lost.
TEST(TokenLogInKafka, a_new_epoch_does_not_wait_for_the_end_of_the_last_one) {
  const MockedLog broker;
  const auto holds = std::make_shared<HoldsEnds>();
  const auto logger = std::make_shared<spdlog::logger>("log", holds);
  logger->set_level(spdlog::level::debug);
  const auto log = kafka::open_token_log({{"bootstrap.servers", broker.servers()}, {"debug", "generic"}},
                                         {.name = "tokens"}, logger);
  log->seek(0);
  broker.answer(kProduceApi, RD_KAFKA_RESP_ERR_INVALID_RECORD, 1);
  holds->arm();
  log->append("lost");
  auto longest = Clock::duration::zero();
  ASSERT_TRUE(eventually([&] {
    static_cast<void>(log->read(10ms));
    const auto begin = Clock::now();
    const bool failed = log->failed();
    longest = std::max(longest, Clock::now() - begin);
    return failed;
  }));
  ASSERT_TRUE(eventually([&] { return holds->holds(); }));
  EXPECT_LT(longest, 3s);
  log->append("record");
  EXPECT_EQ(read(*log, 1).back().bytes, "record");
  holds->release();
}

TEST(TokenLogInKafka, a_command_reports_that_it_may_not_read) {
  const MockedLog broker;
  const auto log =
      kafka::find_token_log({{"bootstrap.servers", broker.servers()}}, "tokens", make_logger({"off", "text"}));
  broker.answer(kFetchApi, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, 2);
  log->seek(0);
  EXPECT_THROW(static_cast<void>(read(*log, 1)), BrokerError);
}

}  // namespace
}  // namespace turnstile::test
