// turnstile log tail|replay: the records of the token log, and the holders of permits at any point of it.

#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "command.hpp"
#include "domain.hpp"
#include "log_replay.hpp"
#include "output.hpp"
#include "turnstile/error.hpp"

namespace turnstile::cli {

namespace {

constexpr std::chrono::milliseconds kLogLook{500};
constexpr std::size_t kLogShown = 60, kShownDetails = 400;

struct LogOptions {
  DomainOptions domain;
  std::int64_t lines = 20;
  bool follow = false;
  bool all = false;
  std::string at;
};

// --- tail ---

std::string iso_ms(std::int64_t time_ms) {
  const auto time = moment(time_ms);
  if (!time) return "-";
  const std::string text = iso(*time);
  return text.substr(0, text.size() - 4) + "Z";  // Kafka has only milliseconds
}

std::string consequences(const TokenRecord& record) {
  std::string text;
  for (const auto& change : record.changes) {
    const bool own = record.written_by && record.written_by->id == change.member.id;
    text += fmt::format(" | {} {} -> {}{}", one_line(change.limiter, kLogShown), change.before, change.after,
                        own ? "" : " for " + holder(change.member));
  }
  for (const auto& member : record.drained) text += " | drains: " + holder(member);
  for (const auto& member : record.reclaimed) text += " | reclaimed from " + holder(member);
  return text;
}

void print_line(const TokenRecord& record) {
  const std::string who = record.written_by                  ? holder(*record.written_by)
                          : record.kind.starts_with("limit") ? "an operator"
                                                             : "-";
  fmt::print("{:>8}  {:<24}  {:<11}  {:<32}  {}{}{}{}\n", record.position, iso_ms(record.time_ms),
             record.outcome.empty() ? "?" : record.outcome, who, record.kind, record.details.empty() ? "" : ": ",
             one_line(record.details, kShownDetails), consequences(record));
}

Json members_as_json(const std::vector<TokenMember>& members) {
  Json json = Json::array();
  for (const auto& member : members) json.push_back(cli::to_json(member));
  return json;
}

void print_json_line(const TokenRecord& record) {
  Json json{{"position", record.position},
            {"time", iso_or_null(moment(record.time_ms))},
            {"written_by", record.written_by ? cli::to_json(*record.written_by) : Json(nullptr)},
            {"kind", record.kind},
            {"details", record.details},
            {"outcome", record.outcome.empty() ? Json(nullptr) : Json(record.outcome)},
            {"changes", Json::array()},
            {"drained", members_as_json(record.drained)},
            {"reclaimed", members_as_json(record.reclaimed)},
            {"ended", record.ended ? cli::to_json(*record.ended) : Json(nullptr)}};
  for (const auto& change : record.changes) {
    json["changes"].push_back({{"limiter", change.limiter},
                               {"member", cli::to_json(change.member)},
                               {"before", change.before},
                               {"after", change.after}});
  }
  fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Exit tail(const Global& global, const LogOptions& options) {
  const auto show = global.json ? print_json_line : print_line;
  const auto reader = open_domain(global, options.domain);
  const std::int64_t first = reader->end() - std::min(options.lines, reader->end());
  reader->start(first);
  if (!global.json && first < reader->begin())
    tell(fmt::format("turnstile: records before position {} are no longer kept\n", reader->begin()));
  const auto known_from = reader->known_from();
  if (!known_from || *known_from > reader->position()) {
    tell(
        fmt::format("turnstile: the meaning of records is known {}; earlier records show \"?\"\n",
                    known_from ? fmt::format("from position {} on", *known_from + 1) : "nowhere: no snapshot is left"));
  }
  while (reader->position() + 1 < reader->end()) show(reader->next());
  std::fflush(stdout);
  warn_of_directory(*reader, options.domain);
  while (options.follow) {
    while (reader->peek(kLogLook)) show(reader->next());
    std::fflush(stdout);
  }
  return Exit::ok;
}

// --- replay ---

Exit print_replay(const Global& global, const LogOptions& options, const TokenReader& reader) {
  const PermitsView view = reader.permits_of_part();
  const std::int64_t at_ms = reader.time_of(view.position);
  warn_of_directory(reader, options.domain);
  if (global.json) {
    print(replay_as_json(reader));
    return Exit::ok;
  }
  if (view.position < 0) fmt::print("before anything was written\n\n");
  else {
    fmt::print("after position {} ({}){}\n\n", view.position, when_or_unknown(at_ms),
               view.position + 1 == reader.end() ? ", the last record that there is" : "");
  }
  print_permits(reader, view, at_ms, options.all);
  return Exit::ok;
}

Exit replay(const Global& global, const LogOptions& options) {
  const auto now = std::chrono::floor<std::chrono::microseconds>(std::chrono::system_clock::now());
  const auto point = parse_point(options.at, now);
  return look_at_domain(global, options.domain, [&](TokenReader& reader) {
    replay_to(reader, point);
    return print_replay(global, options, reader);
  });
}

}  // namespace

void add_log(Verb app, Command& command) {
  const auto log = app.add_verb("log", "the token log: what members wrote, and which process held what at any time");
  log.needs_verb();
  const auto options = std::make_shared<LogOptions>();
  add_domain_options(log, options->domain);

  const auto tail_verb = log.add_verb("tail", "its last records, one line each, with their meaning");
  add_domain_options(tail_verb, options->domain);
  add_part_options(tail_verb, options->domain);
  tail_verb.add_option("-n", options->lines, "how many").type("N").whole_number(0, 1'000'000'000).shows_default();
  tail_verb.add_flag("-f,--follow", options->follow, "then new records as they arrive, until interrupted");
  tail_verb.footer(
      "Each line: position, time, meaning, writer, content | permits that changed hands.\n"
      "applied; duplicate, old epoch, stranger, revived, stale, not allowed: it changed nothing, and why; unknown: no event.\n"
      "With --json one object on each line.");
  tail_verb.runs(command, [options](const Global& global) { return tail(global, *options); });

  const auto replay_verb = log.add_verb("replay", "which process held what at a position or a time");
  add_domain_options(replay_verb, options->domain);
  add_part_options(replay_verb, options->domain);
  replay_verb.add_option("--at", options->at, "1041, \"2026-03-01 14:05:09\" (UTC), 14:05, \"10m ago\"")
      .type("POSITION|TIME")
      .required();
  replay_verb.add_flag("--all", options->all, "also members that held and wanted nothing");
  replay_verb.footer(
      "Times are by the clock of the process that wrote the record. The log reaches back to about the last snapshot but one.");
  replay_verb.runs(command, [options](const Global& global) { return replay(global, *options); });
}

}  // namespace turnstile::cli
