#include "turnstile/error.hpp"
#include "turnstile/postgres/store.hpp"
#include "wire/pool.hpp"

namespace turnstile::postgres {

namespace {

struct Rule {
  const char* setting;
  const char* bad;
  const char* why;
};

constexpr Rule kRules[] = {
    {"fsync", "off", "a crash of the server's machine may lose or corrupt everything, ids and effects included"},
    {"synchronous_commit", "off",
     "a crash of the server may lose the last commits, after their offsets were committed to Kafka"},
    {"full_page_writes", "off", "a power failure may corrupt pages of the inbox"},
};

}  // namespace

std::vector<Finding> lint_server(const PostgresSettings& settings) {
  check_settings(settings);
  Link link(settings);
  Answers answers;
  try {
    for (const Rule& rule : kRules) {
      link.pipeline.arguments().add_text(rule.setting);
      link.pipeline.add("SELECT pg_catalog.current_setting($1)", kCaller, Pipeline::Keep::text);
    }
    link.pipeline.finish(answers);
  } catch (const ConnectionLost& lost) {
    throw_lost(lost);
  }
  if (answers.failure) throw_operator_error(answers.failure->error, settings.schema, link.connection.user());

  std::vector<Finding> findings;
  for (std::size_t i = 0; i < std::size(kRules); ++i) {
    const Rule& rule = kRules[i];
    if (std::string_view(PQgetvalue(answers.kept[i].get(), 0, 0)) != rule.bad) continue;
    const std::string name = rule.setting;
    findings.push_back({"PostgreSQL runs with " + name + " = " + rule.bad + ": " + rule.why,
                        "ALTER SYSTEM SET " + name +
                            " = on; SELECT pg_reload_conf(); and look for it in the role's and the "
                            "database's own settings"});
  }
  if (PQserverVersion(link.connection.raw()) < 120000) {
    findings.push_back({"PostgreSQL is older than version 12", "upgrade the server"});
  }
  return findings;
}

}  // namespace turnstile::postgres
