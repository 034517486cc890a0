#pragma once
// Which requests the dashboard refuses: from other origins, to other names, and changes without permission. Pure.

#include <optional>
#include <string>
#include <string_view>

namespace turnstile::cli::dashboard {

/// The parts of a request that decide. An absent header is empty.
struct Caller {
  std::string method{}, path{};
  std::string host{};    ///< Host
  std::string origin{};  ///< Origin
  std::string site{};    ///< Sec-Fetch-Site
  std::string type{};    ///< Content-Type
  std::string token{};   ///< X-Turnstile-Token
  std::string coding{};  ///< Transfer-Encoding
  std::string length{};  ///< Content-Length
};

struct Rules {
  std::string host{};  ///< that it listens on, without the brackets of IPv6
  bool allow_changes = false;
  std::string token{};  ///< of this process, which its page knows
};

struct Refused {
  int status = 403;
  std::string why{};  ///< one line, for people
};

/// Absent: the request is answered.
/// A page of another site can make a browser send requests here, but it can neither choose these headers nor read the
/// token. With DNS rebinding, its name points to this address: the header Host then shows that name.
std::optional<Refused> refuse(const Rules& rules, const Caller& caller);

/// Whether only this machine can connect to the address.
bool is_loopback(std::string_view host);

}  // namespace turnstile::cli::dashboard
