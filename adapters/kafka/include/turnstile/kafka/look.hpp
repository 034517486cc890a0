#pragma once
// The findings of `turnstile doctor` and Consumer::check() about Kafka.

#include "turnstile/config.hpp"
#include "turnstile/findings.hpp"

namespace turnstile::kafka {

/// Checks the brokers, and the topics with their dead letter and reply topics: their retention, and the lag of the
/// group. Also the token log with its members. Waits some seconds for each answer; throws nothing.
void look_at(const Config& config, Findings& findings);

}  // namespace turnstile::kafka
