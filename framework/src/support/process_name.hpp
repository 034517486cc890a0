#pragma once
// The name of this process: the same in its logs, in Health, and in `turnstile permits`.

#include <string>
#include <string_view>

namespace turnstile::detail {

std::string host_name();
/// process_name() of turnstile/tokens.hpp for this process.
std::string own_name(std::string_view client);

}  // namespace turnstile::detail
