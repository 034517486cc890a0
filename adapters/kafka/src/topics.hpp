#pragma once
// What the brokers say of a topic.

#include <chrono>
#include <optional>
#include <string>

#include "client.hpp"
#include "turnstile/ports/broker.hpp"

namespace turnstile::kafka {

/// librdkafka's mock broker, which knows no administration. Waits for its first answer at most so long.
bool is_mock(const Client& client, std::chrono::milliseconds timeout);
/// The number of the topic's partitions, or nothing when there is no such topic. Creates none. Throws BrokerError.
std::optional<std::int32_t> partition_count(const Client& client, const std::string& topic,
                                            std::chrono::milliseconds timeout);
struct TopicShape {
  std::int32_t partitions = 0;  ///< 0: there is no such topic
  std::int32_t replicas = 0;    ///< of its first partition
  std::int32_t brokers = 0;     ///< in the cluster
};
/// Creates none. Throws BrokerError.
TopicShape shape(const Client& client, const std::string& topic, std::chrono::milliseconds timeout);
/// One of the topic's own settings; nothing when the broker cannot say, or does not tell us.
std::optional<std::string> topic_setting(const Client& client, const std::string& topic, const std::string& key,
                                         std::chrono::milliseconds timeout);
/// Asks the brokers, and makes the client forget what it remembers of the topic: librdkafka refuses records of a topic that was missing
/// for up to topic.metadata.refresh.interval.ms (5 minutes) after it was created. False: no broker answered, so that nothing is known.
/// Waits for 2 s at most.
bool look_again(const Client& client, const std::string& topic) noexcept;
/// Whether librdkafka has refused a record by what it remembers of the topic.
bool is_remembered(rd_kafka_resp_err_t refusal) noexcept;
/// Nothing: no broker said so within `timeout`.
std::optional<bool> exists_now(const Client& client, const std::string& topic,
                               std::chrono::milliseconds timeout) noexcept;
/// Asks for a second; in doubt, yes.
bool topic_exists(const Client& client, const std::string& topic) noexcept;
/// How long the topic keeps its records, as TopicInfo has it; nothing when the broker cannot say, or does not tell us.
struct Keeping {
  std::optional<std::chrono::milliseconds> retention;
  std::optional<std::chrono::milliseconds> segment;
};
Keeping keeping(const Client& client, const std::string& topic, std::chrono::milliseconds timeout);

}  // namespace turnstile::kafka
