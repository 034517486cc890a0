// Kafka's errors as people read them.

#include "errors.hpp"

#include <gmock/gmock.h>

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

}  // namespace
}  // namespace turnstile::kafka
