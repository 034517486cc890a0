#pragma once
// What the command line is made of: verbs, their arguments and options. Only verb.cpp and main.cpp include CLI11, whose
// header costs every file that includes it 3 s of compilation (GCC 12, -O1, measured).

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "exit_code.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace turnstile::cli {

struct Command;
struct Global;

/// A handle for a positional argument or an option. The command line owns what it refers to.
class Argument {
 public:
  explicit Argument(CLI::Option& option) : option_(&option) {}

  Argument required() const;
  /// What the help prints in place of a value.
  Argument type(const std::string& name) const;
  /// The help prints the present value of the variable as the default.
  Argument shows_default() const;
  /// A whole number, in decimal. CLI11's own checks print ranges of floating-point numbers, and it changes a number that
  /// is too large into the largest one, and reads 010 as 8.
  Argument whole_number(std::int64_t from, std::int64_t to = std::numeric_limits<std::int64_t>::max()) const;
  Argument excludes(Argument other) const;
  /// Each value needs the option's name before it.
  Argument one_value_each() const;
  /// After the parsing.
  [[nodiscard]] bool is_given() const;

 private:
  CLI::Option* option_;
};

/// A handle for a verb, or for the program itself. The command line owns what it refers to.
class Verb {
 public:
  explicit Verb(CLI::App& app) : app_(&app) {}

  Verb add_verb(const std::string& name, const std::string& what) const;
  /// One of its verbs must follow.
  void needs_verb() const;
  /// `to` must outlive the parsing. Its type is one of those at the end of verb.cpp.
  template <class T>
  Argument add_option(const std::string& name, T& to, const std::string& what) const;
  /// `to` becomes true. A text becomes "true", or VALUE if the flag is given as --flag=VALUE.
  template <class T>
  void add_flag(const std::string& name, T& to, const std::string& what) const;
  /// Below the options in the help.
  void footer(const std::string& text) const;
  /// Arguments that are not known do not end the parsing: see rest().
  void allow_rest() const;
  /// The arguments that were not known.
  [[nodiscard]] std::vector<std::string> rest() const;
  /// What the verb does. `command` must outlive the parsing.
  void runs(Command& command, std::function<Exit(const Global&)> action) const;

 private:
  CLI::App* app_;
};

}  // namespace turnstile::cli
