#pragma once
// From the user's settings to librdkafka's configuration objects.

#include <string>
#include <vector>

#include "handles.hpp"
#include "turnstile/kafka/broker.hpp"

namespace turnstile::kafka {

enum class Role { consumer, producer, inspector };

/// The configuration of one client, without its callbacks. What is wrong is added to `problems`.
Conf make_conf(Role role, const Settings& settings, std::vector<KafkaProblem>& problems);
/// The same; throws ConfigError, with one line for each: `kafka."fetch.min.byte": No such configuration property …`
Conf make_conf(Role role, const Settings& settings);
/// check_settings(), and that brokers are named. Throws ConfigError.
void check(const Settings& settings);

/// A consumer's setting as it will be, defaults included. The settings must have passed check().
std::string effective(const Settings& settings, const std::string& key);
std::string setting(const Settings& settings, const std::string& key, const std::string& otherwise = {});

}  // namespace turnstile::kafka
