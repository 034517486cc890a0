#pragma once
// The suite's fixture. Its tests are in the files broker_*_test.cpp. broker_test.cpp lists the brokers that they run
// on.

#include <gmock/gmock.h>

#include <numeric>
#include <ostream>
#include <string_view>

#include "broker_fixture.hpp"
#include "turnstile/error.hpp"

namespace turnstile::test {

struct BrokerKind {
  const char* name;
  std::unique_ptr<BrokerFixture> (*make)();
};

inline void PrintTo(const BrokerKind& kind, std::ostream* out) { *out << kind.name; }

class BrokerContract : public ::testing::TestWithParam<BrokerKind> {
 protected:
  void SetUp() override {
    world = GetParam().make();
    if (!world)
      GTEST_SKIP() << "no Apache Kafka: TURNSTILE_TEST_KAFKA is not set (tests/support/scratch-kafka start DIR)";
    broker = world->broker(group);
  }
  static bool is(std::string_view kind) { return GetParam().name == kind; }

  std::string new_topic(std::int32_t partitions) {
    auto name = fresh_name("topic");
    world->create_topic(name, partitions);
    return name;
  }
  ports::BrokerProducer& producer() {
    if (!producer_) producer_ = broker->open_producer();
    return *producer_;
  }
  void produce(const std::string& topic, std::int32_t partition, int count) {
    for (int i = 0; i < count; ++i) producer().send(text(topic, partition, std::to_string(i)));
  }

  std::string group = fresh_name("group");
  std::unique_ptr<BrokerFixture> world;
  std::shared_ptr<ports::Broker> broker;

 private:
  std::shared_ptr<ports::BrokerProducer> producer_;
};

/// first, first + 1, … end - 1
inline std::vector<Offset> from_to(Offset first, Offset end) {
  std::vector<Offset> all(static_cast<std::size_t>(end - first));
  std::iota(all.begin(), all.end(), first);
  return all;
}

}  // namespace turnstile::test
