#pragma once
// What an admin endpoint shows of a running Consumer.

#include <functional>
#include <vector>

#include "turnstile/explain.hpp"
#include "turnstile/status.hpp"

namespace turnstile {

/// Functions of a Consumer. Any thread may call them, as long as the object lives that Backends::serve has returned.
struct AdminView {
  std::function<Status()> status;                           ///< as Consumer::status()
  std::function<std::vector<ExplainedSetting>()> settings;  ///< as Consumer::explain(); secrets are "***"
};

}  // namespace turnstile
