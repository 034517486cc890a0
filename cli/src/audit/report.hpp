#pragma once
// What an audit found, for people, as JSON, and as metrics.

#include <optional>
#include <string>

#include "audit/records.hpp"
#include "text.hpp"
#include "turnstile/token_audit.hpp"

namespace turnstile::cli::audit {

/// The limits, as the token log or the database shows them. Absent members were not looked at.
struct LimitAudit {
  std::optional<TokenAudit> log{};
  std::string name{};                                   ///< of the log
  std::vector<postgres::AuditedLimiter> in_database{};  ///< limiters that PostgreSQL counts
  std::string why_not{};                                ///< why no limit was looked at; empty: one was
};

struct Report {
  RecordAudit records{};
  LimitAudit limits{};

  /// Whether all guarantees hold, as far as it can be told.
  [[nodiscard]] bool holds() const;
  /// Where permits above a limit were given, or a state is not what the token log gives.
  [[nodiscard]] std::int64_t limit_violations() const;
};

/// Shows at most `most` violations.
void print(const Report& report, std::size_t most);
Json to_json(const Report& report, std::size_t most);
/// In the text format of Prometheus, for the textfile collector of node_exporter.
std::string metrics(const Report& report, std::int64_t now_s);

}  // namespace turnstile::cli::audit
