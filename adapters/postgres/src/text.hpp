#pragma once
// Texts of unknown origin (what() of somebody's exception) as PostgreSQL can hold them.

#include <string>
#include <string_view>

namespace turnstile::postgres {

/// The text with every byte that is not part of well-formed UTF-8, and every NUL, replaced by '?'.
std::string printable(std::string_view text);

}  // namespace turnstile::postgres
