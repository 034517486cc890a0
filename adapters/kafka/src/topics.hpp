#pragma once
// What the brokers say of a topic.

#include <chrono>
#include <optional>
#include <string>

#include "client.hpp"
#include "turnstile/ports/broker.hpp"

namespace turnstile::kafka {

/// The number of the topic's partitions, or nothing when there is no such topic. Creates none. Throws BrokerError.
std::optional<std::int32_t> partition_count(const Client& client, const std::string& topic,
                                            std::chrono::milliseconds timeout);
/// Asks for a second; in doubt, yes.
bool topic_exists(const Client& client, const std::string& topic) noexcept;
/// How long the topic keeps its records; nothing when the broker cannot say, or does not tell us.
std::optional<std::chrono::milliseconds> retention(const Client& client, const std::string& topic,
                                                   std::chrono::milliseconds timeout);

}  // namespace turnstile::kafka
