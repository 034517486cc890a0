#pragma once
// The common part of the verbs: the options before them, and the action that they choose.

#include <functional>
#include <optional>
#include <string>

#include "exit_code.hpp"
#include "turnstile/config.hpp"
#include "turnstile/error.hpp"
#include "verb.hpp"

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
void add_migrate(Verb app, Command& command);
void add_inbox(Verb app, Command& command);
void add_purge(Verb inbox, Command& command);
void add_dlq(Verb app, Command& command);
void add_replay(Verb dlq, Command& command);
void add_dlq_groups(Verb dlq, Command& command);
void add_dlq_edit(Verb dlq, Command& command);
void add_dlq_purge(Verb dlq, Command& command);
void add_rewind(Verb app, Command& command);
void add_retries(Verb app, Command& command);
void add_outbox(Verb app, Command& command);
void add_limits(Verb app, Command& command);
void add_limits_divide(Verb limits, Command& command);
void add_permits(Verb app, Command& command);
void add_topics(Verb app, Command& command);
void add_top(Verb app, Command& command);
void add_dashboard(Verb app, Command& command);
void add_log(Verb app, Command& command);
void add_audit(Verb app, Command& command);
void add_doctor(Verb app, Command& command);
void add_dev_broker(Verb app, Command& command);
void add_config(Verb app, Command& command);
void add_version(Verb app, Command& command);

}  // namespace turnstile::cli
