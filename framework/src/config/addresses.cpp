#include "config/addresses.hpp"

#include <algorithm>
#include <charconv>
#include <vector>

#include "turnstile/config.hpp"

namespace turnstile::detail {
namespace {

bool is_port(std::string_view text) {
  unsigned port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc{} && end == text.data() + text.size() && port >= 1 && port <= 65'535;
}

/// The port in HOST, HOST:PORT, [IPV6] or [IPV6]:PORT, without the colon.
std::optional<std::string_view> port_of(std::string_view address) {
  const auto bracket = address.rfind(']');
  const auto colon = address.rfind(':');
  if (colon == std::string_view::npos || (bracket != std::string_view::npos && colon < bracket)) return std::nullopt;
  return address.substr(colon + 1);
}

std::vector<std::string_view> split(std::string_view list) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= list.size();) {
    const auto end = std::min(list.find(',', begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

std::optional<std::string> check_listen(const std::string& address) {
  if (address.empty() || AdminSettings{address}.address()) return std::nullopt;
  return "is not HOST:PORT with a port from 0 to 65535; write 127.0.0.1:9464, or [::1]:9464";
}

std::optional<std::string> check_postgres_url(const std::string& url) {
  constexpr const char* form = "; write postgresql://USER@HOST:5432/DATABASE, or \"host=HOST dbname=DATABASE\"";
  if (url.empty()) return std::string("is empty") + form;
  const auto scheme_end = url.find("://");
  if (scheme_end == std::string::npos) {
    if (url.find('=') == std::string::npos) return std::string("is not an address of a database") + form;
    return std::nullopt;
  }
  const auto scheme = std::string_view(url).substr(0, scheme_end);
  if (scheme != "postgresql" && scheme != "postgres") {
    return scheme.find('=') != std::string_view::npos
               ? std::nullopt
               : std::optional(std::string("has a scheme other than postgresql") + form);
  }
  const auto begin = scheme_end + 3;
  auto authority = std::string_view(url).substr(begin, url.find_first_of("/?", begin) - begin);
  if (const auto at = authority.rfind('@'); at != std::string_view::npos) authority.remove_prefix(at + 1);
  for (const auto host : split(authority)) {
    const auto port = port_of(host);
    if (port && !port->empty() && !is_port(*port)) {
      return "has a port that is not a number from 1 to 65535 (percent-encode '/', '@' and ':' in a password)";
    }
  }
  return std::nullopt;
}

std::optional<std::string> check_servers(std::string_view servers) {
  for (auto server : split(servers)) {
    const auto begin = server.find_first_not_of(' ');
    server = begin == std::string_view::npos ? "" : server.substr(begin, server.find_last_not_of(' ') - begin + 1);
    if (const auto scheme = server.find("://"); scheme != std::string_view::npos) server.remove_prefix(scheme + 3);
    if (server.empty()) return "has an empty address; write a list of HOST:PORT, such as \"localhost:9092\"";
    const auto port = port_of(server);
    if (port && !is_port(*port)) {
      return "'" + std::string(server) + "' has an invalid port; write HOST:PORT with a port from 1 to 65535";
    }
  }
  return std::nullopt;
}

}  // namespace turnstile::detail

std::optional<turnstile::AdminSettings::Address> turnstile::AdminSettings::address() const {
  const auto port = detail::port_of(listen);
  if (!port || (*port != "0" && !detail::is_port(*port))) return std::nullopt;
  std::string_view host = std::string_view(listen).substr(0, listen.size() - port->size() - 1);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty() || (!bracketed && host.find(':') != std::string_view::npos)) return std::nullopt;
  return Address{std::string(host), std::stoi(std::string(*port))};
}
