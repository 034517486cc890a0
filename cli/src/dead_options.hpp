#pragma once
// The options that choose dead letters, the same for each verb of `turnstile dlq`.

#include <optional>
#include <string>

#include "database.hpp"
#include "text.hpp"
#include "turnstile/postgres/dead.hpp"

namespace turnstile::cli {

struct DeadOptions {
  std::optional<std::string> handler;
  std::optional<std::string> topic;
  std::optional<std::string> reason;
  std::optional<std::string> since;
  std::optional<std::string> until;
  std::optional<std::string> header;
  std::optional<std::string> text;

  [[nodiscard]] bool any() const { return handler || topic || reason || since || until || header || text; }
};

/// `options` must outlive the parsing.
void add_dead_options(Verb verb, DeadOptions& options);

/// Throws UsageError for a handler, a topic or a reason that does not exist, and for a malformed time or header.
postgres::DeadFilter dead_filter(postgres::Admin& admin, const DeadOptions& options);

/// Throws UsageError, which names the reasons.
void require_reason(const std::string& reason);

/// "NAME=VALUE". Throws UsageError.
Header parse_header(const std::string& text);

/// Counts of dead letters for people; "" without any.
std::string groups_table(const postgres::DeadGroups& groups);
Json to_json(const postgres::DeadGroups& groups);

}  // namespace turnstile::cli
