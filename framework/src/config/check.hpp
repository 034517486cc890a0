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

namespace turnstile {

/// The shortest lease of a claim. Results are recorded after 50 ms at the latest, and the lease must outlast two stalls
/// of the disk in that time.
inline constexpr std::chrono::milliseconds kShortestClaimLease{1'000};
/// A bit for each number, in one row: half a page of PostgreSQL's at most.
inline constexpr std::int64_t kLeastRequestWindow = 8, kMostRequestWindow = 32'768;

// Of one value: nothing, or a sentence that follows the setting's name. None quotes a URL.

/// A libpq URL or key=value text, as far as can be told without connecting.
std::optional<std::string> check_postgres_url(const std::string& url);
/// A list of HOST[:PORT], as in bootstrap.servers.
std::optional<std::string> check_servers(std::string_view servers);

// Between settings: all problems, each beginning with Config::where().

/// What can be told from the configuration alone. parse() has called it.
std::vector<std::string> check_config(const Config& config);

/// Who runs the topic: a Consumer turns duplicates that must not be skipped into dead letters, a PollLoop throws them.
enum class RunBy : std::uint8_t { consumer, poll_loop };

/// What can be told of a topic once code and configuration are merged into `effective`; also repeats, for what code has
/// set, the checks that the file has been through.
std::vector<std::string> check_topic(const Config& config, const std::string& topic, const TopicSettings& effective,
                                     RunBy run_by = RunBy::consumer);

/// Finds dead letter topics that lead in a circle. `dead_letters`: for each topic, the topic of its dead letters.
/// Returns one problem for each circle.
std::vector<std::string> check_dead_letters(const std::map<std::string, std::string>& dead_letters);

}  // namespace turnstile
