#pragma once
// The body of GET /status. docs/operations/monitoring.md describes it.

#include <string>
#include <vector>

#include "turnstile/explain.hpp"
#include "turnstile/status.hpp"

namespace turnstile::admin {

/// Bytes that are not UTF-8 are replaced.
std::string status_json(const Status& status, const std::vector<ExplainedSetting>& settings);

}  // namespace turnstile::admin
