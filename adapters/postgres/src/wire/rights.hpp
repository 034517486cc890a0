#pragma once
// The rights of a consumer: the statements that grant them, and the query for those that a role lacks.

#include <string>
#include <string_view>

namespace turnstile::postgres {

/// A statement for each table and function; migrations/roles.sql is the same for people.
std::string grants(std::string_view schema, std::string_view user);

/// Whether the schema has a table of this name. The schema may also contain other programs' tables.
bool is_own_table(std::string_view name);

/// A query on schema $1 that returns a row for each right that the session's role lacks, such as "INSERT on inbox". It
/// ignores tables that do not exist.
std::string missing_rights();

}  // namespace turnstile::postgres
