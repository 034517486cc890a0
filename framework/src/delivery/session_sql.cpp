// Finds statements of a handler that may leave something behind in their session.

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "delivery/sql_scanner.hpp"
#include "turnstile/ports/handler_sql.hpp"

namespace turnstile::ports {

namespace {

/// Words that may stand before a parenthesis and leave nothing behind in a session: keywords, types and functions, in
/// alphabetical order.
constexpr std::string_view kLeavesNothing[] = {"ABS",
                                               "AGE",
                                               "ALL",
                                               "AND",
                                               "ANY",
                                               "ARRAY",
                                               "ARRAY_AGG",
                                               "ARRAY_APPEND",
                                               "ARRAY_LENGTH",
                                               "ARRAY_POSITION",
                                               "ARRAY_REMOVE",
                                               "ARRAY_TO_STRING",
                                               "AS",
                                               "AVG",
                                               "BETWEEN",
                                               "BIT",
                                               "BOOL_AND",
                                               "BOOL_OR",
                                               "BTRIM",
                                               "BY",
                                               "CARDINALITY",
                                               "CASE",
                                               "CAST",
                                               "CEIL",
                                               "CEILING",
                                               "CHAR",
                                               "CHARACTER",
                                               "CLOCK_TIMESTAMP",
                                               "COALESCE",
                                               "CONCAT",
                                               "CONCAT_WS",
                                               "CONFLICT",
                                               "COUNT",
                                               "CUBE",
                                               "CURRVAL",
                                               "DATE_PART",
                                               "DATE_TRUNC",
                                               "DECIMAL",
                                               "DECODE",
                                               "DENSE_RANK",
                                               "DISTINCT",
                                               "ELSE",
                                               "ENCODE",
                                               "EVERY",
                                               "EXCEPT",
                                               "EXISTS",
                                               "EXTRACT",
                                               "FILTER",
                                               "FIRST_VALUE",
                                               "FLOOR",
                                               "FORMAT",
                                               "FROM",
                                               "GENERATE_SERIES",
                                               "GEN_RANDOM_UUID",
                                               "GREATEST",
                                               "GROUP",
                                               "HASHTEXT",
                                               "HASHTEXTEXTENDED",
                                               "HAVING",
                                               "ILIKE",
                                               "IN",
                                               "INTERSECT",
                                               "INTERVAL",
                                               "JOIN",
                                               "JSONB_AGG",
                                               "JSONB_ARRAY_ELEMENTS",
                                               "JSONB_ARRAY_ELEMENTS_TEXT",
                                               "JSONB_BUILD_ARRAY",
                                               "JSONB_BUILD_OBJECT",
                                               "JSONB_EACH",
                                               "JSONB_EACH_TEXT",
                                               "JSONB_SET",
                                               "JSONB_TO_RECORDSET",
                                               "JSON_AGG",
                                               "JSON_BUILD_OBJECT",
                                               "LAG",
                                               "LAST_VALUE",
                                               "LATERAL",
                                               "LEAD",
                                               "LEAST",
                                               "LEFT",
                                               "LENGTH",
                                               "LIKE",
                                               "LIMIT",
                                               "LOWER",
                                               "LPAD",
                                               "MAKE_DATE",
                                               "MAKE_INTERVAL",
                                               "MATERIALIZED",
                                               "MAX",
                                               "MD5",
                                               "MIN",
                                               "MOD",
                                               "NEXTVAL",
                                               "NOT",
                                               "NOW",
                                               "NULLIF",
                                               "NUMERIC",
                                               "OFFSET",
                                               "ON",
                                               "OR",
                                               "OVER",
                                               "OVERLAY",
                                               "PG_ADVISORY_XACT_LOCK",
                                               "PG_TRY_ADVISORY_XACT_LOCK",
                                               "POSITION",
                                               "POWER",
                                               "RANDOM",
                                               "RANK",
                                               "REGEXP_REPLACE",
                                               "REPLACE",
                                               "RETURNING",
                                               "RIGHT",
                                               "ROLLUP",
                                               "ROUND",
                                               "ROW",
                                               "ROW_NUMBER",
                                               "RPAD",
                                               "SELECT",
                                               "SET",
                                               "SHA256",
                                               "SIGN",
                                               "SOME",
                                               "SPLIT_PART",
                                               "SQRT",
                                               "STATEMENT_TIMESTAMP",
                                               "STRING_AGG",
                                               "STRPOS",
                                               "SUBSTR",
                                               "SUBSTRING",
                                               "SUM",
                                               "THEN",
                                               "TIME",
                                               "TIMESTAMP",
                                               "TIMESTAMPTZ",
                                               "TO_CHAR",
                                               "TO_DATE",
                                               "TO_JSON",
                                               "TO_JSONB",
                                               "TO_NUMBER",
                                               "TO_TIMESTAMP",
                                               "TRIM",
                                               "TRUNC",
                                               "UNION",
                                               "UNNEST",
                                               "UPPER",
                                               "USING",
                                               "VALUES",
                                               "VARCHAR",
                                               "VARYING",
                                               "WHEN",
                                               "WHERE",
                                               "WITHIN"};

static_assert(std::is_sorted(std::begin(kLeavesNothing), std::end(kLeavesNothing)));

char capital(char c) noexcept { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

bool leaves_nothing(std::string_view word) {
  std::array<char, 32> capitals;
  if (word.size() > capitals.size()) return false;
  std::transform(word.begin(), word.end(), capitals.begin(), capital);
  return std::binary_search(std::begin(kLeavesNothing), std::end(kLeavesNothing),
                            std::string_view(capitals.data(), word.size()));
}

bool is_temporary(std::string_view word) {
  constexpr std::string_view schema = "PG_TEMP";  // a prefix, because pg_temp_3 is a name too
  return detail::equals_word(word, "TEMP") || detail::equals_word(word, "TEMPORARY") ||
         detail::equals_word(word.substr(0, schema.size()), schema);
}

}  // namespace

bool may_change_session(std::string_view sql) noexcept {
  detail::SqlScanner scanner(sql);
  scanner.skip_semicolons();
  const std::string_view first = scanner.word();
  const auto is = [&](std::string_view keyword) { return detail::equals_word(first, keyword); };
  // check_handler_sql() passes these statements only if their effect ends with the transaction.
  if (is("SAVEPOINT") || is("RELEASE") || is("ROLLBACK") || is("SET")) return false;
  if (is("INSERT")) {
    if (!detail::equals_word(scanner.word(), "INTO")) return true;
    scanner.skip_target();
  } else if (!is("SELECT") && !is("UPDATE") && !is("DELETE") && !is("WITH") && !is("VALUES") && !is("MERGE")) {
    return true;
  }
  bool is_alias = false;  // or the name of a type: its parenthesis contains no arguments
  for (std::string_view word = scanner.next_word(); !word.empty(); word = scanner.next_word()) {
    if (scanner.called_quoted() || is_temporary(word)) return true;
    const bool opens = scanner.opens();
    if (opens && !is_alias && (scanner.qualified() || !leaves_nothing(word))) return true;
    is_alias = !opens && detail::equals_word(word, "AS");
  }
  return scanner.called_quoted();
}

bool names_role(std::string_view sql) noexcept {
  const auto after = [](std::string_view text, std::string_view name) {
    const auto at = std::search(text.begin(), text.end(), name.begin(), name.end(),
                                [](char c, char letter) { return capital(c) == letter; });
    return at == text.end() ? std::string_view() : std::string_view(at, text.end());
  };
  for (const std::string_view name : {"ROLE", "AUTHORIZATION", "ONLY"}) {
    if (!after(sql, name).empty()) return true;
  }
  constexpr std::string_view call = "SET_CONFIG";
  for (auto rest = after(sql, call); !rest.empty(); rest = after(rest, call)) {
    rest.remove_prefix(call.size());
    const auto argument = rest.find_first_not_of(" \t\r\n(");
    if (argument == std::string_view::npos || rest[argument] != '\'') return true;
  }
  return false;
}

}  // namespace turnstile::ports
