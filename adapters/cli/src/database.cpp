#include "database.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "text.hpp"
#include "turnstile/postgres/store.hpp"

namespace turnstile::cli {

postgres::Admin open_admin(const Config& config) {
  const PostgresSettings settings = require_postgres(config);
  postgres::open_store(settings)->check_schema();
  return postgres::Admin(settings);
}

std::string place(const postgres::GroupPartition& from, Offset offset) {
  if (from.at.topic.empty()) return fmt::format("a partition that is no longer known, @{}", offset);
  return fmt::format("{} (group {})", to_string(TopicPartitionOffset{from.at, offset}), from.group);
}

void require_handler(postgres::Admin& admin, const std::string& handler) {
  const auto names = admin.handlers();
  if (std::find(names.begin(), names.end(), handler) != names.end()) return;
  std::string known;
  for (const auto& name : names) known += (known.empty() ? "" : ", ") + one_line(name, 80);
  throw UsageError(fmt::format("no handler \"{}\" has ever registered here; {}", one_line(handler, 80),
                               known.empty() ? "there is none at all" : "there are: " + known));
}

}  // namespace turnstile::cli
