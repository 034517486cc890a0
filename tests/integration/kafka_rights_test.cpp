// Kafka refuses some rights: what a program without them learns, and what the commands check nevertheless.

#include <gmock/gmock.h>
#include <librdkafka/rdkafka.h>

#include <array>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/integration/cli_kafka.hpp"
#include "tests/support/cli.hpp"
#include "tests/support/eventually.hpp"
#include "turnstile/error.hpp"
#include "turnstile/kafka/broker.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

/// While this object lives, the user of the tests may not do this with the topic. The broker learns of it a moment later.
/// To a topic with a rule, Kafka applies only its rules, so another one allows the rest.
class Denied {
 public:
  Denied(const std::string& brokers, std::string topic, rd_kafka_AclOperation_t operation)
      : handle_(open(brokers)), topic_(std::move(topic)) {
    std::array rules{rule(RD_KAFKA_ACL_OPERATION_ALL, RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW),
                     rule(operation, RD_KAFKA_ACL_PERMISSION_TYPE_DENY)};
    rd_kafka_CreateAcls(handle_.get(), rules.data(), rules.size(), nullptr, queue_.get());
    wait(RD_KAFKA_EVENT_CREATEACLS_RESULT);
    rd_kafka_AclBinding_destroy_array(rules.data(), rules.size());
  }
  ~Denied() {
    auto* all =
        rd_kafka_AclBindingFilter_new(RD_KAFKA_RESOURCE_TOPIC, topic_.c_str(), RD_KAFKA_RESOURCE_PATTERN_LITERAL, kUser,
                                      "*", RD_KAFKA_ACL_OPERATION_ANY, RD_KAFKA_ACL_PERMISSION_TYPE_ANY, nullptr, 0);
    rd_kafka_DeleteAcls(handle_.get(), &all, 1, nullptr, queue_.get());
    wait(RD_KAFKA_EVENT_DELETEACLS_RESULT);
    rd_kafka_AclBinding_destroy(all);
  }
  Denied(const Denied&) = delete;
  Denied& operator=(const Denied&) = delete;

 private:
  static constexpr const char* kUser = "User:ANONYMOUS";
  struct Destroy {
    void operator()(rd_kafka_t* handle) const { rd_kafka_destroy(handle); }
    void operator()(rd_kafka_queue_t* queue) const { rd_kafka_queue_destroy(queue); }
    void operator()(rd_kafka_event_t* event) const { rd_kafka_event_destroy(event); }
  };
  using Handle = std::unique_ptr<rd_kafka_t, Destroy>;

  static Handle open(const std::string& brokers) {
    std::array<char, 256> why{};
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "bootstrap.servers", brokers.c_str(), why.data(), why.size());
    Handle handle(rd_kafka_new(RD_KAFKA_PRODUCER, conf, why.data(), why.size()));
    if (!handle) throw std::runtime_error(why.data());
    return handle;
  }
  rd_kafka_AclBinding_t* rule(rd_kafka_AclOperation_t operation, rd_kafka_AclPermissionType_t permission) const {
    return rd_kafka_AclBinding_new(RD_KAFKA_RESOURCE_TOPIC, topic_.c_str(), RD_KAFKA_RESOURCE_PATTERN_LITERAL, kUser,
                                   "*", operation, permission, nullptr, 0);
  }
  void wait(rd_kafka_event_type_t kind) {
    const std::unique_ptr<rd_kafka_event_t, Destroy> event(rd_kafka_queue_poll(queue_.get(), 30'000));
    EXPECT_TRUE(event != nullptr && rd_kafka_event_type(event.get()) == kind);
    if (event) {
      EXPECT_EQ(rd_kafka_event_error(event.get()), RD_KAFKA_RESP_ERR_NO_ERROR);
    }
  }

  Handle handle_;
  std::unique_ptr<rd_kafka_queue_t, Destroy> queue_{rd_kafka_queue_new(handle_.get())};
  const std::string topic_;
};

class KafkaRights : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kafka_.brokers().empty()) GTEST_SKIP() << "TURNSTILE_TEST_KAFKA is not set; run ./dev test";
    broker_ = kafka::open_broker({{"bootstrap.servers", kafka_.brokers()}}, nullptr);
  }
  bool may_describe(const std::string& topic) {
    try {
      broker_->describe(topic, kServerPatience);
      return true;
    } catch (const BrokerError& error) {
      EXPECT_EQ(error.code(), Code::kafka_permission_denied) << error.what();
      return false;
    }
  }
  std::string doctor(const std::string& topics) {
    Cli cli;
    cli.folder().write("turnstile.toml", "[kafka]\n\"bootstrap.servers\" = \"" + kafka_.brokers() + "\"\n" + topics);
    return cli.run("doctor").out;
  }

  TestKafka kafka_;
  std::shared_ptr<ports::Broker> broker_;
};

TEST_F(KafkaRights, without_describe_configs_the_retention_is_unknown_and_the_reason_is_told) {
  const auto topic = kafka_.create_topic(1, {{"retention.ms", "86400000"}});
  const auto info = [&] { return broker_->describe(topic, kServerPatience).value_or(ports::TopicInfo{}); };
  {
    const Denied denied(kafka_.brokers(), topic, RD_KAFKA_ACL_OPERATION_DESCRIBE_CONFIGS);
    ASSERT_TRUE(eventually([&] { return !info().why_unknown.empty(); }));
    EXPECT_EQ(info().retention, std::nullopt);
    EXPECT_EQ(info().partitions, 1);
    EXPECT_THAT(info().why_unknown,
                AllOf(HasSubstr("this user may not read the topic's settings. Grant it DescribeConfigs"),
                      HasSubstr("--operation DescribeConfigs --topic " + topic)));
    EXPECT_THAT(doctor("[topics." + topic + "]\nkeep_ids_for = \"1h\"\n"),
                ContainsRegex("warning +retention of " + topic + " .*Grant it DescribeConfigs"));
  }
  EXPECT_TRUE(eventually([&] { return info().retention == 24h && info().why_unknown.empty(); }));
}

TEST_F(KafkaRights, doctor_needs_no_right_on_topics_that_are_not_its_own) {
  const auto topic = kafka_.create_topic(1);
  const Denied denied(kafka_.brokers(), "__consumer_offsets", RD_KAFKA_ACL_OPERATION_DESCRIBE);
  ASSERT_TRUE(eventually([&] { return !may_describe("__consumer_offsets"); }));
  EXPECT_THAT(doctor("[topics." + topic + "]\n"), AllOf(ContainsRegex("ok +broker +" + kafka_.brokers() + " answers"),
                                                        ContainsRegex("ok +topic " + topic)));
}

TEST_F(KafkaRights, doctor_checks_the_other_topics_if_one_is_refused) {
  const auto refused = kafka_.create_topic(1), other = kafka_.create_topic(1);
  const Denied denied(kafka_.brokers(), refused, RD_KAFKA_ACL_OPERATION_DESCRIBE);
  ASSERT_TRUE(eventually([&] { return !may_describe(refused); }));
  EXPECT_THAT(doctor("[topics." + refused + "]\n[topics." + other + "]\n"),
              AllOf(ContainsRegex("PROBLEM +topic " + refused + " .*Topic authorization failed"),
                    ContainsRegex("ok +topic " + other)));
}

}  // namespace
}  // namespace turnstile::test
