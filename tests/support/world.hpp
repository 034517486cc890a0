#pragma once
// The environment of an integration test. It has the real PostgreSQL and the real Apache Kafka that ./dev test has
// started, and its own schema, topics and table of effects. If a server is missing, the test reports SKIPPED and why.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/eventually.hpp"
#include "tests/support/postgres_schema.hpp"
#include "tests/support/process.hpp"
#include "turnstile/config.hpp"
#include "turnstile/context.hpp"
#include "turnstile/message.hpp"
#include "turnstile/ports/broker.hpp"
#include "turnstile/ports/store.hpp"

namespace turnstile::test {

/// The address of Apache Kafka. Empty if there is none.
std::string kafka_servers();

struct Effects {
  std::int64_t rows = 0;      ///< a row for each time that an effect happened
  std::int64_t distinct = 0;  ///< different message ids among them
};

struct WorldOptions {
  int partitions = 4;
  std::string postgres_url{};                                ///< default: the server that ./dev test has started
  std::map<std::string, std::string> dead_topic_settings{};  ///< for example "max.message.bytes"
  int session_timeout_ms = 6'000;
  std::string handler_timeout = "5s";
};

class World {
 public:
  /// Creates the schema, the tables, a topic with this number of partitions, and its dead letter topic.
  explicit World(int partitions = 4) : World(WorldOptions{.partitions = partitions}) {}
  explicit World(WorldOptions options);
  ~World();
  World(const World&) = delete;

  [[nodiscard]] const std::string& topic() const noexcept { return topic_; }
  [[nodiscard]] std::string dead_topic() const { return topic_ + ".dlq"; }
  [[nodiscard]] const std::string& schema() const noexcept { return schema_; }
  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }
  /// Creates another topic and returns its name.
  std::string add_topic(const std::string& suffix, int partitions = 1);
  /// A configuration for the topic. `more` is appended, and may contain further sections.
  [[nodiscard]] std::string toml(const std::string& topic_settings = {}, const std::string& more = {}) const;
  [[nodiscard]] Config config(const std::string& topic_settings = {}, const std::string& more = {}) const;

  /// Publishes ids "PREFIX0".."PREFIX<n-1>", with the id modulo 100 as key, every tenth twice. Waits for the
  /// acknowledgements. Returns the number of records.
  std::int64_t publish(std::int64_t n, const std::string& prefix = "m");
  void publish(const std::string& id, const std::string& payload, const std::string& key = {});
  /// Publishes a record to partition 0 with these headers.
  void publish(const std::vector<Header>& headers, const std::optional<std::string>& payload);
  ports::BrokerProducer::Sent publish(const OwnedMessage& message);

  /// Starts bin/consumer with this configuration.
  Process consumer(const std::string& toml, const std::map<std::string, std::string>& environment = {});
  /// The output of the consumers so far.
  [[nodiscard]] std::string output() const;
  [[nodiscard]] Effects effects() const;
  /// Effects that came after an effect of a higher offset with the same key.
  [[nodiscard]] std::int64_t out_of_order() const;
  /// A single value of a query on the schema.
  [[nodiscard]] std::string query(const std::string& sql) const;
  /// The committed offset of a partition; 0 if there is none.
  [[nodiscard]] Offset committed(std::int32_t partition) const;
  /// Whether all offsets are committed up to the end of the topic.
  [[nodiscard]] bool caught_up() const;
  [[nodiscard]] ports::Broker& broker() const noexcept { return *broker_; }
  [[nodiscard]] std::shared_ptr<ports::Broker> shared_broker() const noexcept { return broker_; }

 private:
  std::string topic_;
  std::string schema_;
  std::string folder_;
  WorldOptions options_;
  std::shared_ptr<ports::Broker> broker_;
  std::shared_ptr<ports::BrokerProducer> producer_;
};

/// Writes the row of an effect into World's table.
void make_effect(const std::string& schema, const Message& message, Context& context);

/// The name of a step at which a process is killed, in a form for a test's name.
inline std::string step_name(const ::testing::TestParamInfo<const char*>& step) {
  std::string name = step.param;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}

}  // namespace turnstile::test

#define TURNSTILE_NEEDS_SERVERS()                                                                                  \
  if (!::turnstile::test::postgres_url()) GTEST_SKIP() << "no PostgreSQL: TURNSTILE_TEST_POSTGRES_URL is not set"; \
  if (::turnstile::test::kafka_servers().empty()) GTEST_SKIP() << "no Apache Kafka: TURNSTILE_TEST_KAFKA is not set"
