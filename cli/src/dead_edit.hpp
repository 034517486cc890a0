#pragma once
// Changes the record of a dead letter before its replay.

#include <optional>
#include <string>
#include <vector>

#include "turnstile/postgres/admin.hpp"

namespace turnstile::cli {

struct DeadChanges {
  std::optional<std::string> payload{};  ///< absent: as it is
  std::vector<Header> headers{};         ///< each replaces those of its name
  std::vector<std::string> removed{};    ///< names of headers
};

/// The record with these changes. Throws UsageError if a header to remove does not exist.
OwnedMessage changed(const postgres::DeadRecord& dead, const DeadChanges& changes);

/// Throws Refusal if the dead letter was replayed, its replay is in doubt, or its row is damaged.
void require_editable(const postgres::DeadRecord& dead);

/// Throws UsageError if `record` is what the dead letter has, and Refusal if its id could change, or if another operator
/// was faster.
void edit_dead(postgres::Admin& admin, const postgres::DeadRecord& dead, const OwnedMessage& record,
               const std::string& by);

}  // namespace turnstile::cli
