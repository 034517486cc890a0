// turnstile dlq list|show. The other verbs have files of their own: dlq_groups.cpp, dlq_edit.cpp, dlq_purge.cpp and
// replay.cpp.

#include <fmt/format.h>

#include <memory>

#include "command.hpp"
#include "dead_json.hpp"
#include "dead_options.hpp"
#include "text.hpp"

namespace turnstile::cli {

namespace {

struct DlqOptions {
  DeadOptions which;
  std::optional<std::string> after;
  std::int64_t number = 0;
  std::int64_t most = 50;
  bool all = false;
  bool full = false;
  bool original = false;
};

constexpr std::size_t kShownBytes = 4096;

// --- list ---

void print_list(const std::vector<postgres::DeadSummary>& dead) {
  std::vector<std::vector<std::string>> rows{{"NUMBER", "DIED", "HANDLER", "FROM", "REASON", "RUNS", "ERROR"}};
  for (const auto& letter : dead) {
    rows.push_back({std::to_string(letter.number), when(letter.died_at), one_line(letter.handler, 40),
                    one_line(to_string(TopicPartitionOffset{letter.from.at, letter.offset}), 300),
                    one_line(letter.reason, 40) +
                        (letter.replayed_at       ? " (replayed)"
                         : letter.replay_in_doubt ? " (may have been replayed)"
                                                  : "") +
                        (letter.edits > 0 ? " (edited)" : ""),
                    std::to_string(letter.attempts), one_line(letter.error, 70)});
  }
  fmt::print("{}", table(rows));
}

Exit list(const Global& global, const DlqOptions& options) {
  auto admin = open_admin(load_settings(global));
  auto filter = dead_filter(admin, options.which);
  filter.with_replayed = options.all;
  filter.after = options.after;
  filter.most = options.most;
  const auto page = [&] {
    try {
      return admin.dead(filter);
    } catch (const Error& error) {
      if (options.after && error.code() == Code::usage) throw UsageError(fmt::format("--after: {}", error.what()));
      throw;
    }
  }();
  if (global.json) {
    Json json{{"dead", Json::array()}, {"more", page.next.has_value()}, {"next", nullptr}};
    for (const auto& letter : page.letters) json["dead"].push_back(to_json(letter));
    if (page.next) json["next"] = *page.next;
    print(json);
  } else if (page.letters.empty()) {
    fmt::print("no dead letters{}\n", options.all ? "" : " that wait (--all shows those that were replayed)");
  } else {
    print_list(page.letters);
    if (page.next) fmt::print("there are more: --after {}\n", *page.next);
  }
  return Exit::ok;
}

// --- show ---

/// Its own lines. Other control characters become spaces, as those that overwrite a line.
std::string lines_of(std::string_view text) {
  std::string lines;
  for (;;) {
    const auto end = text.find('\n');
    lines += one_line(text.substr(0, end), SIZE_MAX);
    if (end == std::string_view::npos) return lines;
    lines += '\n';
    text.remove_prefix(end + 1);
  }
}

/// Text as lines_of(). Bytes are shown as base64, so that a terminal does not execute control sequences.
std::string shown(const std::optional<std::string>& bytes, std::size_t most) {
  if (!bytes) return "null";
  if (is_text(*bytes)) {
    if (bytes->size() <= most) return lines_of(*bytes);
    // Not in the middle of a character.
    std::size_t end = most;
    while (end > 0 && (static_cast<unsigned char>((*bytes)[end]) & 0xc0) == 0x80) --end;
    return fmt::format("{}\n… {} more; --full shows all", lines_of(bytes->substr(0, end)),
                       turnstile::cli::bytes(static_cast<std::int64_t>(bytes->size() - end)));
  }
  if (bytes->size() <= most) return "base64: " + base64(*bytes);
  return fmt::format("base64: {}\n… {} more; --full shows all", base64(bytes->substr(0, most)),
                     turnstile::cli::bytes(static_cast<std::int64_t>(bytes->size() - most)));
}

void print_record(const postgres::DeadRecord& dead, bool full, bool original) {
  const std::size_t most = full ? SIZE_MAX : kShownBytes;
  const auto& s = dead.summary;
  std::vector<std::vector<std::string>> rows;
  rows.push_back({"number", std::to_string(s.number)});
  rows.push_back({"handler", one_line(s.handler, 200)});
  rows.push_back({"from", place(s.from, s.offset)});
  rows.push_back({"id", s.id ? s.id->text() : "none"});
  rows.push_back({"died", when(s.died_at)});
  rows.push_back({"reason", one_line(s.reason, 40)});
  rows.push_back({"error", one_line(s.error, 2000)});
  rows.push_back({"runs", std::to_string(s.attempts)});
  rows.push_back({"replayed", s.replayed_at ? when(*s.replayed_at) : s.replay_in_doubt ? how_to_settle(s) : "no"});
  for (const auto& edit : dead.edits)
    rows.push_back({"edited", when(edit.edited_at) + " by " + one_line(edit.edited_by, 200)});
  if (original) rows.push_back({"shown", "the record as it died"});
  else if (!dead.edits.empty()) rows.push_back({"shown", "the record as it was edited last; as it died: --original"});
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

Exit show(const Global& global, const DlqOptions& options) {
  auto admin = open_admin(load_settings(global));
  const auto dead = options.original ? admin.load_dead_as_died(options.number) : admin.load_dead(options.number);
  if (!dead) {
    throw Error(Code::not_found,
                fmt::format("there is no dead letter {}; see: turnstile dlq list --all", options.number));
  }
  if (global.json) print(to_json(*dead));
  else print_record(*dead, options.full, options.original);
  return Exit::ok;
}

}  // namespace

void add_dlq(Verb app, Command& command) {
  const auto dlq = app.add_verb("dlq", "messages that were not run, or failed permanently");
  dlq.needs_verb();
  dlq.footer(
      "Stored in PostgreSQL for topics in any mode but at_least_once; in that mode only the dead letter topic has them.");
  const auto options = std::make_shared<DlqOptions>();

  const auto list_verb = dlq.add_verb("list", "the dead letters that wait, oldest first");
  add_dead_options(list_verb, options->which);
  list_verb.add_option("--limit,--most", options->most, "how many")
      .type("N")
      .whole_number(1, 1'000'000)
      .shows_default();
  list_verb.add_option("--after", options->after, "the next page, as the page before names it").type("PLACE");
  list_verb.add_flag("--all", options->all, "also those that were replayed");
  list_verb.runs(command, [options](const Global& global) { return list(global, *options); });

  const auto show_verb = dlq.add_verb("show", "one dead letter, with its error, headers and payload");
  show_verb.add_option("NUMBER", options->number, "as dlq list has it").required().whole_number(1);
  show_verb.add_flag("--full", options->full, "the whole payload, however long");
  show_verb.add_flag("--original", options->original, "the record as it died, before any edit");
  show_verb.runs(command, [options](const Global& global) { return show(global, *options); });

  add_dlq_groups(dlq, command);
  add_replay(dlq, command);
  add_dlq_edit(dlq, command);
  add_dlq_purge(dlq, command);
}

}  // namespace turnstile::cli
