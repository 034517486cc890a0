#pragma once
// The demo from its first line to its last: publishes, starts consumers, kills one, waits, and counts.

#include <chrono>
#include <string>

namespace demo {

struct StoryOptions {
  std::string postgres;  ///< a URL of a database in which a schema may be made
  std::string kafka;     ///< host:port; empty: librdkafka's mock broker, in this process
  int messages = 9'000;  ///< records to publish, second copies included
  bool keep = false;     ///< leave the schema, the topics and the folder for a look
  /// How long the story waits at each step; a wait for records to be handled may take three times their work longer.
  std::chrono::seconds timeout{60};
};

/// Thrown at SIGINT and SIGTERM.
struct Interrupted {};

/// 0 when every invariant held, 1 when one did not. Throws Interrupted. Throws std::exception when the story cannot be
/// told: a server does not answer, a consumer dies, or a step takes too long.
int tell(const StoryOptions& options);

}  // namespace demo
