#pragma once
// Dead letters as JSON.

#include "text.hpp"
#include "turnstile/postgres/dead.hpp"

namespace turnstile::cli {

Json to_json(const postgres::DeadSummary& dead);
/// With its record. Bytes that are no text are {"base64": "…"}.
Json to_json(const postgres::DeadRecord& dead);

}  // namespace turnstile::cli
