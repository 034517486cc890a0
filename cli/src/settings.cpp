#include "settings.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "turnstile/error.hpp"

namespace turnstile::cli {

namespace {

constexpr const char* kBrokers = "bootstrap.servers";
constexpr const char* kNoFile = "the command line and the environment";

std::optional<std::string> variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

std::optional<std::string> overridden(const Global& global, std::string_view name) {
  if (name == "TURNSTILE_POSTGRES_URL") return global.postgres;
  if (name == "TURNSTILE_POSTGRES_SCHEMA") return global.schema;
  if (name == "TURNSTILE_KAFKA_BOOTSTRAP_SERVERS") return global.kafka;
  return std::nullopt;
}

std::string read_file(const std::string& name) {
  std::ifstream in(name, std::ios::binary);
  const int error = errno;
  if (!in) throw ConfigError({fmt::format("{}: cannot be read: {}", name, std::strerror(error))});
  if (std::filesystem::is_directory(name)) throw ConfigError({fmt::format("{}: is a folder, not a file", name)});
  return {std::istreambuf_iterator<char>(in), {}};
}

/// `global` must outlive it.
Config::Environment environment_of(const Global& global) {
  return [&global](std::string_view key) {
    const auto given = overridden(global, key);
    return given ? given : variable(key);
  };
}

Config from_file(const Global& global, const std::string& name, const KafkaCheck& kafka_check) {
  return Config::parse(read_file(name), name, environment_of(global), kafka_check);
}

}  // namespace

Config load_settings(const Global& global, const KafkaCheck& kafka_check) {
  if (global.config_file) return from_file(global, *global.config_file, kafka_check);
  std::error_code ignored;
  if (std::filesystem::exists(kDefaultFile, ignored)) return from_file(global, kDefaultFile, kafka_check);
  return Config::parse("", kNoFile, environment_of(global), kafka_check);
}

PostgresSettings require_postgres(const Config& config) {
  if (config.postgres && !config.postgres->url.empty()) return *config.postgres;
  throw UsageError(
      fmt::format("no database is named ({}): write [postgres] url = \"postgresql://user@host/database\" in {}, set "
                  "TURNSTILE_POSTGRES_URL, or give --postgres URL",
                  source_of(config), kDefaultFile));
}

std::map<std::string, std::string> require_kafka(const Config& config) {
  const auto brokers = config.kafka.find(kBrokers);
  if (brokers != config.kafka.end() && !brokers->second.empty()) return config.kafka;
  throw UsageError(
      fmt::format("no broker is named ({}): write [kafka] \"bootstrap.servers\" = \"host:9092\" in {}, set "
                  "TURNSTILE_KAFKA_BOOTSTRAP_SERVERS, or give --kafka HOST:PORT",
                  source_of(config), kDefaultFile));
}

std::string source_of(const Config& config) { return config.source.empty() ? kNoFile : config.source; }

}  // namespace turnstile::cli
