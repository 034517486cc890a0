// turnstile audit: whether the guarantees were kept, by what Kafka and PostgreSQL have stored.

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "audit/report.hpp"
#include "command.hpp"
#include "output.hpp"
#include "point.hpp"
#include "settings.hpp"
#include "text.hpp"
#include "turnstile/error.hpp"
#include "turnstile/kafka/limiters.hpp"

namespace turnstile::cli {

namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

/// Between two lines that show how far it is.
constexpr std::chrono::seconds kTellEvery{2};
constexpr std::size_t kShown = 200;
/// As in Linux.
constexpr int kMostLinks = 40;

struct AuditOptions {
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
Config completed(Config config, const AuditOptions& options) {
  TopicSettings& topic = config.topics[options.records.topic];
  if (!topic.mode) topic.mode = Mode::transactional;
  if (options.handler) topic.handler = options.handler;
  if (options.message_id) topic.message_id = options.message_id;
  return config;
}

audit::LimitAudit look_at_limits(const Config& config, const AuditOptions& options) {
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
      limits.log = audit_token_log(*log, kafka::parts_of_token_log(settings, topic));
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

/// Where the text of --metrics goes. A reader of a file sees the old text or the new one.
class MetricsFile {
 public:
  /// Throws UsageError if it cannot be written, before the audit takes its time.
  explicit MetricsFile(const std::string& path) : named_(path), path_(path) {
    std::error_code error;
    const auto status = fs::status(path_, error);
    if (fs::is_directory(status)) fail("it is a folder");
    replaces_ = !fs::exists(status) || fs::is_regular_file(status);
    if (!replaces_) {
      if (::access(path.c_str(), W_OK) != 0) fail(std::strerror(errno));
      return;
    }
    // A link stays, and the file that it names is replaced.
    for (int links = 0; fs::is_symlink(path_, error) && links < kMostLinks; ++links)
      path_ = path_.parent_path() / fs::read_symlink(path_, error);
    const fs::path folder = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
    if (::access(folder.c_str(), W_OK | X_OK) != 0) fail(folder.string() + ": " + std::strerror(errno));
  }

  void write(const std::string& text) const {
    const fs::path to = replaces_ ? fs::path(path_.string() + "." + std::to_string(::getpid())) : path_;
    std::string why = put(to, text);
    if (replaces_) {
      std::error_code error;
      if (why.empty()) {
        fs::rename(to, path_, error);
        if (error) why = error.message();
      }
      if (!why.empty()) fs::remove(to, error);
    }
    if (!why.empty()) fail(why);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw UsageError(fmt::format("--metrics {}: cannot be written: {}", one_line(named_, kShown), why));
  }
  /// Returns why it failed. Empty: it did not.
  static std::string put(const fs::path& path, const std::string& text) {
    errno = 0;
    std::ofstream out(path, std::ios::binary);
    out << text;
    out.close();
    if (out) return {};
    return errno == 0 ? "writing failed" : std::strerror(errno);
  }

  const std::string named_;
  fs::path path_;
  bool replaces_ = true;
};

Exit run(const Global& global, AuditOptions options) {
  options.records.from = time_of(options.from, "--from");
  options.records.to = time_of(options.to, "--to");
  if (options.records.from && options.records.to && *options.records.from >= *options.records.to)
    throw UsageError("--from must be before --to");
  const Config config = completed(load_settings(global), options);
  std::optional<MetricsFile> metrics;
  if (options.metrics) metrics.emplace(*options.metrics);
  auto told_at = steady_clock::now();
  const bool tells = ::isatty(STDERR_FILENO) == 1;
  audit::Report report;
  report.records = audit::audit_records(config, options.records, [&](std::int64_t records) {
    if (!tells || steady_clock::now() < told_at + kTellEvery) return;
    told_at = steady_clock::now();
    tell(fmt::format("turnstile: {} compared\n", count(records, "record")));
  });
  report.limits = look_at_limits(config, options);
  if (global.json) print(audit::to_json(report, options.list));
  else audit::print(report, options.list);
  if (metrics) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    try {
      metrics->write(audit::metrics(report, std::chrono::duration_cast<std::chrono::seconds>(now).count()));
    } catch (const UsageError& error) {
      if (report.holds()) throw;
      tell(fmt::format("turnstile: {}\n", error.what()));
    }
  }
  return report.holds() ? Exit::ok : Exit::problems;
}

}  // namespace

void add_audit(Verb app, Command& command) {
  const auto options = std::make_shared<AuditOptions>();
  const auto verb =
      app.add_verb("audit", "whether each record had one fate, each effect has a record, and no limit was exceeded");
  verb.add_option("--topic", options->records.topic, "the topic").type("TOPIC").required();
  verb.add_option("--group", options->records.group, "the consumer group (default: group.id of the configuration)")
      .type("GROUP");
  verb.add_option("--from", options->from, "only records from this time on: \"2026-03-01 14:05\" (UTC), \"2h ago\"")
      .type("TIME");
  verb.add_option("--to", options->to, "only records before this time").type("TIME");
  verb.add_option("--handler", options->handler, "the handler's name, if the program sets it in code").type("NAME");
  verb.add_option("--message-id", options->message_id, "where ids come from, if the program sets it in code")
      .type("SOURCE");
  verb.add_option("--list", options->list, "how many violations to show")
      .type("N")
      .whole_number(0, audit::kMostViolations)
      .shows_default();
  verb.add_flag("--no-limits", options->no_limits, "do not read the token log");
  verb.add_option("--metrics", options->metrics, "also write a file for the textfile collector of node_exporter")
      .type("FILE");
  verb.footer(
      "Exit code 0: all guarantees hold as far as it can be told; 1: one does not. What is older than the stored ids is\n"
      "counted under \"cannot tell\". It reads the whole topic, and the inbox twice, in one snapshot of the database.");
  verb.runs(command, [options](const Global& global) {
    try {
      return run(global, *options);
    } catch (const Error& error) {
      // Exit code 1 says that a guarantee does not hold. Without a comparison nobody can say that.
      if (error.code() == Code::not_found || error.code() == Code::sql_error) throw UsageError(error.what());
      throw;
    }
  });
}

}  // namespace turnstile::cli
