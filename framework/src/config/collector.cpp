// The address of a collector and the headers of its requests (`[tracing]`).

#include <algorithm>
#include <array>
#include <charconv>

#include "config/addresses.hpp"
#include "turnstile/config.hpp"

namespace turnstile {
namespace {

using Target = TracingSettings::Target;

constexpr const char* kForm = "; write http://HOST:4318 or https://HOST:4318";

std::string_view without_spaces(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

/// Bytes that a URL, or the value of a header, can have.
bool is_visible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

/// Reads `url`. Returns a sentence that follows the setting's name if it is no such URL; it does not quote the URL.
std::optional<std::string> read_url(std::string_view url, Target& into) {
  const auto scheme_end = url.find("://");
  const auto scheme = url.substr(0, std::min(scheme_end, url.size()));
  if (scheme_end == std::string_view::npos || (scheme != "http" && scheme != "https"))
    return std::string("is not a URL with http or https") + kForm;
  into.is_https = scheme == "https";
  url.remove_prefix(scheme_end + 3);
  if (!is_visible(url)) return std::string("has a space or a byte that is not ASCII") + kForm;
  if (url.find_first_of("?#") != std::string_view::npos)
    return std::string("must not have a query or a fragment") + kForm;
  const auto path = std::min(url.find('/'), url.size());
  auto authority = url.substr(0, path);
  if (authority.find('@') != std::string_view::npos)
    return "must not have a user or a password; set tracing.headers instead (TURNSTILE_TRACING_HEADERS)";

  const bool bracketed = authority.starts_with('[');
  const auto host_end = bracketed ? authority.find(']') : std::min(authority.find(':'), authority.size());
  if (host_end == std::string_view::npos) return std::string("has a '[' without a ']'") + kForm;
  into.host = bracketed ? authority.substr(1, host_end - 1) : authority.substr(0, host_end);
  if (into.host.empty()) return std::string("names no host") + kForm;
  authority.remove_prefix(host_end + (bracketed ? 1 : 0));
  into.port = into.is_https ? 443 : 80;
  if (!authority.empty()) {
    unsigned port = 0;
    const auto text = authority.substr(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
    if (authority.front() != ':' || error != std::errc{} || end != text.data() + text.size() || port < 1 ||
        port > 65'535)
      return std::string("has a port that is not a number from 1 to 65535") + kForm;
    into.port = static_cast<int>(port);
  }
  into.path = url.substr(path);
  while (into.path.ends_with('/')) into.path.pop_back();
  into.path += "/v1/traces";
  return std::nullopt;
}

std::optional<std::string> decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned byte = 0;
    const auto digits = text.substr(i + 1, 2);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (digits.size() != 2 || error != std::errc{} || end != digits.data() + 2) return std::nullopt;
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

/// The characters of a token of RFC 9110.
bool is_header_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

/// Framing and routing of the request are not the user's.
bool is_reserved(std::string_view name) {
  constexpr std::array<std::string_view, 7> reserved{
      "host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "expect"};
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return std::find(reserved.begin(), reserved.end(), lower) != reserved.end();
}

std::optional<std::string> read_headers(std::string_view text, std::vector<std::pair<std::string, std::string>>& into) {
  constexpr const char* form = "; write NAME=VALUE, separated by commas, with percent-encoded values";
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    const auto pair = without_spaces(text.substr(begin, end - begin));
    begin = end + 1;
    if (pair.empty()) continue;
    const auto equals = pair.find('=');
    const auto name = without_spaces(pair.substr(0, equals));
    if (equals == std::string_view::npos || !is_header_name(name))
      return std::string("has an entry that is not NAME=VALUE") + form;
    if (is_reserved(name)) return "must not set '" + std::string(name) + "': Turnstile sets it";
    const auto value = decoded(without_spaces(pair.substr(equals + 1)));
    const bool is_text =
        value && std::all_of(value->begin(), value->end(), [](char c) { return c >= ' ' && c <= '~'; });
    if (!is_text) return "has a value of '" + std::string(name) + "' that no header can have" + form;
    into.emplace_back(name, *value);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Target> TracingSettings::target() const {
  Target target;
  if (endpoint.empty() || read_url(endpoint, target)) return std::nullopt;
  return target;
}

std::vector<std::pair<std::string, std::string>> TracingSettings::header_list() const {
  std::vector<std::pair<std::string, std::string>> list;
  read_headers(headers.reveal(), list);
  return list;
}

std::optional<std::string> detail::check_collector(const std::string& url) {
  Target ignored;
  return url.empty() ? std::nullopt : read_url(url, ignored);
}

std::optional<std::string> detail::check_headers(const std::string& headers) {
  std::vector<std::pair<std::string, std::string>> ignored;
  return read_headers(headers, ignored);
}

}  // namespace turnstile
