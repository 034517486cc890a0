#pragma once
// The control: a consumer without Turnstile, on librdkafka and libpq alone. It commits an offset after it has handled
// the message. It runs as many handlers as the limit allows within one process.

#include "consumer.hpp"

namespace demo {

/// Runs until SIGTERM. Returns the exit code; errors are on stderr.
int consume_plain(const ConsumerOptions& options);

}  // namespace demo
