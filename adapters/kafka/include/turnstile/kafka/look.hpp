#pragma once
// The findings of `turnstile doctor` and Consumer::check() about Kafka.

#include <string>
#include <vector>

#include "turnstile/config.hpp"
#include "turnstile/findings.hpp"

namespace turnstile::kafka {

/// Checks the brokers, and the topics with their dead letter and reply topics: their retention, and the lag of the
/// group. Also the token log with its members. `others`: topics that the configuration does not name; of them, only the
/// lag is checked. Waits some seconds for each answer; throws nothing.
void look_at(const Config& config, const std::vector<std::string>& others, Findings& findings);

}  // namespace turnstile::kafka
