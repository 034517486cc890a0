#pragma once
// The numbers of the demo, in one place.

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace demo {

/// Handlers that run at once, over all processes.
inline constexpr int kHandlerLimit = 12;
/// The limit that an operator sets while it runs.
inline constexpr int kLoweredLimit = 5;
/// The plain consumer gets a copy of this part of the records: a quarter.
inline constexpr int kControlPart = 4;
/// How many records to publish. With fewer, a step could be without work. With more, it would take many minutes, and
/// the embedded broker keeps at most 5 MiB of each partition.
inline constexpr int kLeastMessages = 300;
inline constexpr int kMostMessages = 100'000;
/// From this number on, the simulated work of a message takes at most 20 ms: 12 handlers, at most 600 messages a
/// second.
inline constexpr int kMessagesAtFullSpeed = 9'000;
inline constexpr std::chrono::milliseconds kLeastHandlerTime{20};
/// The largest timeout of a step, in seconds.
inline constexpr int kMostTimeout = 3'600;

/// The handlers' work in total if they run at the limit: enough for every step.
inline constexpr std::chrono::milliseconds kLeastWork{12'000};
/// The simulated work of a message: longer if there are fewer messages.
constexpr std::chrono::milliseconds handler_time(std::int64_t different_ids) {
  return std::max(kLeastHandlerTime, kLeastWork * kHandlerLimit / different_ids);
}
/// The largest batch of the handler: 400 ms of work, and at most 20 messages.
constexpr std::int64_t batch_of(std::chrono::milliseconds handler_time) {
  return std::clamp<std::int64_t>(std::chrono::milliseconds{400} / handler_time, 1, 20);
}
/// How soon the group notices a dead member. Kafka's default minimum is 6 s.
inline constexpr std::chrono::milliseconds kSessionTimeout{6'000};
/// The same for the embedded broker, whose rebalances take this less a second.
inline constexpr std::chrono::milliseconds kEmbeddedSessionTimeout{4'000};

/// How long the permits of a dead member last if no new owner fences it: far longer than the demo. Permits that return
/// earlier therefore return by the rebalance.
inline constexpr std::chrono::seconds kPermitLease{120};

}  // namespace demo
