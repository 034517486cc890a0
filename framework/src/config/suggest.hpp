#pragma once
// Guesses the intended word for a misspelt one.

#include <optional>
#include <span>
#include <string_view>

namespace turnstile::detail {

/// The candidate that is nearest to `word`. They may differ by 1 typing error, or by 1 for every 3 letters if that is
/// more. A typing error is a letter added, left out, mistaken, or swapped with its neighbour. Upper and lower case are
/// equal, and so are '-', '.' and '_'. If several are equally near, the first of them. The result is a view into
/// `candidates`.
std::optional<std::string_view> suggest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace turnstile::detail
