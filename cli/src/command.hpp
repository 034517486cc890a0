#pragma once
// What the verbs share: the options before them, and how they hand over what is to be done.

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>

#include "exit_code.hpp"
#include "turnstile/config.hpp"

namespace turnstile::cli {

/// The options that stand before or after any verb.
struct Global {
  std::optional<std::string> config_file;
  std::optional<std::string> postgres;
  std::optional<std::string> schema;
  std::optional<std::string> kafka;
  bool json = false;
};

/// Filled by the command line; parsing chooses exactly one `run`.
struct Command {
  Global global;
  std::function<Exit()> run;
};

/// The command line is right by its form and wrong by its meaning: exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Done would be worse than not done: exit code 4.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One for each verb, in a file of its own. `command` must outlive the parsing and the run.
void add_migrate(CLI::App& app, Command& command);
void add_inbox(CLI::App& app, Command& command);
void add_purge(CLI::App& inbox, Command& command);
void add_dlq(CLI::App& app, Command& command);
void add_replay(CLI::App& dlq, Command& command);
void add_outbox(CLI::App& app, Command& command);
void add_limits(CLI::App& app, Command& command);
void add_permits(CLI::App& app, Command& command);
void add_log(CLI::App& app, Command& command);
void add_doctor(CLI::App& app, Command& command);
void add_dev_broker(CLI::App& app, Command& command);
void add_config(CLI::App& app, Command& command);
void add_version(CLI::App& app, Command& command);

}  // namespace turnstile::cli
