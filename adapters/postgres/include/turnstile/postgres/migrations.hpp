#pragma once
// The schema's migrations: files NUMBER_NAME.up.sql and NUMBER_NAME.down.sql, embedded in the library or read from a
// folder. All calls throw StoreUnavailable, and SchemaError if an operator must decide. They throw StoreBusy if a lock
// on Turnstile's tables is not free within postgres.lock_timeout; then nothing was changed. Its text names the blocking
// sessions, or candidates if they could not be found (as behind a pooler).

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/config.hpp"

namespace turnstile::postgres {

/// A numbered change of the schema.
struct Migration {
  int number = 0;        ///< from 1, without gaps
  std::string name;      ///< "inbox"
  std::string up_file;   ///< "0001_inbox.up.sql", for messages
  std::string up;        ///< the SQL that makes the change
  std::string down;      ///< the SQL that reverts it
  std::string checksum;  ///< SHA-256 of `up`, 64 hex digits
  /// Builds whose newest migration has this number, or a higher one, can run with the schema after this migration. It
  /// is the number in the first line of `up`, or `number` itself if there is none: then earlier builds do not start.
  int builds_from = 0;
};

/// The migrations that this build contains, in order.
const std::vector<Migration>& embedded_migration_list();
/// The migrations in a folder, in order. Throws ConfigError for a file without its counterpart, and for a number that
/// is missing or used twice.
std::vector<Migration> read_migrations(const std::filesystem::path& folder);

/// A migration and its state in this database.
struct MigrationState {
  /// The states.
  enum class Kind {
    applied,
    pending,  ///< in `known`, and not run in the database
    changed,  ///< run in the database with another text
    unknown,  ///< run in the database by a newer build; this build cannot run with it
    newer,    ///< run in the database by a newer build; this build can run with it
  };
  int number = 0;             ///< of the migration
  std::string name;           ///< of the migration
  Kind kind = Kind::pending;  ///< its state in the database
  std::string applied_at;     ///< as the server writes it; empty when pending
  std::string applied_by;     ///< the role that ran it; empty if pending
};

/// The state of all migrations that are known or were run, in the order of their numbers. If the schema does not exist,
/// all are pending.
std::vector<MigrationState> migrate_status(const PostgresSettings& settings, const std::vector<Migration>& known);
/// Called on the waiting thread about every postgres.lock_timeout (at least 1 s). The argument is a sentence that names
/// the session which holds the lock of the schema's migrations. Not called behind a pooler, which hides the sessions.
/// It must not throw.
using OnWait = std::function<void(const std::string&)>;
/// Runs the pending migrations in one transaction, under an advisory transaction lock. If ten processes start at once,
/// one runs them; the others wait without a limit, and find them done. Creates the schema if it is missing. Returns
/// what it ran.
/// Throws SchemaError if the text of a migration that was run has changed, or if the schema is newer. Also if a file
/// fails: the text has its name and line, and nothing was changed.
/// `partitions`: makes the inbox a table of this number of hash partitions by id (2 to 64), or a plain table (1).
/// Throws SchemaError, and changes nothing, if the inbox is another kind of table and contains ids. Absent: the inbox
/// stays as it is.
std::vector<Migration> migrate_up(const PostgresSettings& settings, const std::vector<Migration>& known,
                                  std::optional<int> partitions = std::nullopt, const OnWait& on_wait = {});
/// The number of the inbox's partitions. 1: a plain table. 0: there is no inbox.
int inbox_partitions(const PostgresSettings& settings);
/// Reverts the last `steps` migrations, newest first. **The contents of their tables are deleted**. Returns what it
/// reverted.
std::vector<Migration> migrate_down(const PostgresSettings& settings, const std::vector<Migration>& known, int steps,
                                    const OnWait& on_wait = {});

}  // namespace turnstile::postgres
