#include <pqxx/version>

#include "admin_session.hpp"

namespace turnstile::postgres {

ClientVersions client_versions() {
  const int libpq = PQlibVersion();  // 150018: since 10 a major number and a minor one
  return {PQXX_VERSION, std::to_string(libpq / 10000) + "." + std::to_string(libpq % 10000)};
}

ServerReport Admin::server() {
  return session_->transact(Patience{5'000, 2'000}, [this] {
    ServerReport report;
    report.version_number = session_->server_version();
    report.version = session_->run("SELECT current_setting('server_version')").get<std::string>(0, 0);
    report.user = session_->user();
    report.grants = grants(session_->schema(), report.user);
    const Arguments schema{session_->schema()};
    report.schema_exists =
        session_->run("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema).get<bool>(0, 0);
    if (!report.schema_exists) return report;
    // The list is that of grants(): what a consumer does, not what an operator may. UPDATE is granted by column.
    const Rows rows = session_->run(
        "SELECT DISTINCT w.privilege || ' on ' || w.tab FROM (VALUES "
        "    ('kept', 'SELECT', NULL), ('sweep', 'SELECT', NULL), "
        "    ('migration', 'SELECT', NULL), ('handler', 'SELECT', NULL), ('handler', 'INSERT', NULL), "
        "    ('fence', 'SELECT', NULL), ('fence', 'INSERT', NULL), ('fence', 'UPDATE', 'epoch'), "
        "    ('fence', 'UPDATE', 'incarnation'), ('fence', 'UPDATE', 'claimed_at'), ('watermark', 'SELECT', NULL), "
        "    ('watermark', 'INSERT', NULL), ('watermark', 'UPDATE', 'watermark'), ('watermark', 'UPDATE', 'moved_at'), "
        "    ('handler', 'UPDATE', 'consumer_group'), ('inbox', 'SELECT', NULL), ('inbox', 'INSERT', NULL), "
        "    ('dead', 'SELECT', NULL), ('dead', 'INSERT', NULL), ('limiter', 'SELECT', NULL), "
        "    ('limiter', 'INSERT', 'name'), ('limiter', 'INSERT', 'configured'), ('limiter', 'UPDATE', 'configured'), "
        "    ('limiter', 'UPDATE', 'version'), ('limiter', 'UPDATE', 'changed_at'), ('permit', 'SELECT', NULL), "
        "    ('permit', 'INSERT', NULL), ('permit', 'UPDATE', 'generation'), ('permit', 'UPDATE', 'holder'), "
        "    ('permit', 'UPDATE', 'granted_at'), ('permit', 'UPDATE', 'expires_at'), ('permit_wait', 'SELECT', NULL), "
        "    ('permit_wait', 'INSERT', NULL), ('permit_wait', 'UPDATE', 'waiting'), ('permit_wait', 'UPDATE', 'since'), "
        "    ('permit_wait', 'UPDATE', 'expires_at'), ('permit_wait', 'DELETE', NULL), "
        "    ('response', 'SELECT', NULL), ('response', 'INSERT', NULL), ('response', 'UPDATE', 'body'), "
        "    ('response', 'UPDATE', 'replied_at'), ('outbox', 'SELECT', NULL), ('outbox', 'INSERT', NULL), "
        "    ('outbox', 'UPDATE', 'shard'), ('outbox', 'UPDATE', 'refused'), ('outbox', 'DELETE', NULL), "
        "    ('outbox_relay', 'SELECT', NULL), ('outbox_relay', 'UPDATE', 'owner'), ('outbox_relay', 'UPDATE', 'fence'), "
        "    ('outbox_relay', 'UPDATE', 'expires_at'), "
        "    ('one_time_token', 'SELECT', NULL), ('one_time_token', 'INSERT', NULL), "
        "    ('one_time_token', 'UPDATE', 'redeemed_at'), ('one_time_token', 'DELETE', NULL), "
        "    ('producer', 'SELECT', NULL), ('producer', 'INSERT', NULL), ('producer', 'UPDATE', 'heartbeat_at'), "
        "    ('producer', 'UPDATE', 'expired_at'), ('producer', 'DELETE', NULL), "
        "    ('producer_window', 'SELECT', NULL), ('producer_window', 'INSERT', NULL), ('producer_window', 'UPDATE', 'seen'), "
        "    ('producer_response', 'SELECT', NULL), ('producer_response', 'INSERT', NULL), ('producer_response', 'DELETE', NULL), "
        "    ('progress', 'SELECT', NULL), ('progress', 'INSERT', NULL), ('progress', 'UPDATE', 'next_offset'), "
        "    ('claim', 'SELECT', NULL), ('claim', 'INSERT', NULL), ('claim', 'UPDATE', 'state'), ('claim', 'DELETE', NULL), "
        "    ('claim', 'UPDATE', 'owner'), ('claim', 'UPDATE', 'fence'), ('claim', 'UPDATE', 'expires_at')) AS w (tab, privilege, col) "
        "JOIN pg_class c ON c.relname = w.tab AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) "
        "LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = w.col "
        "WHERE NOT CASE WHEN a.attnum IS NULL THEN has_table_privilege(c.oid, w.privilege) "
        "               ELSE has_column_privilege(c.oid, a.attnum, w.privilege) END ORDER BY 1",
        schema);
    if (!session_->run("SELECT has_schema_privilege($1, 'USAGE')", schema).get<bool>(0, 0)) {
      report.missing_rights.push_back("USAGE on schema " + session_->schema());
    }
    const Rows functions = session_->run(
        "SELECT DISTINCT 'EXECUTE on ' || proname FROM pg_proc WHERE proname IN ('keep_ids', 'purge_step') "
        "AND pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND NOT has_function_privilege(oid, 'EXECUTE')",
        schema);
    for (std::size_t row = 0; row < functions.size(); ++row) {
      report.missing_rights.push_back(functions.get<std::string>(row, 0));
    }
    for (std::size_t row = 0; row < rows.size(); ++row) report.missing_rights.push_back(rows.get<std::string>(row, 0));
    return report;
  });
}

}  // namespace turnstile::postgres
