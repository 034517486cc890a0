#pragma once
// One consumer process of the demo: what a user of Turnstile would write, and the counting round it.

#include <chrono>
#include <string>

namespace demo {

struct ConsumerOptions {
  int number = 0;      ///< from 1
  std::string config;  ///< the turnstile.toml that all consumers share
  std::string board;   ///< file of the notice board
  std::string topic;
  std::chrono::milliseconds handler_time{0};  ///< of one message
};

/// Runs until SIGTERM. Returns the exit code; what went wrong is on stderr.
int consume(const ConsumerOptions& options);

}  // namespace demo
