// turnstile dlq edit: changes the record of one dead letter, so that its replay can succeed. Its id must stay: another id
// would be another message, which could take effect beside the first one.

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

#include "command.hpp"
#include "dead_options.hpp"
#include "turnstile/replay.hpp"

namespace turnstile::cli {

namespace {

struct Options {
  std::int64_t number = 0;
  std::optional<std::string> value;
  std::optional<std::string> file;
  std::vector<std::string> headers;
  std::vector<std::string> removed;
};

/// "ada@host1", for the record of the edit.
std::string who() {
  const passwd* user = getpwuid(geteuid());
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return fmt::format("{}@{}", user == nullptr ? std::to_string(geteuid()) : user->pw_name, host.data());
}

std::string contents(const std::string& name) {
  std::ifstream in(name, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.good() && !in.eof())
    throw UsageError(fmt::format("--file {}: cannot be read: {}", one_line(name, 200), std::strerror(errno)));
  return text;
}

/// Replaces the headers of this name by one, in the place of the first; a new one comes last.
void set_header(std::vector<Header>& headers, const Header& header) {
  const auto same = [&](const Header& other) { return other.name == header.name; };
  const auto first = std::find_if(headers.begin(), headers.end(), same);
  if (first == headers.end()) {
    headers.push_back(header);
    return;
  }
  *first = header;
  headers.erase(std::remove_if(first + 1, headers.end(), same), headers.end());
}

OwnedMessage changed(const postgres::DeadRecord& dead, const Options& options) {
  OwnedMessage record = dead.record;
  if (options.value) record.payload = options.value;
  if (options.file) record.payload = contents(*options.file);
  for (const auto& header : options.headers) set_header(record.headers, parse_header(header));
  for (const auto& name : options.removed) {
    if (std::erase_if(record.headers, [&](const Header& header) { return header.name == name; }) == 0)
      throw UsageError(
          fmt::format("--remove-header {}: dead letter {} has no such header", one_line(name, 80), options.number));
  }
  return record;
}

void require_editable(const postgres::DeadRecord& dead) {
  const auto& letter = dead.summary;
  if (letter.replayed_at) {
    throw Refusal(fmt::format("dead letter {} was replayed {}: its message is in the topic as it was", letter.number,
                              when(*letter.replayed_at)));
  }
  if (letter.replay_in_doubt) throw Refusal(fmt::format("dead letter {}: {}", letter.number, how_to_settle(letter)));
  if (dead.damage) throw Refusal(fmt::format("dead letter {}: {}", letter.number, *dead.damage));
}

Exit edit(const Global& global, const Options& options) {
  if (!options.value && !options.file && options.headers.empty() && options.removed.empty())
    throw UsageError("dlq edit: give what to change: --value, --file, --header or --remove-header");
  auto admin = open_admin(load_settings(global));
  const auto dead = admin.load_dead(options.number);
  if (!dead)
    throw Error(Code::not_found, fmt::format("there is no dead letter {}; see: turnstile dlq list", options.number));
  require_editable(*dead);
  const OwnedMessage record = changed(*dead, options);
  if (record.payload == dead->record.payload && record.headers == dead->record.headers)
    throw UsageError(
        fmt::format("dlq edit: dead letter {} has this content already; nothing was changed", options.number));
  if (const auto& id = dead->summary.id) {
    if (const auto source = changed_id_source(dead->record, record, *id)) {
      throw Refusal(fmt::format(
          "dead letter {}: its id may come from {}, which this edit changes. With another id it would be another message, "
          "and could take effect twice; keep that part as it is",
          options.number, one_line(*source, 200)));
    }
  }
  if (!admin.edit_dead(*dead, record, who())) {
    throw Refusal(
        fmt::format("dead letter {}: another operator has replayed or edited it meanwhile; see: turnstile dlq show {}",
                    options.number, options.number));
  }
  if (global.json) print(Json{{"edited", options.number}, {"edits", dead->summary.edits + 1}});
  else
    fmt::print("{} edited; its replay publishes the new record: turnstile dlq replay {}\n", options.number,
               options.number);
  return Exit::ok;
}

}  // namespace

void add_dlq_edit(CLI::App& dlq, Command& command) {
  const auto options = std::make_shared<Options>();
  auto* verb = dlq.add_subcommand("edit", "change the record of a dead letter before its replay; its id stays");
  verb->add_option("NUMBER", options->number, "as dlq list has it")->required()->check(CLI::PositiveNumber);
  auto* value = verb->add_option("--value", options->value, "the new payload")->type_name("TEXT");
  verb->add_option("--file", options->file, "the new payload is in this file")->type_name("FILE")->excludes(value);
  verb->add_option("--header", options->headers, "sets a header; may be repeated")->type_name("NAME=VALUE");
  verb->add_option("--remove-header", options->removed, "removes a header; may be repeated")->type_name("NAME");
  verb->callback([&command, options] { command.run = [&command, options] { return edit(command.global, *options); }; });
}

}  // namespace turnstile::cli
