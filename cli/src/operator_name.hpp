#pragma once
// The name of the operator, for the record of what was changed.

#include <string>

namespace turnstile::cli {

/// "ada@host1": the user of this process, and its machine.
std::string operator_name();

}  // namespace turnstile::cli
