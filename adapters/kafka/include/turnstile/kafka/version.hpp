#pragma once
// Which librdkafka this process runs with: the one that was loaded, not the one that was compiled against.

#include <string>

namespace turnstile::kafka {

/// "2.0.2"
std::string library_version();

}  // namespace turnstile::kafka
