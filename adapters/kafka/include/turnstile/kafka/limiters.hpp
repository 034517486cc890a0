#pragma once
// The token log in Kafka: a topic of one partition, which all members of a domain write to and read, and a compacted topic for
// snapshots beside it.

#include <cstdint>
#include <memory>
#include <string>

#include "turnstile/kafka/broker.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile::kafka {

struct TokenTopic {
  /// "orders.tokens", say; snapshots go to the topic NAME.snapshots.
  std::string name;
  /// Least number of replicas; 0: 3, or as many as there are brokers.
  std::int32_t replication = 0;
};

/// Creates what is missing, and refuses a topic that cannot be a token log (more than one partition, compacted, too few replicas)
/// with the command that puts it right. Throws ConfigError, BrokerError.
std::unique_ptr<TokenLog> open_token_log(const Settings& settings, const TokenTopic& topic,
                                         std::shared_ptr<spdlog::logger> logger);

/// open_token_log and join_token_domain (turnstile/tokens.hpp).
std::shared_ptr<TokenDomain> open_limiters(const Settings& settings, const TokenTopic& topic,
                                           const TokenSettings& tokens, std::shared_ptr<spdlog::logger> logger);

}  // namespace turnstile::kafka
