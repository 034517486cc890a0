#pragma once
// The files of cli/src/dashboard/page, which the build puts into the program.

#include <string_view>

namespace turnstile::cli::dashboard {

/// "index.html". Empty if there is no such file.
std::string_view embedded(std::string_view name);

}  // namespace turnstile::cli::dashboard
