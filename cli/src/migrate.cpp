// turnstile migrate up|status|down.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "command.hpp"
#include "output.hpp"
#include "settings.hpp"
#include "text.hpp"
#include "turnstile/error.hpp"
#include "turnstile/postgres/migrations.hpp"

namespace turnstile::cli {

namespace {

using postgres::Migration;
using postgres::MigrationState;
using Kind = MigrationState::Kind;

struct MigrateOptions {
  std::optional<std::string> folder;
  std::optional<int> to;
  std::optional<int> partitions;
  bool yes = false;
};

std::vector<Migration> known_migrations(const MigrateOptions& options) {
  return options.folder ? postgres::read_migrations(*options.folder) : postgres::embedded_migration_list();
}

std::string title(int number, const std::string& name) { return fmt::format("{:04} {}", number, one_line(name, 60)); }

bool was_run(const MigrationState& state) { return state.kind != Kind::pending; }

/// A --to without such a migration is a mistake.
void require_known(const std::vector<Migration>& known, int number) {
  if (number == 0 || std::any_of(known.begin(), known.end(), [&](const Migration& m) { return m.number == number; }))
    return;
  throw UsageError(fmt::format("--to {}: no migration has that number; the newest is {}", number,
                               known.empty() ? 0 : known.back().number));
}

void report(const Global& global, const PostgresSettings& settings, const std::vector<Migration>& done, const char* key,
            const char* verb, const char* nothing) {
  if (global.json) {
    Json json{{"schema", settings.schema}, {key, Json::array()}};
    for (const auto& migration : done) json[key].push_back({{"number", migration.number}, {"name", migration.name}});
    print(json);
    return;
  }
  for (const auto& migration : done) fmt::print("{} {}\n", verb, title(migration.number, migration.name));
  if (done.empty()) fmt::print("{}\n", nothing);
}

void print_partitions(int partitions) {
  if (partitions == 1) fmt::print("the inbox is one table\n");
  else fmt::print("the inbox has {} hash partitions, by id\n", partitions);
}

/// To stderr: stdout is the result.
void tell_wait(const std::string& why) { tell(fmt::format("turnstile: {}\n", why)); }

// --- up ---

/// The function that makes partitions comes with migration 4.
void require_partitioner(const std::vector<Migration>& known) {
  if (known.size() >= 4) return;
  throw UsageError("--partitions needs migration 0004 retention, which --to or --dir leaves out");
}

Exit up(const Global& global, const MigrateOptions& options) {
  const PostgresSettings settings = require_postgres(load_settings(global));
  auto known = known_migrations(options);
  std::size_t left_out = 0;
  if (options.to) {
    require_known(known, *options.to);
    for (const auto& state : postgres::migrate_status(settings, known)) {
      if (state.number <= *options.to || !was_run(state)) continue;
      throw UsageError(
          fmt::format("--to {}: migration {} has been run already; to go back: turnstile migrate down --to {}",
                      *options.to, title(state.number, state.name), *options.to));
    }
    left_out = std::erase_if(known, [&](const Migration& m) { return m.number > *options.to; });
  }
  if (options.partitions) require_partitioner(known);
  const std::string nothing =
      left_out == 0 ? "nothing to do: all have been run"
                    : fmt::format("nothing to do: all up to {} have been run; {} pending", *options.to,
                                  left_out == 1 ? "1 later one is" : fmt::format("{} later ones are", left_out));
  report(global, settings, postgres::migrate_up(settings, known, options.partitions, tell_wait), "applied", "applied",
         nothing.c_str());
  if (options.partitions && !global.json) print_partitions(*options.partitions);
  return Exit::ok;
}

// --- status ---

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::applied: return "applied";
    case Kind::pending: return "pending";
    case Kind::changed: return "changed";
    case Kind::unknown: return "unknown";
    case Kind::newer: return "newer";
  }
  return "";
}

bool any(const std::vector<MigrationState>& states, Kind kind) {
  return std::any_of(states.begin(), states.end(), [&](const MigrationState& s) { return s.kind == kind; });
}

void print_states(const std::vector<MigrationState>& states) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& s : states) {
    const std::string by =
        s.applied_at.empty() ? "" : fmt::format("{} by {}", s.applied_at, one_line(s.applied_by, 60));
    rows.push_back({title(s.number, s.name), name_of(s.kind), by});
  }
  fmt::print("{}", table(rows));
  if (any(states, Kind::changed)) {
    fmt::print(
        "changed: the migration that was run differs from this build's. Restore the file; a new change needs a new number\n");
  }
  if (any(states, Kind::unknown)) fmt::print("unknown: run by a newer turnstile. Use that version, or a newer one\n");
  if (any(states, Kind::newer)) fmt::print("newer: run by a newer turnstile. This version can run with it\n");
  if (any(states, Kind::pending)) fmt::print("pending: run turnstile migrate up\n");
}

Exit status(const Global& global, const MigrateOptions& options) {
  const PostgresSettings settings = require_postgres(load_settings(global));
  const auto states = postgres::migrate_status(settings, known_migrations(options));
  const int partitions = postgres::inbox_partitions(settings);
  if (global.json) {
    Json json{{"schema", settings.schema},
              {"migrations", Json::array()},
              {"partitions", partitions == 0 ? Json(nullptr) : Json(partitions)}};
    for (const auto& s : states) {
      json["migrations"].push_back({{"number", s.number},
                                    {"name", s.name},
                                    {"state", name_of(s.kind)},
                                    {"applied_at", s.applied_at.empty() ? Json(nullptr) : Json(s.applied_at)},
                                    {"applied_by", s.applied_by.empty() ? Json(nullptr) : Json(s.applied_by)}});
    }
    print(json);
  } else {
    print_states(states);
    if (partitions > 0) print_partitions(partitions);
  }
  if (any(states, Kind::changed) || any(states, Kind::unknown)) return Exit::refused;
  return any(states, Kind::pending) ? Exit::problems : Exit::ok;
}

// --- down ---

/// Newest first.
std::vector<MigrationState> to_take_back(std::vector<MigrationState> states, const std::optional<int>& to) {
  std::erase_if(states, [&](const MigrationState& s) { return !was_run(s) || (to && s.number <= *to); });
  std::reverse(states.begin(), states.end());
  if (!to && states.size() > 1) states.resize(1);
  return states;
}

std::string titles(const std::vector<MigrationState>& states) {
  std::string all;
  for (const auto& s : states) all += (all.empty() ? "" : ", ") + title(s.number, s.name);
  return all;
}

Exit down(const Global& global, const MigrateOptions& options) {
  const PostgresSettings settings = require_postgres(load_settings(global));
  const auto known = known_migrations(options);
  if (options.to) require_known(known, *options.to);
  const auto undone = to_take_back(postgres::migrate_status(settings, known), options.to);
  if (!undone.empty() && !options.yes) {
    throw UsageError(fmt::format(
        "migrate down takes back {} in schema {}. It deletes their tables: without ids and dead letters, every message that is "
        "still in Kafka could take effect a second time. Nothing was changed; add --yes if you accept that",
        titles(undone), settings.schema));
  }
  std::vector<Migration> done;
  if (!undone.empty()) done = postgres::migrate_down(settings, known, static_cast<int>(undone.size()), tell_wait);
  report(global, settings, done, "taken_back", "taken back", "nothing to do: none has been run");
  return Exit::ok;
}

}  // namespace

void add_migrate(Verb app, Command& command) {
  const auto migrate = app.add_verb("migrate", "the tables in PostgreSQL");
  migrate.needs_verb();
  const auto options = std::make_shared<MigrateOptions>();
  const auto add_folder = [&](Verb verb) {
    verb.add_option("--dir", options->folder, "the SQL files of this folder (default: those that were built in)")
        .type("FOLDER");
  };

  const auto up_verb =
      migrate.add_verb("up", "create the schema, or bring it up to date; many replicas may run it at once");
  add_folder(up_verb);
  up_verb.add_option("--to", options->to, "no further than this number").type("N").whole_number(0, 2'147'483'647);
  up_verb
      .add_option("--partitions", options->partitions,
                  "make the inbox, while it is empty, a table with this many hash partitions (1: one plain table)")
      .type("N")
      .whole_number(1, 64);
  up_verb.runs(command, [options](const Global& global) { return up(global, *options); });

  const auto status_verb =
      migrate.add_verb("status", "which migrations have been run, and which have not (then exit code 1)");
  add_folder(status_verb);
  status_verb.runs(command, [options](const Global& global) { return status(global, *options); });

  const auto down_verb = migrate.add_verb("down", "remove the newest migration, with the contents of its tables");
  add_folder(down_verb);
  down_verb.add_option("--to", options->to, "remove all above this number; 0: all")
      .type("N")
      .whole_number(0, 2'147'483'647);
  down_verb.add_flag("--yes", options->yes, "delete the tables with their contents");
  down_verb.runs(command, [options](const Global& global) { return down(global, *options); });
}

}  // namespace turnstile::cli
