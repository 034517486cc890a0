#pragma once
// The schema's migrations: files NUMBER_NAME.up.sql and NUMBER_NAME.down.sql, embedded in the library or read from a
// folder. All calls throw StoreUnavailable, SchemaError for what a person must decide, and StoreBusy, with who is in the way, for a lock on
// Turnstile's tables that was not free within postgres.lock_timeout; nothing was changed then.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/config.hpp"

namespace turnstile::postgres {

/// One numbered change of the schema.
struct Migration {
  int number = 0;        ///< 1 and up, without gaps
  std::string name;      ///< "inbox"
  std::string up_file;   ///< "0001_inbox.up.sql", for messages
  std::string up;        ///< the SQL that makes the change
  std::string down;      ///< the SQL that takes it back
  std::string checksum;  ///< SHA-256 of `up`, 64 hex digits
};

/// Those that this build was made with, in order.
const std::vector<Migration>& embedded_migration_list();
/// Those of a folder, in order. Throws ConfigError for a file without its counterpart, a number used twice or missing.
std::vector<Migration> read_migrations(const std::filesystem::path& folder);

/// One migration and where it stands in this database.
struct MigrationState {
  /// Where it stands.
  enum class Kind {
    applied,
    pending,  ///< known here, not run there
    changed,  ///< run there with another text
    unknown,  ///< run there by a newer build
  };
  int number = 0;             ///< of the migration
  std::string name;           ///< of the migration
  Kind kind = Kind::pending;  ///< where it stands
  std::string applied_at;     ///< as the server writes it; empty when pending
  std::string applied_by;     ///< the role that ran it; empty: it did not run
};

/// What was run and what is known, in the order of numbers. An absent schema is all pending.
std::vector<MigrationState> migrate_status(const PostgresSettings& settings, const std::vector<Migration>& known);
/// Runs what is pending in one transaction under an advisory transaction lock: of ten that start at once, one runs them
/// and nine find them done, without a limit to their wait. Makes the schema when it is missing. Returns what was run.
/// Throws SchemaError when a file that was run has changed, when the schema is newer, or when a file fails (with its
/// name and line; nothing was changed then).
/// `partitions`: afterwards the inbox is a table of so many hash partitions by id, 2 to 64, or 1 for a plain one. Throws SchemaError
/// when it is not and holds ids already (nothing was changed then). Without it the inbox stays as it is.
std::vector<Migration> migrate_up(const PostgresSettings& settings, const std::vector<Migration>& known,
                                  std::optional<int> partitions = std::nullopt);
/// Of the inbox: 1 for a plain table, 0 when there is none.
int inbox_partitions(const PostgresSettings& settings);
/// Takes the last `steps` back, newest first. The tables' contents go with them. Returns what was taken back.
std::vector<Migration> migrate_down(const PostgresSettings& settings, const std::vector<Migration>& known, int steps);

}  // namespace turnstile::postgres
