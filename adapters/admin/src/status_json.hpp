#pragma once
// The body of GET /status. docs/reference/admin.md lists the fields.

#include <string>
#include <vector>

#include "turnstile/explain.hpp"
#include "turnstile/status.hpp"

namespace turnstile::admin {

/// Bytes that are not UTF-8 are replaced.
std::string status_json(const Status& status, const std::vector<ExplainedSetting>& settings);

}  // namespace turnstile::admin
