#pragma once
// Converts the user's settings to librdkafka's configuration objects.

#include <string>
#include <vector>

#include "handles.hpp"
#include "turnstile/kafka/broker.hpp"

namespace turnstile::kafka {

enum class Role { consumer, producer, inspector };

/// The configuration of a client, without its callbacks. Errors are added to `problems`.
Conf make_conf(Role role, const Settings& settings, std::vector<KafkaProblem>& problems);
/// The same, but it throws ConfigError, with a line for each error: `kafka."fetch.min.byte": No such configuration
/// property …`
Conf make_conf(Role role, const Settings& settings);
/// Runs check_settings(), and checks that brokers are named. Throws ConfigError.
void check(const Settings& settings);

/// The effective value of a consumer's setting, including defaults. The settings must have passed check().
std::string effective(const Settings& settings, const std::string& key);
std::string setting(const Settings& settings, const std::string& key, const std::string& otherwise = {});

}  // namespace turnstile::kafka
