#pragma once
// SHA-256 and its HMAC, through OpenSSL. Thread-safe: each thread keeps a context of its own.

#include <array>
#include <cstdint>
#include <string_view>

namespace turnstile::detail {

using Sha256 = std::array<std::uint8_t, 32>;

/// Throws only std::bad_alloc: OpenSSL always has this digest.
Sha256 sha256(std::string_view bytes);
/// HMAC with SHA-256 (RFC 2104). Throws only std::bad_alloc.
Sha256 hmac_sha256(std::string_view secret, std::string_view bytes);

}  // namespace turnstile::detail
