// turnstile retries list|now|drop: messages that wait in PostgreSQL for their next attempt.

#include "turnstile/postgres/retries.hpp"

#include <fmt/format.h>

#include <memory>

#include "command.hpp"
#include "database.hpp"
#include "text.hpp"

namespace turnstile::cli {

namespace {

struct RetriesOptions {
  postgres::RetryFilter filter;
  std::int64_t most = 50;
  bool all = false;
  bool also_sent = false;
};

std::string due_text(const postgres::StoredRetry& retry) {
  if (!retry.due_at) return "behind its key";
  if (retry.refused) return fmt::format("refused by the broker: outbox record {}", *retry.refused);
  return when(*retry.due_at) + (retry.sent ? ", sent" : "");
}

Exit list(const Global& global, const RetriesOptions& options) {
  auto admin = open_admin(load_settings(global));
  const auto counts = admin.count_retries(options.filter);
  auto found = admin.retries(options.filter, options.most + 1);
  const bool more = cut(found, options.most);
  if (global.json) {
    Json json{{"waiting", counts.waiting}, {"due", counts.due},        {"behind", counts.behind},
              {"sent", counts.sent},       {"retries", Json::array()}, {"more", more}};
    for (const auto& retry : found) {
      json["retries"].push_back({{"number", retry.number},
                                 {"handler", retry.handler},
                                 {"topic", retry.topic},
                                 {"partition", retry.partition},
                                 {"offset", retry.offset},
                                 {"id", retry.id.text()},
                                 {"key", content(retry.key)},
                                 {"bytes", retry.bytes},
                                 {"attempts", retry.attempts},
                                 {"error", retry.error},
                                 {"stored_at", iso(retry.stored_at)},
                                 {"due_at", iso_or_null(retry.due_at)},
                                 {"sent", retry.sent},
                                 {"refused", retry.refused ? Json(*retry.refused) : Json(nullptr)}});
    }
    print(json);
    return Exit::ok;
  }
  if (found.empty()) {
    fmt::print("no message waits for a retry\n");
    return Exit::ok;
  }
  std::vector<std::vector<std::string>> rows{{"NUMBER", "DUE", "ATTEMPTS", "RECORD", "HANDLER", "ID", "ERROR"}};
  for (const auto& retry : found) {
    rows.push_back({std::to_string(retry.number), due_text(retry), number(retry.attempts),
                    one_line(fmt::format("{}[{}]@{}", retry.topic, retry.partition, retry.offset), 60),
                    one_line(retry.handler, 40), retry.id.text(), one_line(retry.error, 100)});
  }
  fmt::print("{}{} not due, {} due, {} behind an earlier message of their key, {} sent and not settled\n", table(rows),
             number(counts.waiting), number(counts.due), number(counts.behind), number(counts.sent));
  print_more(more);
  return Exit::ok;
}

void check(const RetriesOptions& options) {
  const auto& filter = options.filter;
  const int ways =
      (filter.number ? 1 : 0) + (options.all ? 1 : 0) + (filter.topic || filter.handler || filter.key ? 1 : 0);
  if (ways != 1) throw UsageError("give the number of one message, or --all, or --topic, --handler and --key");
}

[[noreturn]] void fail_unknown(std::int64_t number, const char* why) {
  throw Error(Code::not_found,
              fmt::format("no stored retry has the number {}{}; see: turnstile retries list", number, why));
}

Exit now(const Global& global, const RetriesOptions& options) {
  check(options);
  const auto count_now = open_admin(load_settings(global)).retry_now(options.filter, options.also_sent);
  if (options.filter.number && count_now == 0)
    fail_unknown(*options.filter.number, ", or an earlier message of its key is stored");
  if (global.json) print(Json{{"now", count_now}});
  else fmt::print("{} due now\n", count_now == 1 ? "1 message is" : number(count_now) + " messages are");
  return Exit::ok;
}

Exit drop(const Global& global, const RetriesOptions& options) {
  check(options);
  const auto dropped = open_admin(load_settings(global)).drop_retries(options.filter);
  if (options.filter.number && dropped == 0) fail_unknown(*options.filter.number, "");
  if (global.json) print(Json{{"dropped", dropped}});
  else
    fmt::print("dropped: {} will not run again; see: turnstile dlq list --reason dropped\n", count(dropped, "message"));
  return Exit::ok;
}

Verb add_verb(Verb retries, Command& command, const std::shared_ptr<RetriesOptions>& options, const char* name,
              const char* what, Exit (*run)(const Global&, const RetriesOptions&)) {
  const auto verb = retries.add_verb(name, what);
  verb.add_option("--topic", options->filter.topic, "only messages of this topic").type("TOPIC");
  verb.add_option("--handler", options->filter.handler, "only messages of this handler").type("NAME");
  verb.add_option("--key", options->filter.key, "only messages with this key").type("KEY");
  verb.runs(command, [options, run](const Global& global) { return run(global, *options); });
  return verb;
}

}  // namespace

void add_retries(Verb app, Command& command) {
  const auto retries = app.add_verb("retries", "messages that wait in PostgreSQL for their next attempt");
  retries.needs_verb();
  const auto options = std::make_shared<RetriesOptions>();
  const auto list_verb = add_verb(retries, command, options, "list", "when each runs again, and why it failed", list);
  list_verb.add_option("--most", options->most, "how many").type("N").whole_number(1, 1'000'000).shows_default();
  const auto now_verb = add_verb(retries, command, options, "now", "run them again now", now);
  const auto drop_verb =
      add_verb(retries, command, options, "drop", "make dead letters of them, with the reason dropped", drop);
  for (Verb verb : {now_verb, drop_verb}) {
    verb.add_option("NUMBER", options->filter.number, "as retries list has it").whole_number(1);
    verb.add_flag("--all", options->all, "all of them");
  }
  now_verb.add_flag("--sent", options->also_sent, "also those that were sent: their records may be lost");
}

}  // namespace turnstile::cli
