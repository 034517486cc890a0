#pragma once
// The brokers' data about a topic.

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "client.hpp"
#include "turnstile/ports/broker.hpp"

namespace turnstile::kafka {

/// Whether it is librdkafka's mock broker, which supports no administration. Waits for its first answer up to
/// `timeout`.
bool is_mock(const Client& client, std::chrono::milliseconds timeout);
/// Returns once a broker has answered and accepted the login, which needs no right. Throws BrokerError if none does within
/// `timeout`; it names `topic`.
void wait_for_answer(const Client& client, std::chrono::milliseconds timeout, const std::string& topic = {});
/// The number of the topic's partitions. Absent if there is no such topic. Creates none. Throws BrokerError.
std::optional<std::int32_t> partition_count(const Client& client, const std::string& topic,
                                            std::chrono::milliseconds timeout);
struct TopicShape {
  std::int32_t partitions = 0;  ///< 0: there is no such topic
  std::int32_t replicas = 0;    ///< of its first partition
  std::int32_t brokers = 0;     ///< in the cluster
};
/// Creates no topic. Throws BrokerError.
TopicShape shape(const Client& client, const std::string& topic, std::chrono::milliseconds timeout);
/// One of the topic's own settings. Absent if the broker cannot return it, or refuses to.
std::optional<std::string> topic_setting(const Client& client, const std::string& topic, const std::string& key,
                                         std::chrono::milliseconds timeout);
/// Stands for the leader of a partition that has none.
inline constexpr std::int32_t kNoLeader = -1;
/// The brokers that lead the topic's partitions. Empty if there is no such topic. Throws BrokerError.
std::vector<std::int32_t> leaders_of(const Client& client, const std::string& topic, std::chrono::milliseconds timeout);
/// Asks the brokers, so that the client updates its metadata of the topic. Without this, librdkafka refuses records of
/// a missing topic for up to topic.metadata.refresh.interval.ms (5 minutes) after its creation. False: no broker
/// answered, so nothing is known. Waits up to 2 s.
bool look_again(const Client& client, const std::string& topic) noexcept;
/// Before records of these topics are sent. For the first of a topic, it waits up to a second for the topic's metadata
/// (hazard: new-topics).
void ask_before_first_records(Client& client, const std::set<std::string>& topics) noexcept;
/// Whether librdkafka refused a record because of its cached metadata of the topic.
bool is_remembered(rd_kafka_resp_err_t refusal) noexcept;
/// Absent: no broker answered within `timeout`.
std::optional<bool> exists_now(const Client& client, const std::string& topic,
                               std::chrono::milliseconds timeout) noexcept;
/// Waits up to a second for an answer. Without an answer it returns true.
bool topic_exists(const Client& client, const std::string& topic) noexcept;
/// How long the topic keeps its records, as in TopicInfo. Absent if the broker cannot return it, or refuses to.
struct Keeping {
  std::optional<std::chrono::milliseconds> retention;
  std::optional<std::chrono::milliseconds> segment;
  std::string why;  ///< TopicInfo::why_unknown
};
Keeping keeping(const Client& client, const std::string& topic, std::chrono::milliseconds timeout);

}  // namespace turnstile::kafka
