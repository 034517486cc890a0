// turnstile inbox purge: runs by hand or by cron the purge that consumers run by themselves (purge = true). It refuses
// to delete ids that a topic of the configuration still needs.

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <memory>

#include "command.hpp"
#include "database.hpp"
#include "text.hpp"

namespace turnstile::cli {

namespace {

struct PurgeOptions {
  std::string older_than;
  std::optional<std::string> handler;
  std::int64_t batch = 10'000;
  bool force = false;
};

volatile std::sig_atomic_t interrupted = 0;
void interrupt(int) { interrupted = 1; }

std::chrono::seconds parse_age(const std::string& text) {
  const auto age = parse_duration(text);
  if (age && *age >= std::chrono::seconds(1)) return std::chrono::floor<std::chrono::seconds>(*age);
  throw UsageError(
      fmt::format("--older-than {}: not a time of 1s or more; write a number and a unit, as in 7d, 36h, 90m, 30s or 2w",
                  one_line(text, 40)));
}

constexpr const char* kOutcome =
    "a message that is delivered again after that would take effect a second time. Give a longer --older-than, or add --force";

/// How long ids are needed.
struct Need {
  std::optional<std::chrono::seconds> time;  ///< absent: forever
  std::string refusal;                       ///< why younger ids are not deleted
};

/// Topics that set a duration, with the line of the file. A consumer without keep_ids_for declares the topic's duration
/// in the database.
void add_configured(std::vector<Need>& needs, const Config& config, const PurgeOptions& options,
                    std::chrono::seconds age) {
  for (const auto& [topic, settings] : config.topics) {
    const auto& kept = settings.keep_ids_for;
    if (!kept || (options.handler && settings.handler.value_or(topic) != *options.handler)) continue;
    needs.push_back(
        {kept, fmt::format("{} = {}, which is more than {}", config.where("topics." + topic + ".keep_ids_for"),
                           duration(*kept), duration(age))});
  }
}

/// The durations that programs have declared in the database, for any configuration here. Programs without topics
/// (HTTP, Inbox::once()) declare them only there.
void add_declared(std::vector<Need>& needs, postgres::Admin& admin, const PurgeOptions& options,
                  std::chrono::seconds age) {
  for (const auto& [handler, kept] : admin.kept(options.handler)) {
    needs.push_back(
        {kept, fmt::format("consumers of handler {} have declared that they need its ids {}, which is more than {}",
                           one_line(handler, 60), kept ? "for " + duration(*kept) : "forever", duration(age))});
  }
}

/// Ids without any declaration are kept for the default duration.
void add_default(std::vector<Need>& needs, postgres::Admin& admin, const PurgeOptions& options,
                 std::chrono::seconds age) {
  const auto undeclared = admin.undeclared(options.handler);
  if (undeclared.empty() && !needs.empty()) return;
  needs.push_back(
      {kKeepIdsByDefault,
       fmt::format("{} is less than the {} for which ids are kept if no program has declared otherwise{}",
                   duration(age), duration(kKeepIdsByDefault),
                   undeclared.empty() ? std::string()
                                      : fmt::format(", and none has for handler {} (a topic's keep_ids_for, or "
                                                    "Inbox::keep_ids() at the start of the program)",
                                                    one_line(undeclared.front(), 60)))});
}

/// Names the longest duration: ids that are older are not needed for any other reason.
void refuse_what_is_needed(postgres::Admin& admin, const Config& config, const PurgeOptions& options,
                           std::chrono::seconds age) {
  std::vector<Need> needs;
  add_configured(needs, config, options, age);
  add_declared(needs, admin, options, age);
  if (age < kKeepIdsByDefault) add_default(needs, admin, options, age);
  const auto time = [](const Need& need) { return need.time.value_or(std::chrono::seconds::max()); };
  const auto longest =
      std::max_element(needs.begin(), needs.end(), [&](const Need& a, const Need& b) { return time(a) < time(b); });
  if (longest == needs.end() || age >= time(*longest)) return;
  throw Refusal(fmt::format("refused: {}; {}", longest->refusal, kOutcome));
}

void report(const Global& global, const postgres::PurgeResult& result) {
  if (global.json) {
    print(Json{{"deleted", result.deleted}, {"complete", result.end == postgres::PurgeEnd::complete}});
    return;
  }
  fmt::print("{} deleted", count(result.deleted, "id"));
  switch (result.end) {
    case postgres::PurgeEnd::complete: fmt::print("\n"); break;
    case postgres::PurgeEnd::stopped: fmt::print(", then interrupted; run it again for the rest\n"); break;
    case postgres::PurgeEnd::rivalled: fmt::print("; another purge runs now, and deletes the rest\n"); break;
  }
}

Exit purge(const Global& global, const PurgeOptions& options) {
  const auto age = parse_age(options.older_than);
  const Config config = load_settings(global);
  auto admin = open_admin(config);
  if (options.handler) require_handler(admin, *options.handler);
  if (!options.force) {
    refuse_what_is_needed(admin, config, options, age);
    if (const auto clock = admin.clock(); !clock.held.empty())
      throw Refusal("refused: " + clock.held + ". Or add --force");
  }

  // It stops between two batches, so that no batch is half done.
  std::signal(SIGINT, interrupt);
  std::signal(SIGTERM, interrupt);
  postgres::PurgeOptions purge_options;
  purge_options.older_than = age;
  purge_options.handler = options.handler;
  purge_options.batch = options.batch;
  purge_options.on_batch = [](std::int64_t) { return interrupted == 0; };
  const auto result = admin.purge(purge_options);
  report(global, result);
  return result.end == postgres::PurgeEnd::complete ? Exit::ok : Exit::problems;
}

}  // namespace

void add_purge(Verb inbox, Command& command) {
  const auto options = std::make_shared<PurgeOptions>();
  const auto verb = inbox.add_verb("purge", "delete old ids, in small transactions, beside running consumers");
  verb.add_option("--older-than", options->older_than, "an age: 7d, 36h, 90m").type("AGE").required();
  verb.add_option("--handler", options->handler, "of this handler only").type("NAME");
  verb.add_option("--batch", options->batch, "the largest number of ids in one transaction")
      .type("N")
      .whole_number(1, 1'000'000)
      .shows_default();
  verb.add_flag("--force", options->force,
                "also ids that a topic's keep_ids_for still keeps, and by a clock that was set forward");
  verb.runs(command, [options](const Global& global) { return purge(global, *options); });
}

}  // namespace turnstile::cli
