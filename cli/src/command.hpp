#pragma once
// The common part of the verbs: the options before them, and the action that they choose.

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "exit_code.hpp"
#include "turnstile/config.hpp"
#include "turnstile/error.hpp"

namespace turnstile::cli {

/// The options that may stand before or after any verb.
struct Global {
  std::optional<std::string> config_file;
  std::optional<std::string> postgres;
  std::optional<std::string> schema;
  std::optional<std::string> kafka;
  bool json = false;
};

/// The command line fills it. Parsing chooses exactly one `run`.
struct Command {
  Global global;
  std::function<Exit()> run;
};

/// The command line has the right form, but a wrong meaning: exit code 2.
struct UsageError : Error {
  explicit UsageError(const std::string& message) : Error(Code::usage, message) {}
};

/// The action would do more harm than good: exit code 4.
struct Refusal : Error {
  explicit Refusal(const std::string& message) : Error(Code::operation_refused, message) {}
};

// One function for each verb, in its own file. `command` must outlive the parsing and the run.
void add_migrate(CLI::App& app, Command& command);
void add_inbox(CLI::App& app, Command& command);
void add_purge(CLI::App& inbox, Command& command);
void add_dlq(CLI::App& app, Command& command);
void add_replay(CLI::App& dlq, Command& command);
void add_dlq_groups(CLI::App& dlq, Command& command);
void add_dlq_edit(CLI::App& dlq, Command& command);
void add_dlq_purge(CLI::App& dlq, Command& command);
void add_rewind(CLI::App& app, Command& command);
void add_retries(CLI::App& app, Command& command);
void add_outbox(CLI::App& app, Command& command);
void add_limits(CLI::App& app, Command& command);
void add_limits_divide(CLI::App& limits, Command& command);
void add_permits(CLI::App& app, Command& command);
void add_topics(CLI::App& app, Command& command);
void add_top(CLI::App& app, Command& command);
void add_dashboard(CLI::App& app, Command& command);
void add_log(CLI::App& app, Command& command);
void add_audit(CLI::App& app, Command& command);
void add_doctor(CLI::App& app, Command& command);
void add_dev_broker(CLI::App& app, Command& command);
void add_config(CLI::App& app, Command& command);
void add_version(CLI::App& app, Command& command);

}  // namespace turnstile::cli
