// turnstile doctor: each line is ok, or tells what to do.

#include <fmt/format.h>

#include <algorithm>

#include "command.hpp"
#include "settings.hpp"
#include "text.hpp"
#include "turnstile/error.hpp"
#include "turnstile/findings.hpp"
#include "turnstile/kafka/broker.hpp"

namespace turnstile::cli {

namespace {

using Level = Finding::Level;

const char* name_of(Level level) {
  switch (level) {
    case Level::ok: return "ok";
    case Level::warning: return "warning";
    case Level::problem: return "problem";
  }
  return "";
}

const char* mark_of(Level level) {
  switch (level) {
    case Level::ok: return "ok     ";
    case Level::warning: return "warning";
    case Level::problem: return "PROBLEM";
  }
  return "";
}

void look_at_all(const Global& global, Findings& findings) {
  try {
    const Config config = load_settings(global, kafka::check_settings);
    const bool names_kafka = config.kafka.contains("bootstrap.servers");
    if (config.topics.empty() && !names_kafka && (!config.postgres || config.postgres->url.empty())) {
      findings.problem(
          "configuration",
          fmt::format("{}: names no topic, no broker and no database, so there is nothing to check", source_of(config)),
          fmt::format("run this where the consumer's {} is, or give --config FILE", kDefaultFile));
      return;
    }
    findings.ok("configuration", fmt::format("{}: {}", source_of(config),
                                             count(static_cast<std::int64_t>(config.topics.size()), "topic")));
    look_at_system(config, findings);
  } catch (const ConfigError& error) {
    for (const auto& problem : error.problems) findings.problem("configuration", problem);
  }
}

void print_lines(const std::vector<Finding>& all) {
  std::size_t width = 0;
  for (const auto& finding : all) width = std::max(width, finding.subject.size());
  for (const auto& finding : all) {
    fmt::print("{}  {:{}}  {}\n", mark_of(finding.level), one_line(finding.subject, SIZE_MAX), width,
               one_line(finding.text, SIZE_MAX));
    if (!finding.remedy.empty()) fmt::print("{:9}{:{}}  -> {}\n", "", "", width, one_line(finding.remedy, SIZE_MAX));
  }
}

Exit doctor(const Global& global) {
  Findings findings;
  look_at_all(global, findings);
  const auto& all = findings.all();
  const auto problems =
      std::count_if(all.begin(), all.end(), [](const Finding& f) { return f.level == Level::problem; });
  if (global.json) {
    Json json{{"problems", problems}, {"findings", Json::array()}};
    for (const auto& f : all) {
      json["findings"].push_back(
          {{"level", name_of(f.level)}, {"subject", f.subject}, {"text", f.text}, {"remedy", f.remedy}});
    }
    print(json);
  } else {
    print_lines(all);
    if (problems > 0) fmt::print("{} found\n", count(problems, "problem"));
  }
  return problems == 0 ? Exit::ok : Exit::problems;
}

}  // namespace

void add_doctor(Verb app, Command& command) {
  const auto verb = app.add_verb(
      "doctor", "checks configuration, brokers, topics, database, schema and rights, and the running system");
  verb.footer("A wrong configuration is a problem like others: exit code 1.");
  verb.runs(command, [](const Global& global) { return doctor(global); });
}

}  // namespace turnstile::cli
