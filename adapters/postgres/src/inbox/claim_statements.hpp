#pragma once
// What the store and the commands of an operator both ask about claims.

#include <string>

namespace turnstile::postgres {

/// A condition on a claim whose lease has ended: its handler had not begun, so the next consumer runs the message.
inline const std::string not_begun =
    "coalesce(unbegun_by = owner AND unbegun_in = pg_catalog.pg_postmaster_start_time(), false)";

}  // namespace turnstile::postgres
