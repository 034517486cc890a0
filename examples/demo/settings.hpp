#pragma once
// The figures of the demo, in one place.

#include <chrono>

namespace demo {

/// Handlers running at once, over all processes together.
inline constexpr int handler_limit = 12;
/// What an operator lowers it to while it runs.
inline constexpr int lowered_limit = 5;
/// Of how many of the records the plain consumer gets a copy: two seconds of its work.
inline constexpr int control_part = 4;
/// How long the pretended work of one message takes. 12 handlers of 20 ms: at most 600 messages a second.
inline constexpr std::chrono::milliseconds handler_time{20};
/// How soon the group takes notice of a dead member. Kafka allows no less than 6 s by default.
inline constexpr std::chrono::milliseconds session_timeout{6'000};

/// How long permits outlive a member that nobody fences: far longer than the demo, so that what comes back sooner comes back by
/// the rebalance.
inline constexpr std::chrono::seconds permit_lease{120};

}  // namespace demo
