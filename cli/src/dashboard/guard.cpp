#include "guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace turnstile::cli::dashboard {

namespace {

constexpr std::size_t kShown = 80;

/// For a message: without control characters.
std::string shown(std::string_view text) {
  std::string line(text.substr(0, kShown));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return line;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

/// "localhost" of "localhost:8080", "::1" of "[::1]:8080".
std::string name_of(std::string_view host) {
  if (host.starts_with('[')) return lower(host.substr(1, host.find(']') - 1));
  return lower(host.substr(0, host.rfind(':')));
}

bool is_ipv4(std::string_view name) {
  return !name.empty() && std::count(name.begin(), name.end(), '.') == 3 &&
         std::all_of(name.begin(), name.end(), [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
}

bool is_all_addresses(std::string_view host) { return host == "0.0.0.0" || host == "::"; }

bool is_own_name(const Rules& rules, std::string_view host) {
  const std::string name = name_of(host);
  if (name == "localhost" || is_loopback(name) || name == lower(rules.host)) return true;
  // An address is no name that another site could point here.
  return is_all_addresses(rules.host) && (is_ipv4(name) || host.starts_with('['));
}

/// Takes the same time for each wrong token.
bool is_same(std::string_view given, std::string_view token) {
  if (given.size() != token.size() || token.empty()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < token.size(); ++i)
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(token[i]);
  return difference == 0;
}

}  // namespace

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || (is_ipv4(host) && host.starts_with("127."));
}

std::optional<Refused> refuse(const Rules& rules, const Caller& caller) {
  if (!is_own_name(rules, caller.host)) {
    return Refused{421, fmt::format("the request is for host \"{}\", and not for {} or localhost: refused, because "
                                    "another site could have given its name this address",
                                    shown(caller.host), rules.host)};
  }
  if (!caller.origin.empty() && caller.origin != "http://" + caller.host && caller.origin != "https://" + caller.host) {
    return Refused{403, fmt::format("the request comes from another origin, \"{}\": refused", shown(caller.origin))};
  }
  const bool is_page = caller.path == "/";  // another site may link to it
  if (!is_page && (caller.site == "cross-site" || caller.site == "same-site"))
    return Refused{403, "the request comes from a page of another origin: refused"};
  if (caller.method == "GET" || caller.method == "HEAD") return std::nullopt;
  if (caller.method != "POST") return Refused{405, "the dashboard answers GET, HEAD and POST only"};
  // The limit of a body is checked by its length. Without one, the body ends with the connection.
  if (!caller.coding.empty() || caller.length.empty())
    return Refused{411, "a change needs Content-Length, and no Transfer-Encoding"};
  if (!rules.allow_changes)
    return Refused{403, "changes are disabled: start it with turnstile dashboard --allow-changes"};
  if (!lower(caller.type).starts_with("application/json"))
    return Refused{415, "a change needs Content-Type: application/json"};
  if (!is_same(caller.token, rules.token)) {
    return Refused{403,
                   "the request has no valid CSRF token in X-Turnstile-Token: refused. Reload the page: the token is "
                   "a new one after each start of the dashboard"};
  }
  return std::nullopt;
}

}  // namespace turnstile::cli::dashboard
