// The command line. Each verb has a file of its own. This file combines them, and turns an error into a line with its
// code, and an exit code.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string_view>

#include "command.hpp"
#include "output.hpp"
#include "text.hpp"
#include "turnstile/error.hpp"

namespace turnstile::cli {

namespace {

void add_global_options(Verb program, Global& global) {
  program.add_option("--config", global.config_file, "the configuration (default: turnstile.toml, if it exists)")
      .type("FILE");
  program
      .add_option("--postgres", global.postgres,
                  "the database; other users of this machine can read this option, so put a password into "
                  "TURNSTILE_POSTGRES_URL, the file, or ~/.pgpass")
      .type("URL");
  program.add_option("--schema", global.schema, "where the tables are (default: turnstile)").type("NAME");
  program.add_option("--kafka", global.kafka, "the brokers to connect to first").type("HOST:PORT,...");
  program.add_flag("--json", global.json, "print JSON, for scripts");
}

/// A verb with a footer of its own does not inherit the exit codes.
void end_with_exit_codes(CLI::App& app) {
  const std::string footer = app.get_footer();
  if (footer.find(kExitCodes) == std::string::npos) app.footer(footer + "\n\n" + kExitCodes);
  for (CLI::App* verb : app.get_subcommands({})) end_with_exit_codes(*verb);
}

/// A class of SQLSTATEs.
constexpr std::string_view kDataException = "22";

/// One line on stderr, with the error's code at its end: docs/operations/runbook.md explains each.
Exit fail(Exit exit, Code code, const std::string& text) {
  std::fflush(stdout);
  tell(fmt::format("turnstile: {} code={}\n", one_line(text, SIZE_MAX), to_text(code)));
  return exit;
}

/// The output may still be in a buffer, and a script treats 0 as complete output.
int finish(int code) {
  const std::string why = std::fflush(stdout) == 0 ? "" : fmt::format(": {}", std::strerror(errno));
  if (why.empty() && std::ferror(stdout) == 0) return code;
  const auto exit = fail(Exit::problems, Code::unexpected, "the output could not be written, and is incomplete" + why);
  return code == 0 ? static_cast<int>(exit) : code;
}

Exit run(const Command& command) {
  try {
    return command.run();
  } catch (const UsageError& error) {
    return fail(Exit::usage, error.code(), error.what());
  } catch (const ConfigError& error) {
    for (const auto& problem : error.problems) fail(Exit::usage, error.code(), problem);
    return Exit::usage;
  } catch (const SchemaError& error) {
    return fail(Exit::refused, error.code(), error.what());
  } catch (const StoreUnavailable& error) {
    return fail(Exit::unreachable, error.code(), error.what());
  } catch (const StoreBusy& error) {
    return fail(Exit::unreachable, error.code(),
                fmt::format("PostgreSQL was too busy, and the last statement was rolled back: {}; try again later",
                            error.what()));
  } catch (const BrokerError& error) {
    return fail(Exit::unreachable, error.code(), error.what());
  } catch (const SqlError& error) {
    // PostgreSQL rejects the text of an argument, for example bytes that are not UTF-8.
    return fail(error.sqlstate.starts_with(kDataException) ? Exit::usage : Exit::problems, error.code(), error.what());
  } catch (const std::exception& error) {
    const Code code = code_of(error);
    const bool is_refused = code == Code::operation_refused;
    return fail(is_refused                    ? Exit::refused
                : code == Code::limit_invalid ? Exit::usage
                                              : Exit::problems,
                code, error.what());
  }
}

/// "turnstile audit --help", if the verb was found; "turnstile --help".
std::string help_command(const CLI::App& app) {
  std::string command = "turnstile";
  for (auto verbs = app.get_subcommands(); !verbs.empty(); verbs = verbs.front()->get_subcommands())
    command += " " + verbs.front()->get_name();
  return command + " --help";
}

/// --help is a ParseError too, and succeeds.
int refuse(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  return static_cast<int>(fail(Exit::usage, Code::usage, fmt::format("{}; see: {}", error.what(), help_command(app))));
}

int main(int argc, char** argv) {
  CLI::App app{"Turnstile: Kafka messages take effect once, under cluster-wide concurrency limits."};
  app.name("turnstile");
  app.require_subcommand(1);
  app.fallthrough();

  Command command;
  const Verb program(app);
  add_global_options(program, command.global);
  add_migrate(program, command);
  add_inbox(program, command);
  add_dlq(program, command);
  add_rewind(program, command);
  add_retries(program, command);
  add_outbox(program, command);
  add_limits(program, command);
  add_permits(program, command);
  add_topics(program, command);
  add_top(program, command);
#ifdef TURNSTILE_DASHBOARD
  add_dashboard(program, command);
#endif
  add_log(program, command);
  add_audit(program, command);
  add_doctor(program, command);
  add_dev_broker(program, command);
  add_config(program, command);
  add_version(program, command);
  end_with_exit_codes(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    // CLI11 reports the missing verb before it looks at the word in its place.
    if (const auto words = app.remaining(true); !words.empty()) {
      return static_cast<int>(
          fail(Exit::usage, Code::usage,
               fmt::format("there is no {} \"{}\"; see: {}", words.front().starts_with('-') ? "option" : "verb",
                           words.front(), help_command(app))));
    }
    return refuse(app, error);
  } catch (const CLI::ParseError& error) {
    return refuse(app, error);
  }
  return static_cast<int>(run(command));
}

}  // namespace

}  // namespace turnstile::cli

int main(int argc, char** argv) {
  turnstile::cli::open_missing_descriptors();
  return turnstile::cli::finish(turnstile::cli::main(argc, argv));
}
