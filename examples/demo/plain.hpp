#pragma once
// The control: a consumer without Turnstile, over librdkafka and libpq alone. It commits an offset after the message was handled, and
// runs as many handlers as the limit allows, as far as one process can know.

#include "consumer.hpp"

namespace demo {

/// Runs until SIGTERM. Returns the exit code; what went wrong is on stderr.
int consume_plain(const ConsumerOptions& options);

}  // namespace demo
