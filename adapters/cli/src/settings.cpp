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
// Config::parse() asks for brokers, which `inbox` and `migrate` do not need. Stands in for them and is taken out again.
constexpr const char* kNobody = "no-broker-is-configured:1";

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

Config from_file(const Global& global, const std::string& name) {
  return Config::parse(read_file(name), name, [&](std::string_view key) -> std::optional<std::string> {
    const auto given = overridden(global, key);
    return given ? given : variable(key);
  });
}

Config without_file(const Global& global) {
  Config config = Config::parse("", kNoFile, [&](std::string_view key) -> std::optional<std::string> {
    if (const auto given = overridden(global, key)) return given;
    if (const auto value = variable(key)) return value;
    if (key == "TURNSTILE_KAFKA_BOOTSTRAP_SERVERS") return kNobody;
    return std::nullopt;
  });
  const auto brokers = config.kafka.find(kBrokers);
  if (brokers != config.kafka.end() && brokers->second == kNobody) config.kafka.erase(brokers);
  return config;
}

}  // namespace

Config load_settings(const Global& global) {
  if (global.config_file) return from_file(global, *global.config_file);
  std::error_code ignored;
  if (std::filesystem::exists(kDefaultFile, ignored)) return from_file(global, kDefaultFile);
  return without_file(global);
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
