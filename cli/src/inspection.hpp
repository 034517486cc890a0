#pragma once
// What the tables know about a message id.

#include <optional>
#include <string>
#include <vector>

#include "text.hpp"
#include "turnstile/postgres/admin.hpp"
#include "turnstile/postgres/retries.hpp"

namespace turnstile::cli {

struct Inspection {
  std::vector<postgres::SeenMessage> seen;
  std::vector<postgres::ClaimedMessage> claims;
  std::vector<postgres::StoredRetry> stored;
  std::vector<postgres::DeadSummary> dead;  ///< also those that were replayed
};

/// `handler`: of this handler only.
Inspection inspect(postgres::Admin& admin, const MessageId& id, const std::optional<std::string>& handler);
Json to_json(const MessageId& id, const Inspection& inspection);

}  // namespace turnstile::cli
