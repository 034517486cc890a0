#include "kept.hpp"

#include <charconv>

namespace turnstile::http {

namespace {

constexpr std::string_view kVersion = "H1";

void append(std::string& to, std::string_view bytes) {
  to.append(std::to_string(bytes.size())).append(1, ':').append(bytes).append(1, ',');
}

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Removes the first netstring, and returns its bytes.
std::optional<std::string_view> next(std::string_view& rest) {
  const auto colon = rest.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto size = number_in<std::size_t>(rest.substr(0, colon));
  rest.remove_prefix(colon + 1);
  if (!size || *size >= rest.size() || rest[*size] != ',') return std::nullopt;
  const auto bytes = rest.substr(0, *size);
  rest.remove_prefix(*size + 1);
  return bytes;
}

/// In newer versions of cpp-httplib a response can also name a file, which the server opens later.
template <class Response>
bool made_later(const Response& response) {
  if constexpr (requires { response.file_content_path_; }) {
    if (!response.file_content_path_.empty()) return true;
  }
  return static_cast<bool>(response.content_provider_);
}

}  // namespace

std::optional<Kept> taken_from(httplib::Response&& made) {
  if (made_later(made)) return std::nullopt;
  Kept kept;
  if (made.status != -1) kept.status = made.status;  // -1: the effect has set no status
  for (const auto& [name, value] : made.headers) kept.headers.emplace_back(name, value);
  kept.body = std::move(made.body);
  return kept;
}

std::string encode(const Kept& kept) {
  std::string bytes;
  bytes.reserve(kept.body.size() + 128);
  append(bytes, kVersion);
  append(bytes, std::to_string(kept.status));
  for (const auto& [name, value] : kept.headers) {
    append(bytes, name);
    append(bytes, value);
  }
  append(bytes, kept.body);
  return bytes;
}

std::optional<Kept> decode(std::string_view bytes) {
  const auto version = next(bytes);
  if (version != kVersion) return std::nullopt;
  const auto status = next(bytes);
  const auto number = status ? number_in<int>(*status) : std::nullopt;
  if (!number) return std::nullopt;
  Kept kept{.status = *number, .headers = {}, .body = {}};
  for (;;) {
    const auto name_or_body = next(bytes);
    if (!name_or_body) return std::nullopt;
    if (bytes.empty()) {
      kept.body = *name_or_body;
      return kept;
    }
    const auto value = next(bytes);
    if (!value) return std::nullopt;
    kept.headers.emplace_back(*name_or_body, *value);
  }
}

bool is_newer(std::string_view bytes) {
  const auto version = next(bytes);
  return version && version->starts_with('H') && version != kVersion;
}

void add(Kept&& kept, httplib::Response& response) {
  response.status = kept.status;
  for (auto& [name, value] : kept.headers) response.headers.emplace(std::move(name), std::move(value));
  response.body = std::move(kept.body);
}

}  // namespace turnstile::http
