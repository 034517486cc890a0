#pragma once
// Guesses the intended word for a misspelt one.

#include <optional>
#include <span>
#include <string_view>

namespace turnstile {

/// The candidate that is nearest to `word`, when few slips of the keyboard (a letter added, left out, mistaken, or
/// swapped with its neighbour) lie between them: one for every three letters. Upper and lower case are equal, and so
/// are '-', '.' and '_'. Of equally near ones the first. The answer is a view into `candidates`.
std::optional<std::string_view> suggest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace turnstile
