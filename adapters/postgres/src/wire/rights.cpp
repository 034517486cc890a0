#include "wire/rights.hpp"

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "wire/identifier.hpp"

namespace turnstile::postgres {

namespace {

struct Rights {
  std::string_view rights, table;
};

constexpr Rights kTables[] = {
    {"SELECT", "migration"},
    {"SELECT", "compatible_migration"},
    {"SELECT, INSERT, UPDATE (consumer_group)", "handler"},
    {"SELECT, INSERT, UPDATE (epoch, incarnation, claimed_at, released_epoch)", "fence"},
    {"SELECT, INSERT, UPDATE (watermark, moved_at)", "watermark"},
    {"SELECT, INSERT", "inbox"},
    {"SELECT, INSERT", "dead"},
    {"SELECT", "dead_edit"},
    {"SELECT, INSERT, UPDATE (incarnation, next_offset, moved_at)", "progress"},
    {"SELECT, INSERT (name, configured, declared), UPDATE (configured, declared, version, changed_at)", "limiter"},
    {"SELECT, INSERT, UPDATE (expires_at), DELETE", "limiter_process"},
    {"SELECT, INSERT, UPDATE (configured)", "limiter_value"},
    {"SELECT, INSERT, UPDATE (generation, holder, granted_at, expires_at)", "permit"},
    {"SELECT, INSERT, UPDATE (waiting, since, expires_at), DELETE", "permit_wait"},
    {"SELECT, INSERT, UPDATE (body, replied_at)", "response"},
    {"SELECT, INSERT, UPDATE (shard, refused), DELETE", "outbox"},
    {"SELECT, INSERT, UPDATE (due_at), DELETE", "scheduled"},
    {"SELECT, INSERT, UPDATE (attempts, due_at, error), DELETE", "retry"},
    {"SELECT, INSERT, UPDATE (shard), DELETE", "retry_due"},
    {"SELECT, UPDATE (next_at, next_id, began_at, before_at)", "retry_sweep"},
    {"SELECT", "retry_record"},
    {"SELECT, UPDATE (owner, fence, expires_at)", "outbox_relay"},
    {"SELECT, INSERT, UPDATE (redeemed_at), DELETE", "one_time_token"},
    {"SELECT, INSERT, UPDATE (state, owner, fence, expires_at, slot, record_offset, fingerprint, error, claimed_at, unbegun_by, unbegun_in), DELETE",
     "claim"},
    {"SELECT, INSERT, UPDATE (heartbeat_at, expired_at), DELETE", "producer"},
    {"SELECT, INSERT, UPDATE (high, low, acked, seen, moved_at)", "producer_window"},
    {"SELECT, INSERT, DELETE", "producer_response"},
    {"SELECT, INSERT, UPDATE (offsets, alone, epoch, incarnation), DELETE", "trial"},
    {"SELECT, INSERT, UPDATE (incarnation, deaths, epoch, died_at), DELETE", "suspect"},
    {"SELECT, INSERT, DELETE", "outlasting"},
    {"SELECT, INSERT, UPDATE (by_whom, why, began_at, until), DELETE", "pause"},
    {"SELECT", "kept"},
    {"SELECT", "sweep"},
};

constexpr std::string_view kFunctions[] = {
    "keep_ids(smallint, bigint)",
    "purge_step(integer)",
    "purge_by_clock(integer, timestamptz, timestamptz)",
    "look_at_clock(timestamptz, timestamptz)",
    "lock_retry_key(smallint, bytea)",
    "take_back_id(smallint, uuid)",
    "take_back_ids(smallint, uuid[])",
    "lock_retries(smallint, bigint[], bigint[], uuid[])",
    "send_lost_retries()",
    "stored_retries(smallint, uuid[])",
    "keys_with_retries(smallint, bytea[])",
    "lock_retry_keys(smallint, bytea[])",
    "add_retries(smallint, uuid[], integer, integer, bigint[], bigint[], "
    "bigint[], boolean, bigint[], text, integer, bytea[], bytea[], bytea[], bytea[], bigint[], bigint[], bytea[])",
    "defer_retries(smallint, bigint[], bigint[], bigint[], bigint[], bytea[], bigint[])",
    "end_retries(smallint, bigint[], bigint[])",
    "due_retries(bigint[], bigint, bigint)",
    "retries_to_send(bigint[], bigint, bigint)",
    "messages_behind(smallint, bytea[])",
    "look_for_due_retries(bigint[], bigint)",
    "retries_are_sent(bigint[], bigint[])",
    "refuse_retry(bigint, bigint, text)"};

/// "('a', 'b')". The values must not contain quotes.
std::string values(std::initializer_list<std::string_view> row) {
  std::string text;
  for (const auto value : row) text.append(text.empty() ? "('" : "', '").append(value);
  return text + "')";
}

}  // namespace

std::string grants(std::string_view schema, std::string_view user) {
  const std::string role = quote_identifier(user), where = quote_identifier(schema);
  const auto grant = [&](std::string_view rights, std::string_view kind, std::string_view on) {
    return "GRANT " + std::string(rights) + " ON " + std::string(kind) + where + "." + std::string(on) + " TO " + role +
           ";";
  };
  std::string text = "GRANT USAGE ON SCHEMA " + where + " TO " + role + ";";
  for (const auto& [rights, table] : kTables) text += " " + grant(rights, "", table);
  for (const auto function : kFunctions) text += " " + grant("EXECUTE", "FUNCTION ", function);
  return text;
}

bool is_own_table(std::string_view name) {
  return std::any_of(std::begin(kTables), std::end(kTables), [&](const Rights& row) { return row.table == name; });
}

std::string missing_rights() {
  std::string tables, functions;
  for (const auto& [rights, table] : kTables) tables += (tables.empty() ? "" : ", ") + values({table, rights});
  for (const auto function : kFunctions)
    functions += (functions.empty() ? "" : ", ") + values({function.substr(0, function.find('('))});
  // For a right to some columns it checks each column. An older schema lacks some of them.
  return R"(
SELECT 'USAGE on schema ' || $1::text WHERE NOT has_schema_privilege($1::text, 'USAGE')
UNION ALL
SELECT 'EXECUTE on ' || p.proname
  FROM pg_proc p JOIN (VALUES )" +
         functions + R"() AS w (name) ON p.proname = w.name
 WHERE p.pronamespace = quote_ident($1::text)::regnamespace AND NOT has_function_privilege(p.oid, 'EXECUTE')
UNION ALL
(SELECT DISTINCT part[1] || ' on ' || w.name
   FROM (VALUES )" +
         tables + R"() AS w (name, rights)
   JOIN pg_class c ON c.relname = w.name AND c.relnamespace = quote_ident($1::text)::regnamespace
  CROSS JOIN regexp_matches(w.rights, '([A-Z]+)(?: \(([^)]*)\))?', 'g') AS part
   LEFT JOIN LATERAL regexp_split_to_table(part[2], ', ') AS col ON true
  WHERE NOT CASE WHEN col IS NULL THEN has_table_privilege(c.oid, part[1])
                 WHEN NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = col) THEN true
                 ELSE has_column_privilege(c.oid, col, part[1]) END
  ORDER BY 1))";
}

}  // namespace turnstile::postgres
