#pragma once
// The exit codes of the process. Scripts depend on them: they never change their meaning.

namespace turnstile::cli {

enum class Exit : int {
  ok = 0,
  problems = 1,     ///< problems were found, or the named thing does not exist
  usage = 2,        ///< wrong arguments or configuration; a missing --yes
  unreachable = 3,  ///< the broker or the database is unreachable, too busy, or refuses the login
  refused = 4,      ///< the action would do harm or is not possible now: an unknown schema, ids still needed
};

inline constexpr const char* kExitCodes =
    "Exit codes:\n"
    "  0  done, and all is well\n"
    "  1  problems were found, or the named thing does not exist\n"
    "  2  wrong arguments or configuration, or --yes is missing\n"
    "  3  Kafka or PostgreSQL cannot be reached, is too busy, refuses the login, or denies a right\n"
    "  4  refused: an unknown schema, a changed migration, ids that are still needed, a second replay\n";

}  // namespace turnstile::cli
