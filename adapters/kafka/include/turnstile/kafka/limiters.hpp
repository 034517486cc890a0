#pragma once
// The token log in Kafka: a topic of one partition, which all members of a domain write to and read, and a compacted topic for
// snapshots beside it. Each member needs Read and Write on both; Delete on the first to cut off what is not needed any more
// (nothing else does); DescribeConfigs to see that cleanup.policy is right; Create where they are missing. No consumer group.

#include <cstdint>
#include <memory>
#include <string>

#include "turnstile/kafka/broker.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile::kafka {

/// The topic by which members count permits.
struct TokenTopic {
  /// "orders.tokens", say; snapshots go to the topic NAME.snapshots.
  std::string name;
  /// Least number of replicas; 0: 3, or as many as there are brokers.
  std::int32_t replication = 0;
};

/// Creates what is missing (the log without an end by time), and refuses a topic that cannot be a token log (more than one partition,
/// compacted, too few replicas) with the command that puts it right. Of librdkafka's mock broker the first partition is taken.
/// `settings` as for open_broker(), of which those that say when and how records go out are not heeded. Waits for the brokers, some 10 s
/// for each question. `logger` null: nothing is logged. Throws ConfigError for the settings, BrokerError for the rest.
std::unique_ptr<TokenLog> open_token_log(const Settings& settings, const TokenTopic& topic,
                                         std::shared_ptr<spdlog::logger> logger);

/// The log as it is, for those who look at it from outside (turnstile/token_reader.hpp): creates nothing. Nothing when there is no
/// such topic. Throws ConfigError, also for a topic that cannot be a token log, and BrokerError.
std::unique_ptr<TokenLog> find_token_log(const Settings& settings, const std::string& topic,
                                         std::shared_ptr<spdlog::logger> logger);

/// open_token_log and join_token_domain (turnstile/tokens.hpp). `logger`: not null; make_logger() makes one.
std::shared_ptr<TokenDomain> open_limiters(const Settings& settings, const TokenTopic& topic,
                                           const TokenSettings& tokens, std::shared_ptr<spdlog::logger> logger);

}  // namespace turnstile::kafka
