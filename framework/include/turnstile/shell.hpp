#pragma once
// Commands that a person can copy into a shell.

#include <optional>
#include <string>
#include <string_view>

namespace turnstile::text {

/// The text as one word for sh. Bytes that a terminal does not show are written as numbers. Absent if sh cannot pass the
/// text as an argument: it contains NUL, or ends with a line feed beside such bytes.
std::optional<std::string> shell_word(std::string_view text);
/// The text as the last arguments of a command. The mark `--` is before it if it begins with '-', because it would be an
/// option without. `otherwise` if sh cannot pass the text.
std::string shell_operand(std::string_view text, std::string_view otherwise);
/// An option with this value, as one word or two: `--key K` or `--key=-1`. `otherwise` is the value if sh cannot pass it.
std::string shell_option(std::string_view option, std::string_view value, std::string_view otherwise);

}  // namespace turnstile::text
