#pragma once
// Topics of the test's own on the scratch Kafka of ./dev test, and their records, read with librdkafka's plain
// consumer.

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "turnstile/message.hpp"

namespace turnstile::test {

class TestKafka {
 public:
  /// The value of TURNSTILE_TEST_KAFKA; empty if it is not set.
  [[nodiscard]] const std::string& brokers() const noexcept { return brokers_; }
  /// Creates a topic with a unique name.
  std::string create_topic(std::int32_t partitions, const std::map<std::string, std::string>& settings = {});
  /// The first `count` records of all partitions together. Returns fewer if they do not come within 30 seconds.
  std::vector<OwnedMessage> read(const std::string& topic, std::size_t count);

  TestKafka();

 private:
  std::string brokers_;
};

}  // namespace turnstile::test
