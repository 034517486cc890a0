#include "errors.hpp"

#include <array>

#include "identifier.hpp"
#include "turnstile/error.hpp"

namespace turnstile::postgres {

namespace {

std::string field(const PGresult* result, int code) {
  const char* text = PQresultErrorField(result, code);
  return text ? text : "";
}

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

constexpr std::string_view kPooler =
    "; prepared statements do not survive on this connection: behind a pooler in transaction mode set "
    "postgres.prepared_statements = false";

}  // namespace

ServerError server_error(const PGresult* result) {
  ServerError error;
  error.sqlstate = field(result, PG_DIAG_SQLSTATE);
  error.message = field(result, PG_DIAG_MESSAGE_PRIMARY);
  if (error.message.empty()) {
    // Written by libpq itself (a lost connection): one sentence, without a DETAIL.
    const char* text = PQresultErrorMessage(result);
    error.message = text ? text : "";
    while (!error.message.empty() && error.message.back() == '\n') error.message.pop_back();
  }
  const std::string severity = field(result, PG_DIAG_SEVERITY_NONLOCALIZED);
  error.fatal = severity == "FATAL" || severity == "PANIC";
  return error;
}

Kind classify(std::string_view state) {
  // Deadlock, serialization failure, lock timeout, idle-in-transaction timeout.
  for (const std::string_view busy : {"40P01", "40001", "55P03", "25P03"}) {
    if (state == busy) return Kind::busy;
  }
  // No connection, operator intervention (but not a cancelled query), out of resources, I/O; a standby or a disk set
  // read-only; prepared statements that a pooler has dropped or doubled.
  for (const std::string_view away : {"08", "57P0", "53", "58", "25006", "26000", "42P05"}) {
    if (starts_with(state, away)) return Kind::unavailable;
  }
  return Kind::statement;
}

std::string describe(const ServerError& error) {
  if (error.sqlstate.empty()) return error.message;
  return error.message + " (SQLSTATE " + error.sqlstate + ")";
}

void throw_statement_error(const ServerError& error) {
  switch (classify(error.sqlstate)) {
    case Kind::busy: throw StoreBusy(describe(error));
    case Kind::unavailable: {
      const bool pooler = error.sqlstate == "26000" || error.sqlstate == "42P05";
      throw StoreUnavailable("PostgreSQL: " + describe(error) + std::string(pooler ? kPooler : ""));
    }
    case Kind::statement: break;
  }
  throw SqlError(describe(error), error.sqlstate);
}

void throw_store_error(const ServerError& error, std::string_view schema, std::string_view user) {
  const std::string& state = error.sqlstate;
  if (state == "57014") throw StoreBusy(describe(error));
  if (state == "42501") {
    throw StoreUnavailable("PostgreSQL refuses the role " + std::string(user) + ": " + describe(error) +
                           "; as the owner of the schema run: " + grants(schema, user));
  }
  for (const std::string_view missing : {"42P01", "42703", "3F000", "42883"}) {
    if (state == missing) {
      throw StoreUnavailable("the schema " + std::string(schema) + " is not what this build needs: " + describe(error) +
                             "; run: turnstile migrate up");
    }
  }
  throw_statement_error(error);
}

void throw_lost(const ConnectionLost& lost) {
  if (classify(lost.last_words.sqlstate) == Kind::busy) throw StoreBusy(describe(lost.last_words));
  throw StoreUnavailable("lost the connection to PostgreSQL: " + describe(lost.last_words));
}

void throw_fenced(const Fence& fence) {
  throw Fenced("slot " + std::to_string(fence.slot) + ": epoch " + std::to_string(fence.epoch.value) +
               " is over, another member owns the partition");
}

std::string grants(std::string_view schema, std::string_view user) {
  struct Grant {
    std::string_view rights, table;
  };
  static constexpr std::array<Grant, 18> all{{
      {"SELECT", "migration"},
      {"SELECT, INSERT, UPDATE (consumer_group)", "handler"},
      {"SELECT, INSERT, UPDATE (epoch, incarnation, claimed_at)", "fence"},
      {"SELECT, INSERT, UPDATE (watermark, moved_at)", "watermark"},
      {"SELECT, INSERT", "inbox"},
      {"SELECT, INSERT", "dead"},
      {"SELECT, INSERT, UPDATE (incarnation, next_offset, moved_at)", "progress"},
      {"SELECT, INSERT (name, configured), UPDATE (configured, version, changed_at)", "limiter"},
      {"SELECT, INSERT, UPDATE (generation, holder, granted_at, expires_at)", "permit"},
      {"SELECT, INSERT, UPDATE (waiting, since, expires_at), DELETE", "permit_wait"},
      {"SELECT, INSERT, UPDATE (body, replied_at)", "response"},
      {"SELECT, INSERT, UPDATE (shard, refused), DELETE", "outbox"},
      {"SELECT, UPDATE (owner, fence, expires_at)", "outbox_relay"},
      {"SELECT, INSERT, UPDATE (redeemed_at), DELETE", "one_time_token"},
      {"SELECT, INSERT, UPDATE (state, owner, fence, expires_at, slot, record_offset, fingerprint, error, claimed_at), DELETE",
       "claim"},
      {"SELECT, INSERT, UPDATE (heartbeat_at, expired_at), DELETE", "producer"},
      {"SELECT, INSERT, UPDATE (high, low, acked, seen, moved_at)", "producer_window"},
      {"SELECT, INSERT, DELETE", "producer_response"},
  }};
  const std::string role = quote_identifier(user), where = quote_identifier(schema);
  std::string text = "GRANT USAGE ON SCHEMA " + where + " TO " + role + ";";
  for (const auto& grant : all) {
    text +=
        " GRANT " + std::string(grant.rights) + " ON " + where + "." + std::string(grant.table) + " TO " + role + ";";
  }
  static constexpr std::array<Grant, 4> of_retention{{{"SELECT ON ", "kept"},
                                                      {"SELECT ON ", "sweep"},
                                                      {"EXECUTE ON FUNCTION ", "keep_ids(smallint, bigint)"},
                                                      {"EXECUTE ON FUNCTION ", "purge_step(integer)"}}};
  for (const auto& grant : of_retention) {
    text += " GRANT " + std::string(grant.rights) + where + "." + std::string(grant.table) + " TO " + role + ";";
  }
  return text;
}

}  // namespace turnstile::postgres
