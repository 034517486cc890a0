// Kafka's errors as people read them.

#include "errors.hpp"

#include <gmock/gmock.h>

#include "client.hpp"

namespace turnstile::kafka {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(KafkaErrors, a_process_without_file_descriptors_is_told_so) {
  const std::string text =
      explain(RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN,
              "127.0.0.1:9092/bootstrap: Failed to create socket: Too many open files (after 0ms in state CONNECT)",
              {.broker = "127.0.0.1:9092", .group = {}, .topic = {}});
  EXPECT_THAT(text, AllOf(HasSubstr("ulimit -n"), Not(HasSubstr("Check that the brokers run"))));
}

/// Two of three brokers may be up: a client connects only to those that it needs.
TEST(KafkaErrors, a_client_without_a_connection_is_no_proof_that_all_brokers_are_down) {
  const std::string text =
      explain(RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, {}, {.broker = "127.0.0.1:9092", .group = {}, .topic = {}});
  EXPECT_THAT(text, AllOf(HasSubstr("kafka 127.0.0.1:9092: this client has no connection to any broker now."),
                          HasSubstr("Check that the brokers run"), HasSubstr("bootstrap.servers"),
                          Not(HasSubstr("All broker"))));
}

/// Kafka gives the same answer to each request, so the error cannot know which right is missing.
TEST(KafkaErrors, a_missing_right_on_a_topic_may_be_that_to_create_it) {
  EXPECT_THAT(explain(RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, {}, {.broker = "b:1", .group = {}, .topic = "t"}),
              AllOf(HasSubstr("Read to consume"), HasSubstr("Write to produce"), HasSubstr("Create if")));
}

TEST(KafkaErrors, a_client_that_no_broker_has_answered_may_lack_a_security_protocol) {
  Where at{.broker = "127.0.0.1:9092", .group = {}, .topic = {}, .plaintext_unanswered = true};
  for (const auto code :
       {RD_KAFKA_RESP_ERR__TIMED_OUT, RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, RD_KAFKA_RESP_ERR__TRANSPORT}) {
    at.plaintext_unanswered = true;
    EXPECT_THAT(explain(code, {}, at), HasSubstr("set security.protocol: it is not set."));
    at.plaintext_unanswered = false;
    EXPECT_THAT(explain(code, {}, at), Not(HasSubstr("security.protocol")));
  }
}

TEST(KafkaErrors, a_client_knows_whether_its_settings_name_a_security_protocol) {
  const Settings plain{{"bootstrap.servers", "127.0.0.1:1"}};
  Settings secure = plain;
  secure["security.protocol"] = "ssl";
  EXPECT_TRUE(Client::open(Role::inspector, plain, nullptr)->where().plaintext_unanswered);
  EXPECT_FALSE(Client::open(Role::inspector, secure, nullptr)->where().plaintext_unanswered);
}

}  // namespace
}  // namespace turnstile::kafka
