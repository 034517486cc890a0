#pragma once
// The demo from its first line to its last: publishes, starts consumers, kills one, waits, and counts.

#include <string>

namespace demo {

struct StoryOptions {
  std::string postgres;   ///< a URL of a database in which a schema may be made
  std::string kafka;      ///< host:port; empty: librdkafka's mock broker, in this process
  int messages = 12'000;  ///< records to publish, second copies included
  bool keep = false;      ///< leave the schema and the folder for a look
};

/// 0 when every invariant held, 1 when one did not. Throws std::exception when the story cannot be told.
int tell(const StoryOptions& options);

}  // namespace demo
