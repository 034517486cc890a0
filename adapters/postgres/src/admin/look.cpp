#include "turnstile/postgres/look.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>

#include "turnstile/error.hpp"
#include "turnstile/postgres/admin.hpp"
#include "turnstile/postgres/store.hpp"
#include "turnstile/text.hpp"

namespace turnstile::postgres {

namespace {

using text::bytes;
using text::count;
using text::duration;

/// How long a person waits for an answer.
constexpr std::chrono::milliseconds kPatience{3'000};
/// A published message normally waits for the broker no longer than this.
constexpr std::chrono::minutes kSentSoon{1};
// The oldest version that adapters/postgres supports.
constexpr int kOldestServer = 130'000;
// A sweep starts at least once a day, and takes some time.
constexpr std::chrono::hours kSweptLately{48};

void look_at_server(const ServerReport& server, Findings& findings) {
  const std::string who = fmt::format("{} as {}", server.version, server.user);
  if (server.version_number < kOldestServer) {
    findings.problem("PostgreSQL", fmt::format("{}: too old", who), "use PostgreSQL 13 or later");
  } else if (!server.writable) {
    findings.problem(
        "PostgreSQL",
        fmt::format("{}: accepts no writes; it is a standby, or default_transaction_read_only is on", who),
        "name the primary in postgres.url, or list all hosts, separated by commas: Turnstile then uses the "
        "host that accepts writes");
  } else {
    findings.ok("PostgreSQL", who);
  }
}

void look_at_durability(const PostgresSettings& settings, Findings& findings) {
  const auto wrong = lint_server(settings);
  for (const auto& finding : wrong) findings.problem("server settings", finding.problem, finding.remedy);
  if (wrong.empty()) findings.ok("server settings", "committed data survives a crash");
}

enum class Schema : std::uint8_t {
  known,
  other,    ///< missing, older or newer: this build cannot check rights or contents
  unknown,  ///< it could not be read
};

Schema look_at_schema(const PostgresSettings& settings, Findings& findings) {
  try {
    open_store(settings)->check_schema();
    findings.ok("schema", fmt::format("{} is the version that this build needs", settings.schema));
    return Schema::known;
  } catch (const SchemaError& error) {
    findings.problem("schema", error.what());
    return Schema::other;
  } catch (const std::exception& error) {
    findings.problem("schema", error.what());
    return Schema::unknown;
  }
}

void look_at_rights(const PostgresSettings& settings, const ServerReport& server, Findings& findings) {
  if (!server.schema_exists) return;
  if (server.missing_rights.empty()) {
    findings.ok("rights", fmt::format("{} has all the rights that a consumer needs", server.user));
    return;
  }
  std::string missing;
  for (const auto& right : server.missing_rights) missing += (missing.empty() ? "" : ", ") + right;
  findings.problem("rights", fmt::format("{} lacks: {}", server.user, missing),
                   fmt::format("as the owner of schema {} run: {}", settings.schema, server.grants));
}

// Below this size a table without a purge causes no problems yet.
constexpr std::int64_t kSmallTable = std::int64_t{64} << 20;

/// The server's clock decides about the age of ids, and the end of leases and sessions.
void look_at_clock(postgres::Admin& admin, Findings& findings) {
  const auto clock = admin.clock();
  if (clock.held.empty()) findings.ok("clock", "PostgreSQL's clock and this machine's agree");
  else
    findings.problem("clock", clock.held,
                     "leases and producer sessions also end by PostgreSQL's clock; synchronize it (NTP)");
}

/// Old ids that no purge deletes: the table grows unnoticed for months.
void look_at_retention(Admin& admin, Findings& findings) {
  const auto report = admin.retention();
  const std::string size = fmt::format("{}, about {}", bytes(report.bytes), count(report.rows_about, "id"));
  std::string for_ever;
  bool any_due = false;
  for (const auto& [handler, kept] : report.kept) {
    if (kept) any_due = true;
    else for_ever += (for_ever.empty() ? "" : ", ") + handler;
  }
  if (report.bytes < kSmallTable) {
    findings.ok("inbox", size);
  } else if (report.kept.empty() || (any_due && (!report.swept_at || report.now - *report.swept_at > kSweptLately))) {
    findings.warning(
        "inbox",
        fmt::format("{}, and no process has deleted old ids {}", size,
                    report.swept_at
                        ? "for " + duration(std::chrono::floor<std::chrono::hours>(report.now - *report.swept_at))
                        : "ever"),
        "let consumers delete them ([consumer] purge = true, the default), or run by cron: turnstile inbox purge --older-than …");
  } else if (!for_ever.empty()) {
    findings.warning("inbox", fmt::format("{}; ids of {} are kept forever", size, for_ever),
                     "to stop the growth, give the topic a retention.ms, or set keep_ids_for");
  } else {
    findings.ok("inbox", fmt::format("{}; old ids are deleted", size));
  }
}

std::string age_of(DatabaseTime then, DatabaseTime now) {
  return text::age(std::chrono::duration_cast<std::chrono::milliseconds>(now - then));
}

void look_at_dead(const WaitingReport& report, Findings& findings) {
  std::int64_t all = 0;
  std::optional<DatabaseTime> oldest;
  std::string which;
  constexpr std::size_t kShown = 5;
  std::size_t shown = 0;
  for (const auto& dead : report.dead) {
    all += dead.count;
    oldest = std::min(oldest.value_or(dead.oldest), dead.oldest);
    if (shown++ < kShown)
      which +=
          fmt::format("{}{} {} of {}", which.empty() ? "" : ", ", text::number(dead.count), dead.reason, dead.handler);
  }
  if (shown > kShown) which += ", …";
  if (all == 0) {
    findings.ok("dead letters", "no dead letter waits");
  } else {
    findings.warning(
        "dead letters",
        fmt::format("{} {}: {}; the oldest for {}", count(all, "message"), all == 1 ? "waits" : "wait", which,
                    age_of(*oldest, report.now)),
        "turnstile dlq groups counts them by cause; once a cause is fixed: turnstile dlq replay --all --topic "
        "TOPIC --reason REASON, or one by its number");
  }
}

/// Neither another replay nor a consumer decides about these.
void look_at_replays(const WaitingReport& report, Findings& findings) {
  if (report.replays_in_doubt == 0) return;
  std::string which;
  for (const auto number : report.in_doubt) which += (which.empty() ? "" : ", ") + std::to_string(number);
  const auto more = report.replays_in_doubt - static_cast<std::int64_t>(report.in_doubt.size());
  if (more > 0) which += fmt::format(" and {} more", text::number(more));
  findings.warning(
      "replays",
      fmt::format("{} may have been published: {}; turnstile dlq replay began, but its end was not recorded",
                  count(report.replays_in_doubt, "dead letter"), which),
      "for each, unless another operator is replaying it: run turnstile dlq show NUMBER. It names the record to look for, and the "
      "commands to run if the record is there or not");
}

void look_at_claims(const WaitingReport& report, Findings& findings) {
  for (const auto& of : report.claims) {
    const std::string subject = "claims of " + of.handler;
    const std::string others =
        fmt::format("{} running, {} to be retried{}", text::number(of.claimed), text::number(of.failed - of.dead),
                    of.dead > 0 ? ", " + count(of.dead, "dead letter") : "");
    if (of.unknown + of.parked == 0) {
      findings.ok(subject, others);
    } else {
      const std::int64_t undecided = of.unknown + of.parked;
      std::string which;
      for (const auto& id : of.undecided) which += (which.empty() ? "" : ", ") + id.text();
      const std::int64_t more = undecided - static_cast<std::int64_t>(of.undecided.size());
      if (more > 0) which += fmt::format(" and {} more", text::number(more));
      findings.warning(
          subject,
          fmt::format("{} in doubt ({} parked): {}; {}", count(undecided, "message"), text::number(of.parked), which,
                      others),
          fmt::format(
              "for each: run turnstile inbox inspect ID, find out whether the message took effect, then run turnstile inbox "
              "unpark ID --handler {} --done, or --rerun",
              of.handler));
    }
  }
}

void look_at_outbox(Admin& admin, Findings& findings) {
  const auto stats = admin.outbox();
  const auto now = stats.now;
  if (stats.refused > 0) {
    findings.problem(
        "outbox", fmt::format("the broker rejects {} that handlers published", count(stats.refused, "message")),
        "turnstile outbox list shows why; then run turnstile outbox retry NUMBER (or --all), or turnstile outbox drop "
        "NUMBER");
  }
  if (stats.waiting > 0 && stats.oldest && now - *stats.oldest > kSentSoon) {
    findings.warning(
        "outbox",
        fmt::format("{} published by handlers {} to be sent, the oldest for {}; {}", count(stats.waiting, "message"),
                    stats.waiting == 1 ? "waits" : "wait", age_of(*stats.oldest, now),
                    stats.relays.empty() ? "no process sends them" : stats.relays.front() + " sends them"),
        "start a consumer, or read its log lines about the brokers");
  } else if (stats.refused == 0) {
    findings.ok("outbox", stats.waiting == 0 ? "nothing waits" : count(stats.waiting, "message") + " on the way");
  }
}

void look_at_pauses(const PostgresSettings& settings, Findings& findings) {
  constexpr std::size_t kMost = 5;
  const auto pauses = open_store(settings)->pauses()->active();
  if (pauses.empty()) return findings.ok("pauses", "nothing is paused");
  std::string which;
  for (std::size_t i = 0; i < std::min(pauses.size(), kMost); ++i) {
    const auto& [part, by, why, left, since, until] = pauses[i];
    which += fmt::format("{}{}{}{} by {} since {}", i == 0 ? "" : "; ", part.key ? "a key of " : "", part.topic,
                         part.partition ? fmt::format("[{}]", *part.partition) : "", by, text::utc(since));
    if (until) which += fmt::format(" until {}", text::utc(*until));
    if (!why.empty()) which += fmt::format(" ({})", why);
  }
  if (pauses.size() > kMost) which += "; …";
  findings.warning(
      "pauses", fmt::format("{}: {}", count(std::ssize(pauses), "pause"), which),
      "no handler starts for their messages; turnstile topics list shows them all, and turnstile topics resume "
      "ends them (with --breaker: an open circuit breaker)");
}

}  // namespace

void look_at(const Config& config, Findings& findings) {
  const auto versions = client_versions();
  findings.ok("libpqxx", fmt::format("{}, libpq {}", versions.libpqxx, versions.libpq));
  if (!config.postgres || config.postgres->url.empty()) {
    findings.warning("PostgreSQL",
                     "no database is named: messages are limited, ordered and retried, but may take effect twice",
                     "set [postgres] url or TURNSTILE_POSTGRES_URL, or give --postgres URL");
    return;
  }
  PostgresSettings settings = *config.postgres;
  settings.connect_timeout = std::min(settings.connect_timeout, kPatience);
  // A failed check does not hide the others.
  const auto section = [&](const char* subject, const std::function<void()>& look) {
    try {
      look();
      return true;
    } catch (const ConfigError& error) {
      for (const auto& problem : error.problems) findings.problem(subject, problem);
    } catch (const std::exception& error) {
      findings.problem(subject, error.what());
    }
    return false;
  };
  std::optional<Admin> admin;
  ServerReport server;
  const bool answers = section("PostgreSQL", [&] {
    admin.emplace(settings);
    server = admin->server();
    look_at_server(server, findings);
  });
  if (!answers) return;
  section("server settings", [&] { look_at_durability(settings, findings); });
  const Schema schema = look_at_schema(settings, findings);
  // The GRANT statements of this build would name tables that do not exist.
  if (schema == Schema::other) return;
  look_at_rights(settings, server, findings);
  if (schema == Schema::unknown || !server.missing_rights.empty()) return;
  section("inbox", [&] { look_at_retention(*admin, findings); });
  // Comparing the clocks records the result.
  if (server.writable) section("clock", [&] { look_at_clock(*admin, findings); });
  section("dead letters and claims", [&] {
    const auto waiting = admin->waiting();
    look_at_dead(waiting, findings);
    look_at_replays(waiting, findings);
    look_at_claims(waiting, findings);
  });
  section("outbox", [&] { look_at_outbox(*admin, findings); });
  section("pauses", [&] { look_at_pauses(settings, findings); });
}

}  // namespace turnstile::postgres
