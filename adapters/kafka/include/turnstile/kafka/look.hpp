#pragma once
// What `turnstile doctor` and Consumer::check() see of Kafka.

#include "turnstile/config.hpp"
#include "turnstile/findings.hpp"

namespace turnstile::kafka {

/// The brokers; the topics with their dead letter and reply topics, how long they keep records, and how far the group is behind; the token
/// log with its members. Waits some seconds for each answer; throws nothing.
void look_at(const Config& config, Findings& findings);

}  // namespace turnstile::kafka
