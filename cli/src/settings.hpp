#pragma once
// How the verbs find Kafka and PostgreSQL: options override the environment, and the environment overrides the file.

#include "command.hpp"
#include "turnstile/config.hpp"

namespace turnstile::cli {

inline constexpr const char* kDefaultFile = "turnstile.toml";

/// Reads the file of --config, or turnstile.toml if it exists. Otherwise it uses only the environment and the options.
/// Throws ConfigError with all errors. `kafka_check` checks librdkafka's settings; without it, opening a broker does.
Config load_settings(const Global& global, const KafkaCheck& kafka_check = {});

/// Throws UsageError, which tells the three ways to name a database.
PostgresSettings require_postgres(const Config& config);
/// Throws UsageError, which tells the three ways to name brokers.
std::map<std::string, std::string> require_kafka(const Config& config);

/// "turnstile.toml", or "the command line and the environment".
std::string source_of(const Config& config);

}  // namespace turnstile::cli
