// turnstile limits list|history|set|unset: shows and changes limits over all consumers while they run.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>

#include "command.hpp"
#include "domain.hpp"
#include "limiter_json.hpp"
#include "operator_name.hpp"
#include "turnstile/error.hpp"
#include "turnstile/shell.hpp"

namespace turnstile::cli {

namespace {

constexpr std::int64_t kMost = 1'000'000'000;
constexpr std::size_t kLimitsShown = 60;
constexpr const char* kRule =
    "The effective limit is the one that an operator set (turnstile limits set), until it is unset; otherwise the lowest\n"
    "value configured by any running member.";

struct LimitsOptions {
  DomainOptions domain;
  std::string name;
  std::string number;
  std::string timeout = "15s";
  bool ahead = false;
};

const PermitsView::Entry* find(const PermitsView& view, const std::string& name) {
  const auto found = std::find_if(view.limiters.begin(), view.limiters.end(),
                                  [&](const auto& entry) { return entry.limiter == name; });
  return found == view.limiters.end() ? nullptr : &*found;
}

PermitsView read_all(TokenReader& reader) {
  reader.start(reader.end());
  return reader.permits();
}

// --- list ---

/// "8 by mailer@host1:77, 16 by 2 members"
std::string configured(const PermitsView::Entry& entry) {
  std::map<std::int64_t, std::vector<const PermitsView::Holder*>> by_limit;
  for (const auto& who : entry.holders) {
    if (who.configured > 0) by_limit[who.configured].push_back(&who);
  }
  std::string text;
  for (const auto& [limit, members] : by_limit) {
    text += text.empty() ? "" : ", ";
    text += members.size() == 1 && by_limit.size() > 1
                ? fmt::format("{} by {}", number(limit), holder(members[0]->client, members[0]->host, members[0]->pid))
                : fmt::format("{} by {}", number(limit), count(static_cast<std::int64_t>(members.size()), "member"));
  }
  return text.empty() ? "-" : text;
}

std::string decided_by(const PermitsView::Entry& entry) {
  if (entry.set) return "an operator";
  if (entry.configured.empty()) return "no process";
  const auto [low, high] = std::minmax_element(entry.configured.begin(), entry.configured.end());
  return *low == *high ? "configuration" : "configuration (the lowest)";
}

void print_reserved(const PermitsView::Entry& entry) {
  if (entry.set_aside == 0) return;
  fmt::print(
      "{}: of its limit, {} are reserved for members that cannot reach the log ([limits] reserve), {} are shared\n",
      one_line(entry.limiter, kLimitsShown), number(entry.set_aside), number(entry.limit - entry.set_aside));
}

void print_list(const TokenReader& reader, const PermitsView& view) {
  if (view.limiters.empty()) {
    fmt::print("no limiters: no running member has one, and none is set\n");
  } else {
    std::vector<std::vector<std::string>> rows{
        {"LIMITER", "LIMIT", "DECIDED BY", "HELD", "FREE", "BUSY", "WAITING", "CONFIGURED"}};
    for (const auto& entry : view.limiters) {
      rows.push_back({one_line(entry.limiter, kLimitsShown), number(entry.limit) + (entry.set == 0 ? " (paused)" : ""),
                      decided_by(entry), number(entry.held()) + (is_over(entry) ? " (over)" : ""), number(free(entry)),
                      number(entry.busy()), number(entry.waiting()), configured(entry)});
    }
    fmt::print("{}", table(rows));
    for (const auto& entry : view.limiters) {
      print_reserved(entry);
      if (entry.limit > 0 && is_over(entry)) {
        fmt::print("{}: {} are held, more than its limit: no handler starts until it fits\n",
                   one_line(entry.limiter, kLimitsShown), number(entry.held()));
      }
    }
  }
  print_moving(view);
  fmt::print("\n{}\n{}\n", where_read(reader, view), kRule);
}

Exit list(const Global& global, const LimitsOptions& options) {
  return look_at_domain(global, options.domain, [&](TokenReader& reader) {
    const PermitsView view = read_all(reader);
    if (global.json) {
      Json json{{"log", reader.name()}, {"position", view.position}, {"limiters", Json::array()}};
      for (const auto& entry : view.limiters) json["limiters"].push_back(cli::to_json(entry));
      print(json);
    } else {
      print_list(reader, view);
    }
    return Exit::ok;
  });
}

// --- history ---

Exit history(const Global& global, const LimitsOptions& options) {
  return look_at_domain(global, options.domain, [&](TokenReader& reader) {
    const PermitsView view = read_all(reader);
    if (global.json) {
      Json json{{"log", reader.name()}, {"position", view.position}, {"changes", Json::array()}};
      for (const auto& change : view.limit_changes) json["changes"].push_back(cli::to_json(change));
      print(json);
      return Exit::ok;
    }
    if (view.limit_changes.empty()) fmt::print("no change of a limit is recorded\n");
    std::vector<std::vector<std::string>> rows{{"POSITION", "TIME", "LIMITER", "LIMIT", "BY"}};
    for (const auto& change : view.limit_changes) {
      rows.push_back({std::to_string(change.position), when_or_unknown(change.at_ms),
                      one_line(change.limiter, kLimitsShown),
                      !change.limit        ? "unset"
                      : *change.limit == 0 ? "0 (paused)"
                                           : number(*change.limit),
                      change.by.empty() ? "unknown" : one_line(change.by, kLimitsShown)});
    }
    if (reader.parts() > 1) {  // each part counts its own positions
      rows.front().insert(rows.front().begin(), "PART");
      for (std::size_t i = 0; i < view.limit_changes.size(); ++i)
        rows[i + 1].insert(rows[i + 1].begin(), std::to_string(view.limit_changes[i].part));
    }
    if (rows.size() > 1) fmt::print("{}", table(rows));
    return Exit::ok;
  });
}

// --- set, unset ---

std::int64_t parse_limit(const std::string& text) {
  std::int64_t limit = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
  const bool whole = rest == text.data() + text.size();
  if (whole && error == std::errc::result_out_of_range) limit = text.starts_with('-') ? -1 : kMost + 1;
  else if (!whole || error != std::errc{})
    throw UsageError(fmt::format("limits set: \"{}\" is not a whole number; write: turnstile limits set NAME N",
                                 one_line(text, kLimitsShown)));
  if (limit < 0 || limit > kMost) {
    throw UsageError(fmt::format("limits set: a limit is 0 (pauses the limiter) to {}, not {}", number(kMost),
                                 one_line(text, kLimitsShown)));
  }
  return limit;
}

std::chrono::milliseconds parse_timeout(const std::string& text) {
  const auto timeout = parse_duration(text);
  if (!timeout) throw UsageError(fmt::format("--timeout {}: write 500ms, 30s or 2m", one_line(text, kLimitsShown)));
  return *timeout;
}

[[noreturn]] void fail_unknown(const TokenReader& reader, const LimitsOptions& options, const std::string& remedy) {
  const PermitsView view = reader.permits();
  const auto nearest = nearest_limiter(view, options.name);
  std::string known;
  for (const auto& entry : view.limiters) known += (known.empty() ? "" : ", ") + one_line(entry.limiter, kLimitsShown);
  throw Error(Code::limiter_unknown,
              fmt::format("no limiter \"{}\" in {}{}; {}{}", one_line(options.name, kLimitsShown), reader.name(),
                          nearest ? fmt::format(" (did you mean \"{}\"?)", one_line(*nearest, kLimitsShown)) : "",
                          known.empty() ? "there is none: no running member has a limit, and none is set"
                                        : "there are: " + known,
                          remedy));
}

/// "by configuration (the lowest)"
std::string by(const PermitsView::Entry& entry) { return entry.set ? "set by an operator" : "by " + decided_by(entry); }

/// "64, by configuration"
std::string said(const PermitsView::Entry* entry) {
  if (entry == nullptr || (!entry->set && entry->configured.empty())) return "none";
  return fmt::format("{}, {}", entry->set == 0 ? "paused" : number(entry->limit), by(*entry));
}

void print_change(const std::string& name, const PermitsView::Entry* before, const PermitsView::Entry* after) {
  const std::string shown = one_line(name, kLimitsShown);
  if (after == nullptr) {
    fmt::print(
        "{}: no longer set (before: {}). No running member has it: the next member's configuration will be in effect\n",
        shown, said(before));
    return;
  }
  const std::int64_t held = after->held();
  const std::string now = after->limit == 0
                              ? "paused: no handler starts"
                              : fmt::format("{} at once over all members, {}", number(after->limit), by(*after));
  fmt::print("{}: {} (before: {})\n", shown, now, said(before));
  if (after->limit > 0) print_reserved(*after);
  if (held > after->limit) {
    fmt::print("{} {} held: running handlers keep their permits, and {}\n", number(held), held == 1 ? "is" : "are",
               after->limit == 0 ? "no handler starts" : "no handler starts until it fits");
  }
  if (before != nullptr && after->limit < before->limit)
    fmt::print(
        "a process that is cut off from Kafka does not learn of it: it starts handlers under the earlier limit until 7/8 of its lease\n");
  if (!after->set) return;
  if (after->configured.empty())
    fmt::print("no running member has this limiter: the limit applies to members that start later\n");
  else
    fmt::print("configured: {}; that is in effect again after: turnstile limits unset {}\n", configured(*after),
               text::shell_operand(name, "NAME"));
}

/// Waits until it is in effect, and prints the effective limit.
Exit change(const Global& global, const LimitsOptions& options, std::optional<std::int64_t> limit) {
  const auto timeout = parse_timeout(options.timeout);
  const auto reader = open_domain(global, options.domain);
  reader->start(reader->end());
  const PermitsView view = reader->permits_at_home_of(options.name);
  const auto* before = find(view, options.name);
  if (before == nullptr && limit && !options.ahead) {
    fail_unknown(*reader, options, ". To set it before the first member that has it starts, add --ahead");
  }
  if (before == nullptr && !limit) fail_unknown(*reader, options, "");
  const bool nothing_to_do = !limit && !before->set;
  if (!nothing_to_do && !reader->set_limit(options.name, limit, timeout, operator_name())) {
    const auto& why = reader->why_not_written();
    throw BrokerError(
        Code::token_log_silent,
        fmt::format(
            "limiter \"{}\": the change was not read back from {} within {}{}. It may still take effect; check with: turnstile limits list",
            one_line(options.name, kLimitsShown), reader->name(), duration(timeout),
            why.empty() ? "" : " (writing failed: " + why + ")"));
  }
  const PermitsView now = reader->permits_at_home_of(options.name);
  const auto* after = find(now, options.name);
  if (global.json) {
    print(Json{{"log", reader->name()},
               {"position", now.position},
               {"before", before == nullptr ? Json(nullptr) : cli::to_json(*before)},
               {"now", after == nullptr ? Json(nullptr) : cli::to_json(*after)}});
  } else if (nothing_to_do) {
    fmt::print("{}: no operator has set it; in effect: {}\n", one_line(options.name, kLimitsShown), said(before));
  } else {
    print_change(options.name, before, after);
  }
  return Exit::ok;
}

/// "-1" looks like an option, so it is in the rest.
std::string number_of(const LimitsOptions& options, const std::vector<std::string>& rest) {
  constexpr const char* kHelp = "turnstile limits set --help";
  const bool is_in_rest = options.number.empty() && rest.size() == 1;
  if (!rest.empty() && !is_in_rest)
    throw UsageError(fmt::format("arguments that were not expected: {}; see: {}", fmt::join(rest, " "), kHelp));
  if (options.number.empty() && !is_in_rest) throw UsageError(fmt::format("N is required; see: {}", kHelp));
  return is_in_rest ? rest.front() : options.number;
}

void add_change_options(Verb verb, LimitsOptions& options) {
  add_domain_options(verb, options.domain);
  verb.add_option("--timeout", options.timeout, "how long to wait until the limit is in effect")
      .type("TIME")
      .shows_default();
}

}  // namespace

void add_limits(Verb app, Command& command) {
  const auto limits = app.add_verb("limits", "how many handlers may run at once in all processes together");
  limits.needs_verb();
  limits.footer(kRule);
  const auto options = std::make_shared<LimitsOptions>();
  add_domain_options(limits, options->domain);

  const auto list_verb =
      limits.add_verb("list", "each limiter: its effective limit, the source of it, and what is in use");
  add_domain_options(list_verb, options->domain);
  list_verb.footer(fmt::format("{}\nBUSY and WAITING are as each member last reported, 4 times a lease.", kRule));
  list_verb.runs(command, [options](const Global& global) { return list(global, *options); });

  const auto history_verb = limits.add_verb("history", "the last changes of limits: when, and by whom");
  add_domain_options(history_verb, options->domain);
  history_verb.footer(
      "The token log keeps the last 100. Changes by builds of turnstile that do not record it have no name.");
  history_verb.runs(command, [options](const Global& global) { return history(global, *options); });

  const auto set_verb = limits.add_verb("set", "change a limit while consumers run; 0 pauses the limiter");
  set_verb.add_option("NAME", options->name, "as limits list has it").required();
  // As text, so that the error can name it.
  set_verb.add_option("N", options->number, "0 (pauses) to 1000000000");
  set_verb.allow_rest();
  set_verb.add_flag("--ahead", options->ahead, "although no running member has a limiter of this name yet");
  add_change_options(set_verb, *options);
  set_verb.footer(fmt::format(
      "{}\nLowered below what is in use: running handlers keep their permits, and no handler starts until it fits.\n"
      "Write -- before a NAME that begins with -, and other options before that.",
      kRule));
  set_verb.runs(command, [options, set_verb](const Global& global) {
    return change(global, *options, parse_limit(number_of(*options, set_verb.rest())));
  });

  add_limits_divide(limits, command);

  const auto unset_verb = limits.add_verb("unset", "the configured limit is in effect again");
  unset_verb.add_option("NAME", options->name, "as limits list has it").required();
  add_change_options(unset_verb, *options);
  unset_verb.runs(command, [options](const Global& global) { return change(global, *options, std::nullopt); });
}

}  // namespace turnstile::cli
