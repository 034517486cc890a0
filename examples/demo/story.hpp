#pragma once
// The demo from its first line to its last: it publishes, starts consumers, kills one, waits, and counts.

#include <chrono>
#include <string>

namespace demo {

struct StoryOptions {
  std::string postgres;  ///< a URL of a database in which a schema may be created
  std::string kafka;     ///< host:port; empty: librdkafka's mock broker, in this process
  int messages = 9'000;  ///< records to publish, including copies
  bool keep = false;     ///< keep the schema, the topics and the folder
  /// The timeout of each step. A wait for records to be handled may take longer, by three times their work.
  std::chrono::seconds timeout{60};
};

/// Thrown after SIGINT and SIGTERM.
struct Interrupted {};

/// Returns 0 if every invariant was true, otherwise 1. Throws Interrupted. Throws std::exception if the story cannot
/// continue: a server does not answer, a consumer dies, or a step takes too long.
int tell(const StoryOptions& options);

}  // namespace demo
