#pragma once
// Parses the header Idempotency-Key. Pure.

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

namespace turnstile::http {

/// `why` is for the client. It never quotes the request.
struct Malformed {
  std::string why;
};

using Key = std::variant<std::string, Malformed>;

/// Checks for printable ASCII, not empty, at most `max` bytes. `why` has no subject: "is empty".
Key check_key(std::string key, std::size_t max);

/// The key in the header's value. Either a string of structured fields (RFC 8941, "a \"quoted\" key", without
/// parameters), or a bare word of visible ASCII without quotes and commas. "abc" and abc are the same key. `max`
/// excludes the quotes. `why` is a sentence.
Key parse_key(std::string_view value, std::size_t max);

}  // namespace turnstile::http
