#pragma once
// Kafka as an implementation of the framework's Broker, with librdkafka (2.0.2 or newer).

#include <chrono>
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

/// librdkafka's settings by key (see its CONFIGURATION.md), for consumer, producer and look-ups alike.
///
/// These are refused, because they would break a guarantee: enable.auto.commit=true, enable.auto.offset.store=true, and
/// acks other than all. With librdkafka below 2.10 also partition.assignment.strategy=cooperative-sticky and
/// group.protocol=consumer.
/// These are allowed at your own risk: isolation.level=read_uncommitted (records of aborted transactions are handled
/// too) and enable.idempotence=false (a retry may write a record twice, or out of order). src/settings.cpp lists the
/// defaults that differ from those of librdkafka.
using Settings = std::map<std::string, std::string>;

/// Checks settings without connecting. It reports names and values that librdkafka refuses, and settings that would
/// break a guarantee. A missing "bootstrap.servers" is no problem here. Pass it to Config::parse(); Config::load()
/// passes it itself.
std::vector<KafkaProblem> check_settings(const Settings& settings);

/// Connects, to see whether a broker answers and accepts the login. It needs no right on any topic. Throws BrokerError if
/// none does within `timeout`, and ConfigError as open_broker().
void check_connection(const Settings& settings, std::chrono::milliseconds timeout);

/// Does not connect yet. If `logger` is null, nothing is logged. Throws ConfigError with every wrong key.
std::shared_ptr<ports::Broker> open_broker(const Settings& settings, std::shared_ptr<spdlog::logger> logger);

}  // namespace turnstile::kafka
