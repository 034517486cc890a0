#pragma once
// The version of the librdkafka that this process has loaded. The version it was compiled with can differ.

#include <string>

namespace turnstile::kafka {

/// "2.0.2"
std::string library_version();

}  // namespace turnstile::kafka
