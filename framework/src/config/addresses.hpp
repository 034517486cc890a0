#pragma once
// Checks addresses of databases and brokers, as far as possible without a connection. Absent: the address is valid.
// Otherwise a sentence that follows the setting's name. No sentence quotes a URL, which can contain a password.

#include <optional>
#include <string>
#include <string_view>

namespace turnstile::detail {

/// Checks a libpq URL or key=value text.
std::optional<std::string> check_postgres_url(const std::string& url);
/// Checks HOST:PORT, as in `[admin] listen`. An empty text is valid, and so is port 0.
std::optional<std::string> check_listen(const std::string& address);
/// Checks the URL of a collector: http or https, without a user and a query. An empty text is valid.
std::optional<std::string> check_collector(const std::string& url);
/// Checks a list of NAME=VALUE, as in `[tracing] headers`.
std::optional<std::string> check_headers(const std::string& headers);
/// Checks a list of HOST[:PORT], as in bootstrap.servers.
std::optional<std::string> check_servers(std::string_view servers);

}  // namespace turnstile::detail
