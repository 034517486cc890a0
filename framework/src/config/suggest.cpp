#include "config/suggest.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace turnstile::detail {
namespace {

std::string folded(std::string_view word) {
  std::string out(word);
  for (auto& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-' || c == '.') c = '_';
  }
  return out;
}

/// Restricted Damerau-Levenshtein distance. Keeps the last three rows of the table.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, changed});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::optional<std::string_view> suggest(std::string_view word, std::span<const std::string_view> candidates) {
  constexpr std::size_t longest = 100;  // a longer word is not a typing error, and the table would grow with its square
  if (word.size() > longest) return std::nullopt;
  const std::string wanted = folded(word);
  std::optional<std::string_view> nearest;
  std::size_t nearest_distance = std::max<std::size_t>(1, wanted.size() / 3) + 1;
  for (const auto candidate : candidates) {
    const std::size_t d = distance(wanted, folded(candidate));
    if (d >= nearest_distance) continue;
    nearest = candidate;
    nearest_distance = d;
  }
  return nearest;
}

}  // namespace turnstile::detail
