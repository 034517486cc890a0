#pragma once
// Texts of unknown origin (what() of any exception) in a form that PostgreSQL can store, and bytes in PostgreSQL's text
// form.

#include <optional>
#include <string>
#include <string_view>

#include "turnstile/text.hpp"
#include "turnstile/transaction.hpp"

namespace turnstile::postgres {

using text::printable;

/// Two digits for each byte.
std::string hex(std::string_view bytes);
/// A column of bytea: `\x` and digits.
std::optional<std::string> bytes_at(const Rows& rows, std::size_t row, std::size_t column);

}  // namespace turnstile::postgres
