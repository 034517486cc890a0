#include "engine/incarnation_text.hpp"

#include <charconv>
#include <iterator>

namespace turnstile::detail {

namespace {

constexpr std::string_view kPrefix = "turnstile:";
constexpr std::size_t kMost = 8;
/// No log has so many incarnations. A higher number is somebody else's, and could not be counted up.
constexpr std::int32_t kHighest = 1'000'000'000;

/// Removes a number from the beginning of the text.
template <class Number>
bool take_number(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take_character(std::string_view& text, char expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string write_incarnations(const Incarnations& incarnations) {
  std::string text(kPrefix);
  const std::size_t left_out = incarnations.size() > kMost ? incarnations.size() - kMost : 0;
  for (auto it = std::next(incarnations.begin(), static_cast<std::ptrdiff_t>(left_out)); it != incarnations.end();
       ++it) {
    if (text.size() > kPrefix.size()) text += ',';
    text += std::to_string(it->first) + '@' + std::to_string(it->second);
  }
  return text;
}

std::optional<Incarnations> read_incarnations(std::string_view text) {
  if (!text.starts_with(kPrefix)) return std::nullopt;
  text.remove_prefix(kPrefix.size());
  Incarnations incarnations;
  do {
    std::int32_t incarnation = 0;
    Offset began = 0;
    if (!take_number(text, incarnation) || !take_character(text, '@') || !take_number(text, began)) return std::nullopt;
    if (incarnation > kHighest) return std::nullopt;
    incarnations[incarnation] = began;
  } while (take_character(text, ','));
  if (!text.empty()) return std::nullopt;
  return incarnations;
}

}  // namespace turnstile::detail
