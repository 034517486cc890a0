// turnstile dlq purge: deletes old dead letters in small transactions, beside running consumers.

#include <fmt/format.h>

#include <csignal>
#include <memory>

#include "command.hpp"
#include "dead_options.hpp"

namespace turnstile::cli {

namespace {

struct DlqPurgeOptions {
  DeadOptions which;
  std::string older_than;
  bool replayed = false;
  bool yes = false;
};

volatile std::sig_atomic_t interrupted = 0;
void interrupt(int) { interrupted = 1; }

/// What would be deleted.
Exit preview(const Global& global, postgres::Admin& admin, const postgres::DeadPurge& purge) {
  auto which = purge.which;
  which.most = 10'000;
  auto found = admin.dead_groups(which, false);
  std::int64_t deleted = 0, waiting = 0, in_doubt = 0;
  for (auto& group : found.groups) {
    const auto waits = group.count - group.replayed - group.in_doubt;
    if (!purge.only_replayed) waiting += waits;
    in_doubt += group.in_doubt;
    group.count = purge.only_replayed ? group.replayed : group.count - group.in_doubt;
    deleted += group.count;
  }
  std::erase_if(found.groups, [](const postgres::DeadGroup& group) { return group.count == 0; });
  if (global.json) {
    print(
        Json{{"would_delete", deleted}, {"waiting", waiting}, {"kept_in_doubt", in_doubt}, {"groups", to_json(found)}});
  } else {
    fmt::print("{}would delete {}", groups_table(found), count(deleted, "dead letter"));
    if (waiting > 0) fmt::print(", of which {} were never replayed: their messages would never run", number(waiting));
    fmt::print("\n");
    if (in_doubt > 0) fmt::print("would keep {} whose replay is in doubt\n", count(in_doubt, "dead letter"));
  }
  if (deleted == 0) return Exit::ok;
  throw UsageError("dlq purge: nothing was deleted; to delete them, run it again with --yes");
}

Exit purge(const Global& global, const DlqPurgeOptions& options) {
  const auto age = parse_duration(options.older_than);
  if (!age) {
    throw UsageError(
        fmt::format("--older-than {}: not a time above 0; write a number and a unit, as in 30d, 36h, 90m or 2w",
                    one_line(options.older_than, 40)));
  }
  auto admin = open_admin(load_settings(global));
  postgres::DeadPurge purge;
  purge.which = dead_filter(admin, options.which);
  purge.which.with_replayed = true;
  purge.only_replayed = options.replayed;
  // By the server's clock, which has written the time of each death.
  const auto cut = admin.retention().now - *age;
  purge.which.until = purge.which.until ? std::min(*purge.which.until, cut) : cut;
  if (!options.yes) return preview(global, admin, purge);
  // It stops between two batches.
  std::signal(SIGINT, interrupt);
  std::signal(SIGTERM, interrupt);
  purge.on_batch = [](std::int64_t) { return interrupted == 0; };
  const auto result = admin.purge_dead(purge);
  if (global.json) print(Json{{"deleted", result.deleted}, {"complete", result.complete}});
  else
    fmt::print("{} deleted{}\n", count(result.deleted, "dead letter"),
               result.complete ? "" : ", then interrupted; run it again for the rest");
  return result.complete ? Exit::ok : Exit::problems;
}

}  // namespace

void add_dlq_purge(Verb dlq, Command& command) {
  const auto options = std::make_shared<DlqPurgeOptions>();
  const auto verb = dlq.add_verb("purge", "delete old dead letters; without --yes it only shows which");
  verb.add_option("--older-than", options->older_than, "that died longer ago than this: 30d, 36h, 2w")
      .type("AGE")
      .required();
  add_dead_options(verb, options->which);
  verb.add_flag("--replayed", options->replayed, "only those that were replayed");
  verb.add_flag("--yes", options->yes, "delete them: a message that was not replayed then never runs");
  verb.runs(command, [options](const Global& global) { return purge(global, *options); });
}

}  // namespace turnstile::cli
