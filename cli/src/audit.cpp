// turnstile audit: whether the promises were kept, by what Kafka and PostgreSQL have stored.

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

#include "audit/report.hpp"
#include "command.hpp"
#include "output.hpp"
#include "point.hpp"
#include "settings.hpp"
#include "turnstile/error.hpp"
#include "turnstile/kafka/limiters.hpp"

namespace turnstile::cli {

namespace {

using std::chrono::steady_clock;

/// Between two lines that show how far it is.
constexpr std::chrono::seconds kTellEvery{2};

struct Options {
  audit::RecordAuditOptions records{};
  std::optional<std::string> from{}, to{};
  std::optional<std::string> handler{}, message_id{};
  std::optional<std::string> metrics{};
  std::size_t list = 20;
  bool no_limits = false;
};

std::optional<Timestamp> time_of(const std::optional<std::string>& text, const char* option) {
  if (!text) return std::nullopt;
  const auto now = std::chrono::floor<std::chrono::microseconds>(std::chrono::system_clock::now());
  const auto point = parse_point(*text, now);
  if (const auto* time = std::get_if<Microseconds>(&point)) return std::chrono::floor<std::chrono::milliseconds>(*time);
  throw UsageError(fmt::format("{} {}: it needs a time, such as \"2026-03-01 14:05\" or \"2h ago\"", option, *text));
}

/// What a program sets in code is not in the configuration: the options stand for it. A topic whose mode is not
/// configured is taken as transactional, which has the same rows as leased.
Config completed(Config config, const Options& options) {
  TopicSettings& topic = config.topics[options.records.topic];
  if (!topic.mode) topic.mode = Mode::transactional;
  if (options.handler) topic.handler = options.handler;
  if (options.message_id) topic.message_id = options.message_id;
  return config;
}

audit::LimitAudit look_at_limits(const Config& config, const Options& options) {
  audit::LimitAudit limits;
  if (options.no_limits) {
    limits.why_not = "--no-limits";
    return limits;
  }
  // A program can count its limits in PostgreSQL; the configuration does not say so.
  limits.in_database = postgres::audited_limiters(require_postgres(config));
  std::string why_no_log;
  if (config.limits.over != "cluster") {
    why_no_log =
        fmt::format("each process counts by itself ({} = \"{}\")", config.where("limits.over"), config.limits.over);
  } else {
    const auto settings = require_kafka(config);
    const std::string topic = config.limits.topic.empty() ? config.group() + ".tokens" : config.limits.topic;
    const auto look = [&] {
      const auto log = kafka::find_token_log(settings, topic, nullptr);
      if (!log) {
        why_no_log = "there is no token log " + topic;
        return;
      }
      limits.name = log->name();
      limits.log = audit_token_log(*log);
    };
    try {
      look();
    } catch (const TokenLogBroken&) {  // members have trimmed it meanwhile
      look();
    }
  }
  if (limits.in_database.empty()) limits.why_not = why_no_log;
  return limits;
}

/// A reader of the file sees the old text or the new one.
void write_whole(const std::string& path, const std::string& text) {
  const std::string fresh = path + "." + std::to_string(::getpid());
  {
    std::ofstream out(fresh, std::ios::binary);
    out << text;
    if (!out.flush()) throw UsageError("--metrics " + path + ": cannot be written");
  }
  std::error_code error;
  std::filesystem::rename(fresh, path, error);
  if (error) {
    std::filesystem::remove(fresh, error);
    throw UsageError("--metrics " + path + ": cannot be written");
  }
}

Exit run(const Global& global, Options options) {
  options.records.from = time_of(options.from, "--from");
  options.records.to = time_of(options.to, "--to");
  if (options.records.from && options.records.to && *options.records.from >= *options.records.to)
    throw UsageError("--from must be before --to");
  const Config config = completed(load_settings(global), options);
  auto told_at = steady_clock::now();
  const bool tells = ::isatty(STDERR_FILENO) == 1;
  audit::Report report;
  report.records = audit::audit_records(config, options.records, [&](std::int64_t records) {
    if (!tells || steady_clock::now() < told_at + kTellEvery) return;
    told_at = steady_clock::now();
    tell(fmt::format("turnstile: {} compared\n", count(records, "record")));
  });
  report.limits = look_at_limits(config, options);
  if (options.metrics) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    write_whole(*options.metrics,
                audit::metrics(report, std::chrono::duration_cast<std::chrono::seconds>(now).count()));
  }
  if (global.json) print(audit::to_json(report, options.list));
  else audit::print(report, options.list);
  return report.holds() ? Exit::ok : Exit::problems;
}

}  // namespace

void add_audit(CLI::App& app, Command& command) {
  const auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand(
      "audit", "whether each record had one fate, each effect has a record, and no limit was exceeded");
  verb->add_option("--topic", options->records.topic, "the topic")->type_name("TOPIC")->required();
  verb->add_option("--group", options->records.group, "the consumer group (default: group.id of the configuration)")
      ->type_name("GROUP");
  verb->add_option("--from", options->from, "only records from this time on: \"2026-03-01 14:05\" (UTC), \"2h ago\"")
      ->type_name("TIME");
  verb->add_option("--to", options->to, "only records before this time")->type_name("TIME");
  verb->add_option("--handler", options->handler, "the handler's name, if the program sets it in code")
      ->type_name("NAME");
  verb->add_option("--message-id", options->message_id, "where ids come from, if the program sets it in code")
      ->type_name("SOURCE");
  verb->add_option("--list", options->list, "how many violations to show")
      ->type_name("N")
      ->check(CLI::Range(std::size_t{0}, audit::kMostViolations))
      ->capture_default_str();
  verb->add_flag("--no-limits", options->no_limits, "do not read the token log");
  verb->add_option("--metrics", options->metrics, "also write a file for the textfile collector of node_exporter")
      ->type_name("FILE");
  verb->footer(
      "Exit code 0: all promises hold as far as it can be told; 1: one does not. What is older than the stored ids is\n"
      "counted under \"cannot tell\". It reads the whole topic, and the inbox twice, in one snapshot of the database.");
  verb->callback([&command, options] {
    command.run = [&command, options] {
      try {
        return run(command.global, *options);
      } catch (const Error& error) {
        // Exit code 1 says that a promise does not hold. Without a comparison nobody can say that.
        if (error.code() == Code::not_found) throw UsageError(error.what());
        throw;
      }
    };
  });
}

}  // namespace turnstile::cli
