#pragma once
// The operator's way into the tables, once the schema is known to be one that this build can read.

#include "settings.hpp"
#include "turnstile/postgres/admin.hpp"

namespace turnstile::cli {

/// Throws UsageError (no database named), StoreUnavailable, SchemaError (with the command that puts it right).
postgres::Admin open_admin(const Config& config);

/// "payments[3]@1042 (group billing)"; "a partition that is no longer known, @1042" when its fence row is gone.
std::string place(const postgres::GroupPartition& from, Offset offset);

/// Throws UsageError, naming those that there are, when no handler has that name.
void require_handler(postgres::Admin& admin, const std::string& handler);
/// The same for a topic of which no consumer has ever claimed a partition.
void require_topic(postgres::Admin& admin, const std::string& topic);

/// Of a letter whose replay is in doubt: what an operator does about it.
std::string how_to_settle(const postgres::DeadSummary& dead);

}  // namespace turnstile::cli
