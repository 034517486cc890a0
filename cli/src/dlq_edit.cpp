// turnstile dlq edit: changes the record of one dead letter, so that its replay can succeed. Its id must stay: another id
// would be another message, which could take effect beside the first one.

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "command.hpp"
#include "dead_edit.hpp"
#include "dead_options.hpp"
#include "operator_name.hpp"

namespace turnstile::cli {

namespace {

struct DlqEditOptions {
  std::int64_t number = 0;
  std::optional<std::string> value;
  std::optional<std::string> file;
  std::vector<std::string> headers;
  std::vector<std::string> removed;
};

std::string contents(const std::string& name) {
  std::ifstream in(name, std::ios::binary);
  std::ostringstream text;
  if (in.is_open() && in.peek() != std::ifstream::traits_type::eof()) text << in.rdbuf();
  // A folder can be opened, and not be read.
  if (!in.is_open() || in.bad() || text.fail())
    throw UsageError(fmt::format("--file {}: cannot be read: {}", one_line(name, 200), std::strerror(errno)));
  return text.str();
}

DeadChanges changes_of(const DlqEditOptions& options) {
  DeadChanges changes{.payload = options.value, .removed = options.removed};
  if (options.file) changes.payload = contents(*options.file);
  for (const auto& header : options.headers) changes.headers.push_back(parse_header(header));
  return changes;
}

Exit edit(const Global& global, const DlqEditOptions& options) {
  if (!options.value && !options.file && options.headers.empty() && options.removed.empty())
    throw UsageError("dlq edit: give what to change: --value, --file, --header or --remove-header");
  auto admin = open_admin(load_settings(global));
  const auto dead = admin.load_dead(options.number);
  if (!dead)
    throw Error(Code::not_found, fmt::format("there is no dead letter {}; see: turnstile dlq list", options.number));
  require_editable(*dead);
  edit_dead(admin, *dead, changed(*dead, changes_of(options)), operator_name());
  if (global.json) print(Json{{"edited", options.number}, {"edits", dead->summary.edits + 1}});
  else
    fmt::print("{} edited; its replay publishes the new record: turnstile dlq replay {}\n", options.number,
               options.number);
  return Exit::ok;
}

}  // namespace

void add_dlq_edit(Verb dlq, Command& command) {
  const auto options = std::make_shared<DlqEditOptions>();
  const auto verb = dlq.add_verb("edit", "change the record of a dead letter before its replay; its id stays");
  verb.add_option("NUMBER", options->number, "as dlq list has it").required().whole_number(1);
  const auto value = verb.add_option("--value", options->value, "the new payload").type("TEXT");
  verb.add_option("--file", options->file, "the new payload is in this file").type("FILE").excludes(value);
  verb.add_option("--header", options->headers, "sets a header; may be repeated").type("NAME=VALUE");
  verb.add_option("--remove-header", options->removed, "removes a header; may be repeated").type("NAME");
  verb.runs(command, [options](const Global& global) { return edit(global, *options); });
}

}  // namespace turnstile::cli
