// turnstile dlq groups: counts dead letters, so that an operator sees a few causes and not a million messages.

#include <fmt/format.h>

#include <memory>

#include "command.hpp"
#include "dead_options.hpp"

namespace turnstile::cli {

namespace {

struct DlqGroupsOptions {
  DeadOptions which;
  std::int64_t most = 50;
  bool all = false;
};

Exit groups(const Global& global, const DlqGroupsOptions& options) {
  auto admin = open_admin(load_settings(global));
  auto filter = dead_filter(admin, options.which);
  filter.with_replayed = options.all;
  filter.most = options.most;
  const auto found = admin.dead_groups(filter);
  if (global.json) {
    print(Json{{"groups", to_json(found)}, {"of_groups", found.of_groups}, {"dead_letters", found.letters}});
    return Exit::ok;
  }
  if (found.letters == 0) {
    fmt::print("no dead letters{}\n", options.all ? "" : " that wait (--all counts those that were replayed)");
    return Exit::ok;
  }
  fmt::print("{}{} in {}", groups_table(found), count(found.letters, "dead letter"), count(found.of_groups, "group"));
  const auto shown = static_cast<std::int64_t>(found.groups.size());
  fmt::print("{}\n", shown < found.of_groups ? fmt::format("; there are more: --limit {}", options.most * 10) : "");
  return Exit::ok;
}

}  // namespace

void add_dlq_groups(Verb dlq, Command& command) {
  const auto options = std::make_shared<DlqGroupsOptions>();
  const auto verb = dlq.add_verb("groups", "count the dead letters that wait by topic, handler, reason and error");
  add_dead_options(verb, options->which);
  verb.add_option("--limit", options->most, "how many groups, the largest first")
      .type("N")
      .whole_number(1, 10'000)
      .shows_default();
  verb.add_flag("--all", options->all, "also those that were replayed");
  verb.runs(command, [options](const Global& global) { return groups(global, *options); });
}

}  // namespace turnstile::cli
