#pragma once
// The files of migrations/, as they were when the library was built.

#include <span>
#include <string_view>

namespace turnstile::postgres {

struct EmbeddedMigration {
  int number;             ///< the digits that the file's name begins with
  std::string_view name;  ///< the file's name, e.g. "0001_inbox.sql"
  std::string_view text;  ///< the file, byte by byte
};

/// In the order of their names. Defined by the build (cmake/EmbedMigrations.cmake).
std::span<const EmbeddedMigration> embedded_migrations();

}  // namespace turnstile::postgres
