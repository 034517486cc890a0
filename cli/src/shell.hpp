#pragma once
// Commands that an operator can copy into a shell.

#include <optional>
#include <string>
#include <string_view>

namespace turnstile::cli {

/// The text as one word for sh. Bytes that a terminal does not show are written as numbers. Absent if sh cannot pass the
/// text as an argument: it contains NUL, or ends with a line feed beside such bytes.
std::optional<std::string> shell_word(std::string_view text);

}  // namespace turnstile::cli
