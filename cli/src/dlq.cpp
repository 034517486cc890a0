// turnstile dlq list|show; replay is in replay.cpp.

#include <fmt/format.h>

#include <memory>

#include "command.hpp"
#include "database.hpp"
#include "text.hpp"

namespace turnstile::cli {

namespace {

struct Options {
  std::optional<std::string> handler;
  std::optional<std::string> topic;
  std::int64_t number = 0;
  std::int64_t most = 50;
  bool all = false;
  bool full = false;
};

constexpr std::size_t kShownBytes = 4096;

Json to_json(const postgres::DeadSummary& dead) {
  return {{"number", dead.number},
          {"handler", dead.handler},
          {"group", dead.from.group},
          {"topic", dead.from.at.topic},
          {"partition", dead.from.at.partition},
          {"offset", dead.offset},
          {"id", dead.id ? Json(dead.id->text()) : Json(nullptr)},
          {"reason", dead.reason},
          {"error", dead.error},
          {"attempts", dead.attempts},
          {"died_at", iso(dead.died_at)},
          {"replayed_at", iso_or_null(dead.replayed_at)},
          {"replay_in_doubt", dead.replay_in_doubt},
          {"replay_token", dead.replay_token ? Json(*dead.replay_token) : Json(nullptr)}};
}

// --- list ---

void print_list(const std::vector<postgres::DeadSummary>& dead) {
  std::vector<std::vector<std::string>> rows{{"NUMBER", "DIED", "HANDLER", "FROM", "REASON", "RUNS", "ERROR"}};
  for (const auto& letter : dead) {
    rows.push_back({std::to_string(letter.number), when(letter.died_at), one_line(letter.handler, 40),
                    to_string(TopicPartitionOffset{letter.from.at, letter.offset}),
                    letter.reason + (letter.replayed_at       ? " (replayed)"
                                     : letter.replay_in_doubt ? " (may have been replayed)"
                                                              : ""),
                    std::to_string(letter.attempts), one_line(letter.error, 70)});
  }
  fmt::print("{}", table(rows));
}

Exit list(const Global& global, const Options& options) {
  auto admin = open_admin(load_settings(global));
  if (options.handler) require_handler(admin, *options.handler);
  if (options.topic) require_topic(admin, *options.topic);
  postgres::DeadFilter filter;
  filter.handler = options.handler;
  filter.topic = options.topic;
  filter.with_replayed = options.all;
  filter.most = options.most + 1;
  auto dead = admin.dead(filter);
  const bool more = static_cast<std::int64_t>(dead.size()) > options.most;
  if (more) dead.pop_back();
  if (global.json) {
    Json json{{"dead", Json::array()}, {"more", more}};
    for (const auto& letter : dead) json["dead"].push_back(to_json(letter));
    print(json);
  } else if (dead.empty()) {
    fmt::print("no dead letters{}\n", options.all ? "" : " that wait (--all shows those that were replayed)");
  } else {
    print_list(dead);
    if (more) fmt::print("there are more: --most {}\n", options.most * 10);
  }
  return Exit::ok;
}

// --- show ---

Json to_json(const postgres::DeadRecord& dead) {
  Json json = to_json(dead.summary);
  const bool has_time = dead.record.timestamp != Timestamp{};
  json["timestamp"] = has_time ? Json(iso(dead.record.timestamp)) : Json(nullptr);
  json["dead_letter"] = nullptr;
  if (dead.dead_letter) {
    json["dead_letter"] = {{"topic", dead.dead_letter->at.topic},
                           {"partition", dead.dead_letter->at.partition},
                           {"offset", dead.dead_letter->offset}};
  }
  json["key"] = content(dead.record.key);
  json["headers"] = Json::array();
  for (const auto& header : dead.record.headers) {
    json["headers"].push_back({{"name", content(header.name)}, {"value", content(header.value)}});
  }
  json["payload"] = content(dead.record.payload);
  json["damage"] = dead.damage ? Json(*dead.damage) : Json(nullptr);
  return json;
}

/// Text is shown unchanged. Bytes are shown as base64, so that a terminal does not execute control sequences.
std::string shown(const std::optional<std::string>& bytes, std::size_t most) {
  if (!bytes) return "null";
  if (is_text(*bytes)) {
    if (bytes->size() <= most) return *bytes;
    // Not in the middle of a character.
    std::size_t end = most;
    while (end > 0 && (static_cast<unsigned char>((*bytes)[end]) & 0xc0) == 0x80) --end;
    return fmt::format("{}\n… {} more; --full shows all", bytes->substr(0, end),
                       turnstile::cli::bytes(static_cast<std::int64_t>(bytes->size() - end)));
  }
  if (bytes->size() <= most) return "base64: " + base64(*bytes);
  return fmt::format("base64: {}\n… {} more; --full shows all", base64(bytes->substr(0, most)),
                     turnstile::cli::bytes(static_cast<std::int64_t>(bytes->size() - most)));
}

void print_record(const postgres::DeadRecord& dead, bool full) {
  const std::size_t most = full ? SIZE_MAX : kShownBytes;
  const auto& s = dead.summary;
  std::vector<std::vector<std::string>> rows;
  rows.push_back({"number", std::to_string(s.number)});
  rows.push_back({"handler", one_line(s.handler, 200)});
  rows.push_back({"from", place(s.from, s.offset)});
  rows.push_back({"id", s.id ? s.id->text() : "none"});
  rows.push_back({"died", when(s.died_at)});
  rows.push_back({"reason", s.reason});
  rows.push_back({"error", one_line(s.error, 2000)});
  rows.push_back({"runs", std::to_string(s.attempts)});
  rows.push_back({"replayed", s.replayed_at ? when(*s.replayed_at) : s.replay_in_doubt ? how_to_settle(s) : "no"});
  rows.push_back({"dead letter", dead.dead_letter ? to_string(*dead.dead_letter) : "kept in this table only"});
  if (dead.damage) rows.push_back({"damaged", *dead.damage});
  rows.push_back({"timestamp", dead.record.timestamp == Timestamp{} ? "none" : when(dead.record.timestamp)});
  rows.push_back({"key", dead.record.key && is_text(*dead.record.key) ? one_line(*dead.record.key, most)
                                                                      : shown(dead.record.key, most)});
  for (const auto& header : dead.record.headers) {
    const std::string value =
        header.value && is_text(*header.value) ? one_line(*header.value, most) : shown(header.value, most);
    rows.push_back({"header", one_line(header.name, 200) + ": " + value});
  }
  fmt::print("{}\n{}\n", table(rows), shown(dead.record.payload, most));
}

Exit show(const Global& global, const Options& options) {
  auto admin = open_admin(load_settings(global));
  const auto dead = admin.load_dead(options.number);
  if (!dead) {
    throw Error(Code::not_found,
                fmt::format("there is no dead letter {}; see: turnstile dlq list --all", options.number));
  }
  if (global.json) print(to_json(*dead));
  else print_record(*dead, options.full);
  return Exit::ok;
}

}  // namespace

void add_dlq(CLI::App& app, Command& command) {
  auto* dlq = app.add_subcommand("dlq", "messages that were not run, or failed permanently");
  dlq->require_subcommand(1);
  dlq->footer(
      "Stored in PostgreSQL for topics in any mode but at_least_once; in that mode only the dead letter topic has them.");
  const auto options = std::make_shared<Options>();

  auto* list_verb = dlq->add_subcommand("list", "the dead letters that wait, oldest first");
  list_verb->add_option("--handler", options->handler, "of this handler only")->type_name("NAME");
  list_verb->add_option("--topic", options->topic, "of this topic only")->type_name("NAME");
  list_verb->add_option("--most", options->most, "how many")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}))
      ->capture_default_str();
  list_verb->add_flag("--all", options->all, "also those that were replayed");
  list_verb->callback(
      [&command, options] { command.run = [&command, options] { return list(command.global, *options); }; });

  auto* show_verb = dlq->add_subcommand("show", "one dead letter, with its error, headers and payload");
  show_verb->add_option("NUMBER", options->number, "as dlq list has it")->required();
  show_verb->add_flag("--full", options->full, "the whole payload, however long");
  show_verb->callback(
      [&command, options] { command.run = [&command, options] { return show(command.global, *options); }; });

  add_replay(*dlq, command);
}

}  // namespace turnstile::cli
