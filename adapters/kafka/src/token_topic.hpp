#pragma once
// Checks that the topics of a token log exist and have the right settings.

#include <cstdint>
#include <string>

#include "settings.hpp"
#include "turnstile/kafka/limiters.hpp"

namespace turnstile::kafka {

std::string snapshot_topic(const std::string& topic);

/// Creates nothing. Throws BrokerError if no broker answers, and ConfigError if the topic cannot be a token log.
bool token_topic_exists(const Settings& settings, const std::string& topic, std::shared_ptr<spdlog::logger> logger);

/// Throws BrokerError if the topic or the topic for snapshots has no such partition.
void must_have_part(const Settings& settings, const std::string& topic, std::uint32_t part,
                    std::shared_ptr<spdlog::logger> logger);

/// Throws BrokerError, with the command that corrects the topic.
void ensure_token_topics(const Settings& settings, const TokenTopic& topic, std::shared_ptr<spdlog::logger> logger);

}  // namespace turnstile::kafka
