#pragma once
// A consumer process of the demo: the code of a Turnstile user, and the counting around it.

#include <chrono>
#include <string>

namespace demo {

struct ConsumerOptions {
  int number = 0;      ///< from 1
  std::string config;  ///< the turnstile.toml of all consumers
  std::string board;   ///< the file of the notice board
  std::string topic;
  std::chrono::milliseconds handler_time{0};  ///< of one message
};

/// Runs until SIGTERM. Returns the exit code; errors are on stderr.
int consume(const ConsumerOptions& options);

}  // namespace demo
