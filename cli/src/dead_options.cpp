#include "dead_options.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "command.hpp"
#include "point.hpp"
#include "turnstile/dead_reason.hpp"

namespace turnstile::cli {

void add_dead_options(Verb verb, DeadOptions& options) {
  verb.add_option("--handler", options.handler, "of this handler only").type("NAME");
  verb.add_option("--topic", options.topic, "of this topic only").type("NAME");
  verb.add_option("--reason", options.reason, "with this reason only").type("REASON");
  verb.add_option("--since", options.since, "that died at this time or later: \"2026-03-01 14:05\", \"2h ago\"")
      .type("TIME");
  verb.add_option("--until", options.until, "that died before this time").type("TIME");
  verb.add_option("--header", options.header, "with a header of this name and exactly this value").type("NAME=VALUE");
  verb.add_option("--text", options.text, "with this text in the payload").type("TEXT");
}

void require_reason(const std::string& reason) {
  std::string known;
  if (parse_dead_reason(reason)) return;
  for (const DeadReason each : dead_reasons()) known.append(known.empty() ? "" : ", ").append(to_text(each));
  throw UsageError(
      fmt::format("no dead letter can have the reason \"{}\"; the reasons are: {}", one_line(reason, 80), known));
}

Header parse_header(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw UsageError(fmt::format("--header {}: write it as NAME=VALUE", one_line(text, 80)));
  return {text.substr(0, equals), text.substr(equals + 1)};
}

postgres::DeadFilter dead_filter(postgres::Admin& admin, const DeadOptions& options) {
  postgres::DeadFilter filter;
  const auto now = std::chrono::floor<std::chrono::microseconds>(std::chrono::system_clock::now());
  if (options.since) filter.since = parse_time("--since", *options.since, now);
  if (options.until) filter.until = parse_time("--until", *options.until, now);
  if (filter.since && filter.until && *filter.since >= *filter.until) {
    throw UsageError(fmt::format("--since {} is not before --until {}: no dead letter can match", when(*filter.since),
                                 when(*filter.until)));
  }
  if (options.header) filter.header = parse_header(*options.header);
  if (options.text && options.text->empty()) throw UsageError("--text: give at least one character");
  if (options.reason) require_reason(*options.reason);
  if (options.handler) require_handler(admin, *options.handler);
  if (options.topic) require_topic(admin, *options.topic);
  filter.handler = options.handler;
  filter.topic = options.topic;
  filter.reason = options.reason;
  filter.text = options.text;
  return filter;
}

std::string groups_table(const postgres::DeadGroups& groups) {
  if (groups.groups.empty()) return "";
  std::vector<std::vector<std::string>> rows{{"COUNT", "TOPIC", "HANDLER", "REASON", "OLDEST", "NEWEST", "EXAMPLE"}};
  // Absent if they were not grouped by error.
  const bool with_errors = std::any_of(groups.groups.begin(), groups.groups.end(),
                                       [](const postgres::DeadGroup& group) { return !group.error.empty(); });
  if (with_errors) rows.front().push_back("ERROR");
  for (const auto& group : groups.groups) {
    rows.push_back({number(group.count), group.topic.empty() ? "(unknown)" : one_line(group.topic, 60),
                    one_line(group.handler, 40), one_line(group.reason, 40), when(group.oldest), when(group.newest),
                    std::to_string(group.example)});
    if (with_errors) rows.back().push_back(one_line(group.error, 70));
  }
  return table(rows);
}

Json to_json(const postgres::DeadGroups& groups) {
  Json list = Json::array();
  for (const auto& group : groups.groups) {
    list.push_back({{"topic", group.topic},
                    {"handler", group.handler},
                    {"reason", group.reason},
                    {"error", group.error},
                    {"count", group.count},
                    {"replayed", group.replayed},
                    {"in_doubt", group.in_doubt},
                    {"oldest", iso(group.oldest)},
                    {"newest", iso(group.newest)},
                    {"example", group.example}});
  }
  return list;
}

}  // namespace turnstile::cli
