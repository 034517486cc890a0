#pragma once
// The figures of the demo, in one place.

#include <chrono>

namespace demo {

/// Handlers running at once in each process. In this release a limit counts within a process.
inline constexpr int handler_limit = 8;
/// How long the pretended work of one message takes. 8 handlers of 20 ms: at most 400 messages a second and process.
inline constexpr std::chrono::milliseconds handler_time{20};
/// How soon the group takes notice of a dead member. Kafka allows no less than 6 s by default.
inline constexpr std::chrono::milliseconds session_timeout{6'000};

}  // namespace demo
