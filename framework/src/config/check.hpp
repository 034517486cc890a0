#pragma once
// Checks what settings mean for each other and for a topic. What a single value may be is checked when it is read.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "turnstile/config.hpp"

namespace turnstile::detail {

/// The shortest lease of a claim. Results are recorded after 50 ms at the latest, and the lease must outlast two stalls
/// of the disk in that time.
inline constexpr std::chrono::milliseconds kShortestClaimLease{1'000};
/// The window needs a bit for each number, in one row: at most half a page of PostgreSQL.
inline constexpr std::int64_t kLeastRequestWindow = 8, kMostRequestWindow = 32'768;

// These checks return all problems, each beginning with Config::where().

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
