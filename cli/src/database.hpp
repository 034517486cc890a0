#pragma once
// Opens the tables for an operator, after it has checked that this build can read the schema.

#include "settings.hpp"
#include "turnstile/postgres/admin.hpp"

namespace turnstile::cli {

/// Throws UsageError (no database named), StoreUnavailable, SchemaError (with the command that corrects it).
postgres::Admin open_admin(const Config& config);

/// "payments[3]@1042 (group billing)"; "a partition that is no longer known, @1042" if its fence row does not exist.
std::string place(const postgres::GroupPartition& from, Offset offset);

/// Throws UsageError, which names the existing handlers, if no handler has that name.
void require_handler(postgres::Admin& admin, const std::string& handler);
/// The same for a topic without any claimed partition.
void require_topic(postgres::Admin& admin, const std::string& topic);

/// For a dead letter whose replay is in doubt: what an operator can do. It ends with a command.
std::string how_to_settle(const postgres::DeadSummary& dead);

}  // namespace turnstile::cli
