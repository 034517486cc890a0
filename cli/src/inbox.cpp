// turnstile inbox inspect|stats|forget|unpark; purge is in purge.cpp.

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "command.hpp"
#include "database.hpp"
#include "inspection.hpp"
#include "text.hpp"
#include "turnstile/shell.hpp"

namespace turnstile::cli {

namespace {

struct InboxOptions {
  std::string id;
  std::optional<std::string> handler;
  bool yes = false;
  bool done = false;
  bool rerun = false;
};

// --- inspect ---

template <class Message>
std::string place_of(const Message& message) {
  return message.by_call ? "a call (HTTP or Inbox)" : place(message.from, message.offset);
}

void print_seen(const std::vector<postgres::SeenMessage>& seen) {
  std::vector<std::vector<std::string>> rows{{"HANDLER", "TOOK EFFECT", "FROM"}};
  for (const auto& message : seen) {
    rows.push_back({one_line(message.handler, 60), when(message.seen_at), place_of(message)});
  }
  fmt::print("{}", table(rows));
}

void print_claims(const std::string& id, const std::vector<postgres::ClaimedMessage>& claims) {
  for (const auto& claim : claims) {
    fmt::print("{} by {}, {} (claim {}), from {}{}{}\n", claim.state, one_line(claim.handler, 60),
               when(claim.claimed_at), claim.fence, place_of(claim),
               claim.state == "claimed" ? ", until " + when(claim.expires_at) : "",
               claim.error.empty() ? "" : ": " + one_line(claim.error, 200));
    if (claim.state == "parked" || claim.state == "unknown") {
      fmt::print(
          "  it is unknown whether it took effect: check the system that it affects, then\n"
          "  turnstile inbox unpark {} {} --done    or --rerun\n",
          id, text::shell_option("--handler", claim.handler, "NAME"));
    }
  }
}

void print_stored(const std::vector<postgres::StoredRetry>& stored) {
  for (const auto& message : stored) {
    fmt::print("stored for attempt {} by {}, {}, from {}@{}: {}; see: turnstile retries list\n", message.attempts + 1,
               one_line(message.handler, 60),
               message.due_at ? "due " + when(*message.due_at) : "behind an earlier message of its key",
               to_string(TopicPartition{message.topic, message.partition}), message.offset,
               one_line(message.error, 200));
  }
}

void print_dead(const std::vector<postgres::DeadSummary>& dead) {
  for (const auto& letter : dead) {
    fmt::print("dead letter {} of {}: {}, {}{}; see: turnstile dlq show {}\n", letter.number,
               one_line(letter.handler, 60), letter.reason, when(letter.died_at),
               letter.replayed_at       ? ", replayed " + when(*letter.replayed_at)
               : letter.replay_in_doubt ? ", may have been replayed"
                                        : "",
               letter.number);
  }
}

Exit inspect_id(const Global& global, const InboxOptions& options) {
  auto admin = open_admin(load_settings(global));
  if (options.handler) require_handler(admin, *options.handler);
  const MessageId id = MessageId::from(options.id);
  const auto [seen, claims, stored, dead] = inspect(admin, id, options.handler);
  if (global.json) {
    print(to_json(id, {seen, claims, stored, dead}));
  } else {
    const std::string name = one_line(options.id, 80);
    fmt::print("{}{}\n", name, name == id.text() ? "" : ", kept as " + id.text());
    if (seen.empty() && claims.empty() && stored.empty())
      fmt::print("not seen{}\n", options.handler ? " by " + one_line(*options.handler, 60) : "");
    if (!seen.empty()) print_seen(seen);
    print_claims(id.text(), claims);
    print_stored(stored);
    print_dead(dead);
  }
  return seen.empty() ? Exit::problems : Exit::ok;
}

// --- stats ---

Json to_json(const postgres::InboxStats& stats) {
  Json json{{"table_bytes", stats.table_bytes},
            {"index_bytes", stats.index_bytes},
            {"handlers", Json::array()},
            {"partitions", Json::array()}};
  for (const auto& h : stats.handlers) {
    json["handlers"].push_back({{"handler", h.handler},
                                {"rows", h.rows},
                                {"oldest", iso_or_null(h.oldest)},
                                {"newest", iso_or_null(h.newest)},
                                {"dead", h.dead},
                                {"claimed", h.claimed},
                                {"unknown", h.unknown},
                                {"failed", h.failed},
                                {"parked", h.parked}});
  }
  for (const auto& p : stats.partitions) {
    json["partitions"].push_back({{"group", p.of.group},
                                  {"topic", p.of.at.topic},
                                  {"partition", p.of.at.partition},
                                  {"watermark", p.watermark ? Json(*p.watermark) : Json(nullptr)},
                                  {"moved_at", iso_or_null(p.moved_at)},
                                  {"epoch", p.epoch.value},
                                  {"claimed_at", iso(p.claimed_at)},
                                  {"incarnation", p.incarnation}});
  }
  return json;
}

std::string time_or_dash(const std::optional<Microseconds>& time) { return time ? when(*time) : "-"; }

void print_stats(const postgres::InboxStats& stats) {
  std::int64_t rows_in_all = 0;
  const bool leases = std::any_of(stats.handlers.begin(), stats.handlers.end(),
                                  [](const auto& h) { return h.claimed + h.unknown + h.failed + h.parked > 0; });
  std::vector<std::vector<std::string>> handlers{{"HANDLER", "IDS", "OLDEST", "NEWEST", "DEAD"}};
  if (leases) handlers.front().insert(handlers.front().end(), {"CLAIMED", "UNKNOWN", "FAILED", "PARKED"});
  for (const auto& h : stats.handlers) {
    rows_in_all += h.rows;
    handlers.push_back(
        {one_line(h.handler, 60), number(h.rows), time_or_dash(h.oldest), time_or_dash(h.newest), number(h.dead)});
    if (!leases) continue;
    for (const auto n : {h.claimed, h.unknown, h.failed, h.parked}) handlers.back().push_back(number(n));
  }
  std::vector<std::vector<std::string>> partitions{{"GROUP", "PARTITION", "WATERMARK", "MOVED", "EPOCH", "CLAIMED"}};
  for (const auto& p : stats.partitions) {
    partitions.push_back({one_line(p.of.group, 60), to_string(p.of.at),
                          p.watermark ? std::to_string(*p.watermark) : "-", time_or_dash(p.moved_at),
                          std::to_string(p.epoch.value), when(p.claimed_at)});
  }
  fmt::print("{} in {} of table and {} of indexes\n", count(rows_in_all, "id"), bytes(stats.table_bytes),
             bytes(stats.index_bytes));
  if (stats.handlers.empty()) fmt::print("no handler has registered yet\n");
  else fmt::print("\n{}", table(handlers));
  if (!stats.partitions.empty()) fmt::print("\n{}", table(partitions));
}

Exit inbox_stats(const Global& global) {
  const auto stats = open_admin(load_settings(global)).stats();
  if (global.json) print(to_json(stats));
  else print_stats(stats);
  return Exit::ok;
}

// --- forget ---

Exit forget(const Global& global, const InboxOptions& options) {
  if (!options.yes) {
    throw UsageError(
        "after its id is forgotten, the message takes effect a second time if it is delivered again; add --yes if you accept "
        "that");
  }
  auto admin = open_admin(load_settings(global));
  require_handler(admin, *options.handler);
  const bool was_there = admin.forget(MessageId::from(options.id), *options.handler);
  if (global.json) print(Json{{"forgotten", was_there}});
  else if (was_there) {
    fmt::print("forgotten: if the message is delivered again, it takes effect again for {}\n",
               one_line(*options.handler, 60));
  } else {
    fmt::print("not seen by {}: nothing to forget\n", one_line(*options.handler, 60));
  }
  return was_there ? Exit::ok : Exit::problems;
}

// --- unpark ---

Exit unpark(const Global& global, const InboxOptions& options) {
  if (options.done == options.rerun) {
    throw UsageError(
        "choose one: --done (the effect happened; further copies are duplicates) or --rerun (it did not happen, or repeating it "
        "is safe; the message runs when it is next delivered)");
  }
  auto admin = open_admin(load_settings(global));
  require_handler(admin, *options.handler);
  const MessageId id = MessageId::from(options.id);
  const auto dead = admin.unpark(id, *options.handler, options.done);
  if (global.json) print(Json{{"unparked", dead.has_value()}, {"dead", dead ? Json(*dead) : Json::array()}});
  else if (!dead) {
    fmt::print("not parked by {}: nothing to decide; see: turnstile inbox inspect {}\n", one_line(*options.handler, 60),
               id.text());
  } else if (options.done) {
    fmt::print("done: further copies are duplicates for {}\n", one_line(*options.handler, 60));
  } else {
    fmt::print("the message runs when it is next delivered{}\n", dead->empty() ? "" : "; to deliver it:");
    for (const auto number : *dead) fmt::print("  turnstile dlq replay {}\n", number);
  }
  return dead ? Exit::ok : Exit::problems;
}

Argument add_id(Verb verb, InboxOptions& options) {
  return verb.add_option("ID", options.id, "the id in the message: a UUID, or any other text").required();
}

}  // namespace

void add_inbox(Verb app, Command& command) {
  const auto inbox = app.add_verb("inbox", "the ids of the messages that took effect");
  inbox.needs_verb();
  const auto options = std::make_shared<InboxOptions>();

  const auto inspect_verb = inbox.add_verb("inspect", "whether this message took effect, when, and from where");
  add_id(inspect_verb, *options);
  inspect_verb.add_option("--handler", options->handler, "of this handler only").type("NAME");
  inspect_verb.runs(command, [options](const Global& global) { return inspect_id(global, *options); });

  const auto stats_verb =
      inbox.add_verb("stats", "how many ids each handler has, how old they are, and each partition's watermark");
  stats_verb.runs(command, [](const Global& global) { return inbox_stats(global); });

  const auto forget_verb = inbox.add_verb("forget", "let a message take effect a second time if it is delivered again");
  add_id(forget_verb, *options);
  forget_verb.add_option("--handler", options->handler, "for which handler").type("NAME").required();
  forget_verb.add_flag("--yes", options->yes, "yes, it may take effect a second time");
  forget_verb.runs(command, [options](const Global& global) { return forget(global, *options); });

  const auto unpark_verb =
      inbox.add_verb("unpark", "decide about a parked message of a leased topic: it is unknown whether it took effect");
  add_id(unpark_verb, *options);
  unpark_verb.add_option("--handler", options->handler, "for which handler").type("NAME").required();
  unpark_verb.add_flag("--done", options->done, "it took effect");
  unpark_verb.add_flag("--rerun", options->rerun, "it may run again");
  unpark_verb.runs(command, [options](const Global& global) { return unpark(global, *options); });

  add_purge(inbox, command);
}

}  // namespace turnstile::cli
