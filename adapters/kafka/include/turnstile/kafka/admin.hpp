#pragma once
// What tests, the demo and the command line do to a cluster.

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "turnstile/kafka/broker.hpp"

namespace turnstile::kafka {

/// A topic that is to be created.
struct NewTopic {
  std::string name;                             ///< its name
  std::int32_t partitions = 1;                  ///< how many
  std::int32_t replication = -1;                ///< -1: the cluster's default
  std::map<std::string, std::string> settings;  ///< the topic's own: "retention.ms" and so on
};

/// False when the topic was there already. Returns when a broker that is asked knows it. Throws BrokerError.
bool create_topic(const Settings& broker, const NewTopic& topic,
                  std::chrono::milliseconds timeout = std::chrono::seconds{15});

/// False when there was no such topic. Returns when a broker that is asked does not know it any more. Throws BrokerError.
bool delete_topic(const Settings& broker, const std::string& name,
                  std::chrono::milliseconds timeout = std::chrono::seconds{15});

}  // namespace turnstile::kafka
