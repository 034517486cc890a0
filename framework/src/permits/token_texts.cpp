// The texts of turnstile/token_service.hpp.

#include <array>
#include <charconv>

#include "turnstile/token_service.hpp"

namespace turnstile {

std::string to_text(const TokenId& id) {
  std::array<char, 40> text{};
  const auto end = std::to_chars(text.data(), text.data() + 16, id.service, 16).ptr;
  *end = '-';
  return {text.data(), std::to_chars(end + 1, text.data() + text.size(), id.number).ptr};
}

std::optional<TokenId> parse_token_id(std::string_view text) {
  TokenId id;
  const char* end = text.data() + text.size();
  const auto service = std::from_chars(text.data(), end, id.service, 16);
  if (service.ec != std::errc{} || service.ptr == end || *service.ptr != '-') return std::nullopt;
  const auto number = std::from_chars(service.ptr + 1, end, id.number);
  if (number.ec != std::errc{} || number.ptr != end) return std::nullopt;
  return id;
}

std::string_view to_text(ReleaseAnswer answer) {
  static constexpr std::array<std::string_view, 6> kTexts{"released", "too late", "already",
                                                          "expired",  "foreign",  "unknown"};
  return kTexts.at(static_cast<std::size_t>(answer));
}
std::string_view to_text(KeepAnswer answer) {
  static constexpr std::array<std::string_view, 6> kTexts{"kept", "lost", "already", "expired", "foreign", "unknown"};
  return kTexts.at(static_cast<std::size_t>(answer));
}

}  // namespace turnstile
