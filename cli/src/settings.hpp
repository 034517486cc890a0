#pragma once
// Where the verbs find Kafka and PostgreSQL: options on the command line win over the environment, which wins over the file.

#include "command.hpp"
#include "turnstile/config.hpp"

namespace turnstile::cli {

inline constexpr const char* kDefaultFile = "turnstile.toml";

/// The file of --config, or turnstile.toml where there is one, or nothing but the environment and the options. Throws
/// ConfigError with all that is wrong; librdkafka's settings are judged by `kafka_check`, or by whoever opens a broker.
Config load_settings(const Global& global, const KafkaCheck& kafka_check = {});

/// Throws UsageError, saying the three ways to name a database.
PostgresSettings require_postgres(const Config& config);
/// Throws UsageError, saying the three ways to name brokers.
std::map<std::string, std::string> require_kafka(const Config& config);

/// "turnstile.toml", or "the command line and the environment".
std::string source_of(const Config& config);

}  // namespace turnstile::cli
