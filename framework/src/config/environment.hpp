#pragma once
// Settings from environment variables, which override the file.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/config.hpp"

namespace turnstile::detail {

/// "topics.payments.limit" -> "TURNSTILE_TOPICS_PAYMENTS_LIMIT"
std::string environment_name(std::string_view key);

/// The variable that has set a setting whose line is 0: environment_name(key), or that of another standard.
std::string variable_of(const std::string& key, const Config& config);

/// Reads the variable of every setting, for the topics and the [kafka] keys that `config` already names, and for some
/// more keys of [kafka]. An empty variable counts as not set. Settings from the environment have line 0 in
/// `config.lines`. Returns the problems, each with its variable's name. A wrong value changes nothing.
std::vector<std::string> read_environment(const Config::Environment& environment, Config& config);

/// The same for the topics that the program names: before that, the names of their variables are unknown. Adds to
/// `config.topics` the topics that have a variable. Needs `config.environment`.
std::vector<std::string> read_environment(const std::set<std::string>& topics_of_program, Config& config);

/// Returns a sentence for each of `config.variables` that nothing reads, with the name that was probably meant. Call it
/// when all topics are known.
std::vector<std::string> unread_variables(const std::set<std::string>& topics_of_program, const Config& config);

}  // namespace turnstile::detail
