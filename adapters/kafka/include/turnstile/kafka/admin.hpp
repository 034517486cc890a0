#pragma once
// Changes to a cluster, for tests, the demo and the command line.

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "turnstile/kafka/broker.hpp"

namespace turnstile::kafka {

/// A topic to create.
struct NewTopic {
  std::string name{};                             ///< its name
  std::int32_t partitions = 1;                    ///< how many
  std::int32_t replication = -1;                  ///< -1: the cluster's default
  std::map<std::string, std::string> settings{};  ///< the topic's own settings: "retention.ms" and so on
};

/// Creates a topic. Returns when a broker that it asks knows the topic. False: it existed already. Throws BrokerError.
bool create_topic(const Settings& broker, const NewTopic& topic,
                  std::chrono::milliseconds timeout = std::chrono::seconds{15});

/// Adds partitions to a topic until it has `partitions`. Returns when a broker that it asks knows them. False: it had as
/// many or more already. Throws BrokerError, also if there is no such topic.
bool extend_topic(const Settings& broker, const std::string& name, std::int32_t partitions,
                  std::chrono::milliseconds timeout = std::chrono::seconds{15});

/// Deletes a topic. Returns when a broker that it asks no longer knows the topic. False: it did not exist. Throws
/// BrokerError.
bool delete_topic(const Settings& broker, const std::string& name,
                  std::chrono::milliseconds timeout = std::chrono::seconds{15});

}  // namespace turnstile::kafka
