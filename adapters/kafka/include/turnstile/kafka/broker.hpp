#pragma once
// Kafka behind the framework's Broker port, through librdkafka (2.0.2 or newer).

#include <map>
#include <memory>
#include <string>

#include "turnstile/config.hpp"
#include "turnstile/ports/broker.hpp"

namespace spdlog {
class logger;
}

/// Kafka: brokers, limits by a token log, and tools.
namespace turnstile::kafka {

/// librdkafka's settings, key by key (CONFIGURATION.md of librdkafka lists them), for consumer, producer and look-ups at once.
///
/// Refused, since they would break a promise: enable.auto.commit=true, enable.auto.offset.store=true, acks other than all,
/// and, with a librdkafka below 2.10, partition.assignment.strategy=cooperative-sticky and group.protocol=consumer.
/// Allowed at one's own risk: isolation.level=read_uncommitted (records of aborted transactions are handled too) and
/// enable.idempotence=false (a retry may write a record twice, or out of order).
/// What differs from librdkafka's defaults when it is not set here is listed in src/settings.cpp.
using Settings = std::map<std::string, std::string>;

/// What can be said against settings without connecting: names and values that librdkafka refuses, and those that would
/// break a promise. A missing "bootstrap.servers" is no problem here. For Config::parse(); Config::load() passes it.
std::vector<KafkaProblem> check_settings(const Settings& settings);

/// Connects to nothing yet. `logger` null: nothing is logged. Throws ConfigError with every wrong key.
std::shared_ptr<Broker> open_broker(const Settings& settings, std::shared_ptr<spdlog::logger> logger);

}  // namespace turnstile::kafka
