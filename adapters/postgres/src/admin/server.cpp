#include <pqxx/version>

#include "admin/session.hpp"
#include "wire/rights.hpp"

namespace turnstile::postgres {

ClientVersions client_versions() {
  const int libpq = PQlibVersion();  // 150018: since version 10, a major and a minor number
  return {PQXX_VERSION, std::to_string(libpq / 10000) + "." + std::to_string(libpq % 10000)};
}

ServerReport Admin::server() {
  return session_->transact(Patience{5'000}, [this] {
    ServerReport report;
    report.version_number = session_->server_version();
    report.version = session_->run("SELECT current_setting('server_version')").get<std::string>(0, 0);
    report.user = session_->user();
    report.writable = !session_->run("SELECT current_setting('transaction_read_only')::boolean").get<bool>(0, 0);
    report.grants = grants(session_->schema(), report.user);
    const Arguments schema{session_->schema()};
    report.schema_exists =
        session_->run("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema).get<bool>(0, 0);
    if (!report.schema_exists) return report;
    const Rows rows = session_->run(missing_rights(), schema);
    for (std::size_t row = 0; row < rows.size(); ++row) report.missing_rights.push_back(rows.get<std::string>(row, 0));
    return report;
  });
}

}  // namespace turnstile::postgres
