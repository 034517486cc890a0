#pragma once
// Dead letters in a real PostgreSQL, for tests of `turnstile dlq`.

#include <chrono>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/cli_database.hpp"
#include "tests/integration/cli_kafka.hpp"
#include "turnstile/kafka/mock.hpp"
#include "turnstile/replay.hpp"

namespace turnstile::test {

class CliDlq : public CliDatabase {
 protected:
  void SetUp() override {
    CliDatabase::SetUp();
    if (IsSkipped()) return;
    migrate();
    register_handlers();
  }

  /// Adds a dead letter of handler charge, from payments[3]. `columns` and `values` add columns to the row.
  void bury(Offset offset, const std::string& payload, const std::string& reason = "failed") {
    sql("INSERT INTO dead (handler, slot, incarnation, record_offset, message_id, reason, error, attempts, record_timestamp, "
        "record_key, record_payload, header_names, header_values) VALUES (1, 1, 0, " +
        std::to_string(offset) + ", '" + MessageId::from("order-17").text() + "', '" + reason +
        "', 'card declined', 5, '2026-03-01 14:05:09+00', 'k-1', " + payload +
        ", ARRAY['message-id'::bytea, 'trace'::bytea, 'empty'::bytea], ARRAY['order-17'::bytea, '\\x00ff'::bytea, NULL])");
  }
};

/// The same with a real Kafka.
class CliReplay : public CliDlq {
 protected:
  void SetUp() override {
    CliDlq::SetUp();
    if (IsSkipped()) return;
    if (kafka_.brokers().empty()) GTEST_SKIP() << "TURNSTILE_TEST_KAFKA is not set; run ./dev test";
    cli_.environment()["TURNSTILE_KAFKA_BOOTSTRAP_SERVERS"] = kafka_.brokers();
    topic_ = kafka_.create_topic(4);
    sql("UPDATE fence SET topic = '" + topic_ + "'");
  }

  /// Four operators replay the letter at once. Returns how many of them have published it.
  int published_by_four(const std::string& number, const std::vector<std::string>& options = {}) {
    std::vector<std::string> verb{"dlq", "replay", number};
    verb.insert(verb.end(), options.begin(), options.end());
    std::vector<std::future<Finished>> operators;
    for (int i = 0; i < 4; ++i) operators.push_back(std::async(std::launch::async, [&] { return cli_.run_all(verb); }));
    int published = 0;
    for (auto& run : operators) {
      const auto result = run.get();
      published += result.out.find(number + " -> ") != std::string::npos;
      EXPECT_TRUE(result.code == 0 || result.code == 4) << result.err;
    }
    return published;
  }

  /// The inbox knows the dead letters from this offset by their place.
  void know_by_place(Offset offset) {
    sql("UPDATE dead SET message_id = '" + id_of_place({{topic_, 3}, offset}, 0).text() +
        "' WHERE record_offset = " + std::to_string(offset));
  }

  /// The dead letters come from partition 3 of this topic.
  void read_from(const std::string& topic) {
    topic_ = topic;
    sql("UPDATE fence SET topic = '" + topic + "'");
  }

  /// Of the replay in doubt.
  std::string token_of(const std::string& number) {
    const auto json = nlohmann::json::parse(cli_.run("dlq", "show", number, "--json").out);
    return json["replay_token"].is_string() ? json["replay_token"].get<std::string>() : "none";
  }

  /// A broker that does not say whether it has a record, until allow_produce(). A replay ends after `delivery_timeout`.
  std::unique_ptr<kafka::MockBroker> broker_without_answer(std::chrono::milliseconds delivery_timeout) {
    auto mock = std::make_unique<kafka::MockBroker>();
    read_from("payments");
    mock->create_topic(topic_, 4);
    mock->time_out_produce();
    cli_.environment()["TURNSTILE_KAFKA_BOOTSTRAP_SERVERS"] = mock->bootstrap_servers();
    cli_.environment()["TURNSTILE_KAFKA_DELIVERY_TIMEOUT_MS"] = std::to_string(delivery_timeout.count());
    return mock;
  }

  static std::string header(const OwnedMessage& message, std::string_view name) {
    return std::string(Message(message).header(name).value_or(""));
  }

  TestKafka kafka_;
  std::string topic_;
};

}  // namespace turnstile::test
