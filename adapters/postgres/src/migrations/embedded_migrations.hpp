#pragma once
// The files of migrations/ at the time of the build.

#include <span>
#include <string_view>

namespace turnstile::postgres {

struct EmbeddedMigration {
  int number;             ///< the digits at the start of the file's name
  std::string_view name;  ///< the file's name, for example "0001_inbox.sql"
  std::string_view text;  ///< the file, byte by byte
};

/// In the order of their names. Defined by the build (cmake/EmbedMigrations.cmake).
std::span<const EmbeddedMigration> embedded_migrations();

}  // namespace turnstile::postgres
