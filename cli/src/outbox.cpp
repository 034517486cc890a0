// turnstile outbox stats|list|retry|drop|scheduled|cancel: messages that handlers have published, and that wait, were
// refused, or are not due yet.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "command.hpp"
#include "database.hpp"
#include "text.hpp"

namespace turnstile::cli {

namespace {

struct OutboxOptions {
  std::optional<std::int64_t> number;
  std::int64_t most = 50;
  bool all = false;
  std::optional<std::string> topic;
  std::string id;
};

Exit outbox_stats(const Global& global) {
  const auto outbox = open_admin(load_settings(global)).outbox();
  if (global.json) {
    print(Json{{"waiting", outbox.waiting},
               {"oldest", iso_or_null(outbox.oldest)},
               {"refused", outbox.refused},
               {"scheduled", outbox.scheduled},
               {"next_due", iso_or_null(outbox.next_due)},
               {"relays", outbox.relays}});
    return Exit::ok;
  }
  std::vector<std::vector<std::string>> rows;
  rows.push_back({"waiting", number(outbox.waiting) + (outbox.oldest ? ", since " + when(*outbox.oldest) : "")});
  rows.push_back({"refused", number(outbox.refused) + (outbox.refused > 0 ? "; see: turnstile outbox list" : "")});
  rows.push_back(
      {"scheduled", number(outbox.scheduled) + (outbox.next_due ? ", the first for " + when(*outbox.next_due) : "")});
  rows.push_back({"relays", outbox.relays.empty()
                                ? "none: a consumer that publishes, or finds waiting messages, becomes one"
                                : one_line(fmt::format("{}", fmt::join(outbox.relays, ", ")), 200)});
  fmt::print("{}", table(rows));
  return Exit::ok;
}

Exit list(const Global& global, const OutboxOptions& options) {
  auto refused = open_admin(load_settings(global)).refused(options.most + 1);
  const bool more = cut(refused, options.most);
  if (global.json) {
    Json json{{"refused", Json::array()}, {"more", more}};
    for (const auto& record : refused) {
      json["refused"].push_back({{"number", record.number},
                                 {"topic", record.topic},
                                 {"key", content(record.key)},
                                 {"bytes", record.bytes},
                                 {"why", record.why},
                                 {"written_at", iso(record.written_at)}});
    }
    print(json);
    return Exit::ok;
  }
  if (refused.empty()) {
    fmt::print("nothing was refused\n");
    return Exit::ok;
  }
  std::vector<std::vector<std::string>> rows{{"NUMBER", "WRITTEN", "TOPIC", "BYTES", "WHY"}};
  for (const auto& record : refused) {
    rows.push_back({std::to_string(record.number), when(record.written_at), one_line(record.topic, 60),
                    number(record.bytes), one_line(record.why, 200)});
  }
  fmt::print("{}", table(rows));
  print_more(more);
  return Exit::ok;
}

Exit scheduled(const Global& global, const OutboxOptions& options) {
  auto found = open_admin(load_settings(global)).scheduled(options.topic, options.most + 1);
  const bool more = cut(found, options.most);
  if (global.json) {
    Json json{{"scheduled", Json::array()}, {"more", more}};
    for (const auto& record : found) {
      json["scheduled"].push_back({{"id", record.id.text()},
                                   {"due_at", iso(record.due_at)},
                                   {"topic", record.topic},
                                   {"key", content(record.key)},
                                   {"bytes", record.bytes},
                                   {"written_at", iso(record.written_at)}});
    }
    print(json);
    return Exit::ok;
  }
  if (found.empty()) {
    fmt::print("nothing is scheduled{}\n", options.topic ? " for topic " + one_line(*options.topic, 60) : "");
    return Exit::ok;
  }
  std::vector<std::vector<std::string>> rows{{"DUE", "ID", "TOPIC", "BYTES", "WRITTEN"}};
  for (const auto& record : found) {
    rows.push_back({when(record.due_at), record.id.text(), one_line(record.topic, 60), number(record.bytes),
                    when(record.written_at)});
  }
  fmt::print("{}", table(rows));
  print_more(more);
  return Exit::ok;
}

Exit cancel(const Global& global, const OutboxOptions& options) {
  const MessageId id = MessageId::from(options.id);
  const auto gone = open_admin(load_settings(global)).cancel_scheduled(id);
  if (gone == 0) {
    throw Error(
        Code::not_found,
        fmt::format("no scheduled message has the id {}: it was never published, was cancelled, or is due and on its "
                    "way; see: turnstile outbox scheduled",
                    one_line(options.id, 80)));
  }
  if (global.json) print(Json{{"cancelled", gone}});
  else fmt::print("cancelled: {} will never be sent\n", count(gone, "message"));
  return Exit::ok;
}

[[noreturn]] void fail_unknown(std::int64_t number) {
  throw Error(Code::not_found, fmt::format("no refused message has the number {}; see: turnstile outbox list", number));
}

Exit retry(const Global& global, const OutboxOptions& options) {
  if (options.all == options.number.has_value()) throw UsageError("give the number of one message, or --all");
  const auto again = open_admin(load_settings(global)).retry_refused(options.number);
  if (options.number && again == 0) fail_unknown(*options.number);
  if (global.json) print(Json{{"again", again}});
  else fmt::print("{} will be sent again\n", count(again, "message"));
  return Exit::ok;
}

Exit drop(const Global& global, const OutboxOptions& options) {
  if (!open_admin(load_settings(global)).drop_refused(*options.number)) fail_unknown(*options.number);
  if (global.json) print(Json{{"dropped", *options.number}});
  else fmt::print("dropped: message {} will never be sent\n", *options.number);
  return Exit::ok;
}

}  // namespace

void add_outbox(Verb app, Command& command) {
  const auto outbox = app.add_verb("outbox", "messages that handlers have published");
  outbox.needs_verb();
  const auto options = std::make_shared<OutboxOptions>();
  const auto stats_verb = outbox.add_verb("stats", "how many messages wait, since when, and which process sends them");
  stats_verb.runs(command, [](const Global& global) { return outbox_stats(global); });

  const auto list_verb = outbox.add_verb("list", "the messages that the broker refuses, and why");
  list_verb.add_option("--most", options->most, "how many").type("N").whole_number(1, 1'000'000).shows_default();
  list_verb.runs(command, [options](const Global& global) { return list(global, *options); });

  const auto scheduled_verb = outbox.add_verb("scheduled", "the messages that are not due yet, and when they are");
  scheduled_verb.add_option("--topic", options->topic, "only messages to this topic").type("TOPIC");
  scheduled_verb.add_option("--most", options->most, "how many").type("N").whole_number(1, 1'000'000).shows_default();
  scheduled_verb.runs(command, [options](const Global& global) { return scheduled(global, *options); });

  const auto cancel_verb = outbox.add_verb("cancel", "cancel a scheduled message: it is never sent");
  cancel_verb.add_option("ID", options->id, "the message's id, as outbox scheduled has it, or as the handler set it")
      .required();
  cancel_verb.runs(command, [options](const Global& global) { return cancel(global, *options); });

  const auto retry_verb = outbox.add_verb("retry", "send refused messages again, after those that wait now");
  retry_verb.add_option("NUMBER", options->number, "as outbox list has it").whole_number(1);
  retry_verb.add_flag("--all", options->all, "all of them");
  retry_verb.runs(command, [options](const Global& global) { return retry(global, *options); });

  const auto drop_verb = outbox.add_verb("drop", "drop a refused message: it is never sent");
  drop_verb.add_option("NUMBER", options->number, "as outbox list has it").required().whole_number(1);
  drop_verb.runs(command, [options](const Global& global) { return drop(global, *options); });
}

}  // namespace turnstile::cli
