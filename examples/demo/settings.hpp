#pragma once
// The figures of the demo, in one place.

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace demo {

/// Handlers running at once, over all processes together.
inline constexpr int kHandlerLimit = 12;
/// What an operator lowers it to while it runs.
inline constexpr int kLoweredLimit = 5;
/// The plain consumer gets a copy of this part of the records: a quarter.
inline constexpr int kControlPart = 4;
/// Records to publish. Fewer would leave some step without work; more would take many minutes, and the embedded broker
/// keeps no more than 5 MiB of each partition.
inline constexpr int kLeastMessages = 300;
inline constexpr int kMostMessages = 100'000;
/// From here on the pretended work of a message takes no more than 20 ms: 12 handlers, at most 600 messages a second.
inline constexpr int kMessagesAtFullSpeed = 9'000;
inline constexpr std::chrono::milliseconds kLeastHandlerTime{20};
/// Seconds that each wait of the story may take.
inline constexpr int kMostTimeout = 3'600;

/// What the handlers have to do in all, where they run at the limit: enough that no step runs out of work.
inline constexpr std::chrono::milliseconds kLeastWork{12'000};
/// How long the pretended work of one message takes: the fewer the messages, the longer.
constexpr std::chrono::milliseconds handler_time(std::int64_t different_ids) {
  return std::max(kLeastHandlerTime, kLeastWork * kHandlerLimit / different_ids);
}
/// How many messages the handler may take into one transaction: 400 ms of work, and no more than 20.
constexpr std::int64_t batch_of(std::chrono::milliseconds handler_time) {
  return std::clamp<std::int64_t>(std::chrono::milliseconds{400} / handler_time, 1, 20);
}
/// How soon the group takes notice of a dead member. Kafka allows no less than 6 s by default.
inline constexpr std::chrono::milliseconds kSessionTimeout{6'000};
/// The same on the embedded broker, whose rebalances take this less a second.
inline constexpr std::chrono::milliseconds kEmbeddedSessionTimeout{4'000};

/// How long permits outlive a member that nobody fences: far longer than the demo, so that what comes back sooner comes back by
/// the rebalance.
inline constexpr std::chrono::seconds kPermitLease{120};

}  // namespace demo
