#pragma once
// What this process is called: the same in its logs, in Health, and in `turnstile permits`.

#include <string>
#include <string_view>

namespace turnstile {

std::string host_name();
/// process_name() of turnstile/tokens.hpp, of this very process.
std::string own_name(std::string_view client);

}  // namespace turnstile
