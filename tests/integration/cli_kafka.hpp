#pragma once
// Topics of a test's own on the scratch Kafka of ./dev test, and what is in them, read with librdkafka's plain consumer.

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "turnstile/message.hpp"

namespace turnstile::test {

class TestKafka {
 public:
  /// From TURNSTILE_TEST_KAFKA; empty without one.
  [[nodiscard]] const std::string& brokers() const noexcept { return brokers_; }
  /// With a name that nobody else has.
  std::string create_topic(std::int32_t partitions, const std::map<std::string, std::string>& settings = {});
  /// The first `count` records of all partitions together; fewer when they do not come within half a minute.
  std::vector<OwnedMessage> read(const std::string& topic, std::size_t count);

  TestKafka();

 private:
  std::string brokers_;
};

}  // namespace turnstile::test
