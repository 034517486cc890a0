#pragma once
// The holders of permits at a point of the token log.

#include "domain.hpp"
#include "point.hpp"

namespace turnstile::cli {

/// Reads up to this position, or to the last record before this time. Throws Error if the log does not have it, or does
/// not have it any more, and BrokerError.
void replay_to(TokenReader& reader, const std::variant<std::int64_t, Microseconds>& point);
Json replay_as_json(const TokenReader& reader);

}  // namespace turnstile::cli
