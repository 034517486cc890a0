#pragma once
// The effects in PostgreSQL, counted by plain SQL on a separate connection. The table would accept the same id twice.

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace demo {

class Ledger {
 public:
  struct Count {
    std::int64_t rows = 0;                  ///< effects
    std::int64_t ids = 0;                   ///< different ids among them
    std::int64_t doubled = 0;               ///< ids with more than one effect
    std::map<int, std::int64_t> rows_of{};  ///< by consumer
  };

  /// Connects. Throws std::runtime_error with the server's message, and never with the password.
  explicit Ledger(const std::string& url);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// Creates the schema (after dropping an existing one), and uses it from then on.
  void create_schema(const std::string& name);
  /// A table of effects. It has no unique constraint, so that it shows a message that takes effect twice.
  void create_table(const std::string& name);
  Count count(const std::string& table);
  void drop_schema(const std::string& name);

 private:
  struct Connection;
  std::unique_ptr<Connection> connection_;
};

/// The URL with search_path set to `schema`, for the consumers' connections.
std::string with_search_path(const std::string& url, const std::string& schema);

}  // namespace demo
