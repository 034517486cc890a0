#pragma once
// The token log in Kafka: a topic which all members of a domain write and read, and a compacted topic for snapshots. Both
// have one partition, or, if the log was divided (turnstile limits divide), at least one for each of its parts.
// Each member needs Read and Write on both topics. It needs Delete on the first, to delete records that are no longer
// needed (nothing else deletes them). It needs DescribeConfigs to check cleanup.policy, and Create if the topics are
// missing. It needs no consumer group.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "turnstile/kafka/broker.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile::kafka {

/// The topic in which members count permits.
struct TokenTopic {
  /// For example "orders.tokens". Snapshots go to the topic NAME.snapshots.
  std::string name;
  /// The smallest number of replicas. 0: a new topic gets 3, or as many as brokers answer if they are fewer, and an
  /// existing one with fewer than that is only a warning in the log.
  std::int32_t replication = 0;
};

/// Opens the token log, and creates missing topics (the log without retention by time). It refuses a topic that cannot
/// be a token log: more than one partition although its topic for snapshots has not, compacted, or fewer replicas than
/// `replication` requires.
/// The error names the command that corrects it. With librdkafka's mock broker it uses the first partition.
/// `settings` are those of open_broker(), but settings of when and how records are sent are ignored. It waits up to
/// about 10 s for each answer of the brokers. If `logger` is null, nothing is logged. Throws ConfigError for the
/// settings, and BrokerError for other errors.
std::unique_ptr<ports::TokenLog> open_token_log(const Settings& settings, const TokenTopic& topic,
                                                std::shared_ptr<spdlog::logger> logger);

/// The same for a part of a log that is divided (TokenLogParts in turnstile/tokens.hpp).
std::unique_ptr<ports::TokenLog> open_token_log_part(const Settings& settings, const TokenTopic& topic,
                                                     std::uint32_t part, std::shared_ptr<spdlog::logger> logger);

/// Opens an existing log from outside (turnstile/token_reader.hpp), and creates nothing. Null if there is no such
/// topic. Throws BrokerError. Throws ConfigError, also for a topic that cannot be a token log.
std::unique_ptr<ports::TokenLog> find_token_log(const Settings& settings, const std::string& topic,
                                                std::shared_ptr<spdlog::logger> logger);

/// The same for a part of a log that is divided. Null for part 0 if there is no such topic.
std::unique_ptr<ports::TokenLog> find_token_log_part(const Settings& settings, const std::string& topic,
                                                     std::uint32_t part, std::shared_ptr<spdlog::logger> logger);

/// What opens the parts of an existing log from outside: for TokenReader.
TokenLogParts parts_of_token_log(const Settings& settings, const std::string& topic);

/// Adds partitions to the topic for snapshots, then to the log's own topic, until each has `parts`. It does nothing to a
/// topic that has as many or more. Before TokenReader::divide(). Throws BrokerError.
void extend_token_topics(const Settings& settings, const std::string& topic, std::uint32_t parts,
                         std::chrono::milliseconds timeout = std::chrono::seconds{15});

/// open_token_log() and join_token_domain() (turnstile/tokens.hpp). `logger` must not be null; make_logger() makes one.
std::shared_ptr<TokenDomain> open_limiters(const Settings& settings, const TokenTopic& topic,
                                           const TokenSettings& tokens, std::shared_ptr<spdlog::logger> logger);

}  // namespace turnstile::kafka
