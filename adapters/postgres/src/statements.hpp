#pragma once
// The adapter's own SQL, with the schema's name in it: nothing depends on search_path (trap 14).

#include <string>

namespace turnstile::postgres {

struct Statements {
  explicit Statements(const std::string& schema);

  // A transaction of a batch.
  std::string begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
  std::string timeouts =
      "SELECT pg_catalog.set_config('lock_timeout', $1, true), pg_catalog.set_config('idle_in_transaction_session_timeout', $2, true)";
  std::string admit;
  std::string fingerprints;
  std::string settled;

  // The store's own calls.
  std::string add_fences;
  std::string claim;
  std::string advance;
  std::string incarnation;
  std::string record_dead;
  std::string is_dead;
  std::string find_handler;
  std::string register_handler;
};

}  // namespace turnstile::postgres
