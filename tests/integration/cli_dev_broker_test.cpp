// turnstile dev-broker: another process can use what it prints.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/support/cli.hpp"
#include "turnstile/kafka/broker.hpp"

namespace turnstile::test {
namespace {

using ::testing::HasSubstr;

class CliDevBroker : public ::testing::TestWithParam<int> {};

TEST_P(CliDevBroker, serves_until_a_signal) {
  const TemporaryFolder folder;
  CliProcess broker({"dev-broker", "--topic", "payments:3", "--topic", "emails"}, {}, folder.path());
  const std::string address = broker.first_line(std::chrono::seconds(20));
  ASSERT_THAT(address, HasSubstr("127.0.0.1:"));

  const auto kafka = kafka::open_broker({{"bootstrap.servers", address}}, nullptr);
  EXPECT_EQ(kafka->describe("payments", std::chrono::seconds(10)).value_or(ports::TopicInfo{}).partitions, 3);
  EXPECT_EQ(kafka->describe("emails", std::chrono::seconds(10)).value_or(ports::TopicInfo{}).partitions, 1);
  OwnedMessage message;
  message.topic = "payments";
  message.partition = 2;
  message.payload = "hello";
  EXPECT_EQ(kafka->open_producer()->send(message).offset, 0);

  broker.signal(GetParam());
  const auto ended = broker.wait(std::chrono::seconds(20));
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.err, HasSubstr("\"bootstrap.servers\" = \"" + address + "\""));
}

INSTANTIATE_TEST_SUITE_P(Signals, CliDevBroker, ::testing::Values(SIGINT, SIGTERM));

TEST(CliDevBrokerArguments, a_topic_is_a_name_and_a_number) {
  for (const char* topic : {"payments:0", "payments:x", ":3", "payments:"}) {
    const auto broker = Cli().run("dev-broker", "--topic", topic);
    EXPECT_EQ(broker.code, 2) << topic;
    EXPECT_THAT(broker.err, HasSubstr("as in payments:4")) << topic;
  }
}

}  // namespace
}  // namespace turnstile::test
