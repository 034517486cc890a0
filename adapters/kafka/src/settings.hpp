#pragma once
// From the user's settings to librdkafka's configuration objects.

#include <string>
#include <vector>

#include "handles.hpp"
#include "turnstile/kafka/broker.hpp"

namespace turnstile::kafka {

enum class Role { consumer, producer, inspector };

/// The configuration of one client, without its callbacks. What is wrong is added to `problems`, as one line each:
/// `kafka."fetch.min.byte": No such configuration property …`
Conf make_conf(Role role, const Settings& settings, std::vector<std::string>& problems);
/// The same; throws ConfigError.
Conf make_conf(Role role, const Settings& settings);
/// All that can be said against the settings before anything connects. Throws ConfigError.
void check(const Settings& settings);

/// A consumer's setting as it will be, defaults included. The settings must have passed check().
std::string effective(const Settings& settings, const std::string& key);
std::string setting(const Settings& settings, const std::string& key, const std::string& otherwise = {});

}  // namespace turnstile::kafka
