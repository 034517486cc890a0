#pragma once
// Checks the meaning of settings: names, addresses, and relations between settings. Their form is checked when they are
// read.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/config.hpp"

namespace turnstile::detail {

/// The shortest lease of a claim. Results are recorded after 50 ms at the latest, and the lease must outlast two stalls
/// of the disk in that time.
inline constexpr std::chrono::milliseconds kShortestClaimLease{1'000};
/// The window needs a bit for each number, in one row: at most half a page of PostgreSQL.
inline constexpr std::int64_t kLeastRequestWindow = 8, kMostRequestWindow = 32'768;

// Checks of a single value. Absent: the value is valid. Otherwise a sentence that follows the setting's name. No
// sentence quotes a URL.

/// Checks a libpq URL or key=value text, as far as possible without a connection.
std::optional<std::string> check_postgres_url(const std::string& url);
/// Checks a list of HOST[:PORT], as in bootstrap.servers.
std::optional<std::string> check_servers(std::string_view servers);

// Checks of relations between settings. They return all problems, each beginning with Config::where().

/// Checks what the configuration alone shows. parse() has called it.
std::vector<std::string> check_config(const Config& config);

/// What runs the topic. For a duplicate that must not be skipped, a Consumer makes a dead letter, and a PollLoop
/// throws.
enum class RunBy : std::uint8_t { consumer, poll_loop };

/// Checks a topic after code and configuration were merged into `effective`. Settings from code also pass the checks
/// that the file has passed.
std::vector<std::string> check_topic(const Config& config, const std::string& topic, const TopicSettings& effective,
                                     RunBy run_by = RunBy::consumer);

/// Finds dead letter topics that lead in a circle. `dead_letters`: for each topic, the topic of its dead letters.
/// Returns one problem for each circle.
std::vector<std::string> check_dead_letters(const std::map<std::string, std::string>& dead_letters);

}  // namespace turnstile::detail
