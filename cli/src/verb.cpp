#include "verb.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "command.hpp"
#include "text.hpp"

namespace turnstile::cli {

Argument Argument::required() const {
  option_->required();
  return *this;
}

Argument Argument::type(const std::string& name) const {
  option_->type_name(name);
  return *this;
}

Argument Argument::shows_default() const {
  option_->capture_default_str();
  return *this;
}

// A validator may change the text, so CLI11 reads what was checked.
Argument Argument::whole_number(std::int64_t from, std::int64_t to) const {
  option_->transform(CLI::Validator(
      [from, to](std::string& text) {
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc{} && end == text.data() + text.size() && value >= from && value <= to) {
          text = std::to_string(value);
          return std::string();
        }
        return fmt::format("{} is not a whole number from {} to {}", one_line(text, 40), from, to);
      },
      ""));
  return *this;
}

Argument Argument::excludes(Argument other) const {
  option_->excludes(other.option_);
  return *this;
}

Argument Argument::one_value_each() const {
  option_->allow_extra_args(false);
  return *this;
}

bool Argument::is_given() const { return option_->count() > 0; }

Verb Verb::add_verb(const std::string& name, const std::string& what) const {
  return Verb(*app_->add_subcommand(name, what));
}

void Verb::needs_verb() const { app_->require_subcommand(1); }

void Verb::footer(const std::string& text) const { app_->footer(text); }

void Verb::allow_rest() const { app_->allow_extras(); }

std::vector<std::string> Verb::rest() const {
  auto rest = app_->remaining();
  if (const auto mark = std::find(rest.begin(), rest.end(), "--"); mark != rest.end()) rest.erase(mark);
  return rest;
}

void Verb::runs(Command& command, std::function<Exit(const Global&)> action) const {
  app_->callback(
      [&command, action = std::move(action)] { command.run = [&command, action] { return action(command.global); }; });
}

template <class T>
Argument Verb::add_option(const std::string& name, T& to, const std::string& what) const {
  return Argument(*app_->add_option(name, to, what));
}

template <class T>
void Verb::add_flag(const std::string& name, T& to, const std::string& what) const {
  app_->add_flag(name, to, what);
}

template Argument Verb::add_option(const std::string&, std::string&, const std::string&) const;
template Argument Verb::add_option(const std::string&, std::optional<std::string>&, const std::string&) const;
template Argument Verb::add_option(const std::string&, std::vector<std::string>&, const std::string&) const;
template Argument Verb::add_option(const std::string&, std::int64_t&, const std::string&) const;
template Argument Verb::add_option(const std::string&, std::optional<std::int64_t>&, const std::string&) const;
template Argument Verb::add_option(const std::string&, std::optional<int>&, const std::string&) const;
template Argument Verb::add_option(const std::string&, std::size_t&, const std::string&) const;
template void Verb::add_flag(const std::string&, bool&, const std::string&) const;
template void Verb::add_flag(const std::string&, std::string&, const std::string&) const;

}  // namespace turnstile::cli
