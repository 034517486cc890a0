#pragma once
// The rights with which a consumer runs: the lines that grant them, and the question which of them a role lacks.

#include <string>
#include <string_view>

namespace turnstile::postgres {

/// One statement for each table and function; migrations/roles.sql is the same for people.
std::string grants(std::string_view schema, std::string_view user);

/// Whether the schema has a table of this name. Others may keep theirs in it, too.
bool is_own_table(std::string_view name);

/// A query on schema $1 that answers a row for each right that the session's role lacks, such as "INSERT on inbox". It says nothing
/// of tables that are not there.
std::string missing_rights();

}  // namespace turnstile::postgres
