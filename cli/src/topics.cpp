// turnstile topics list|pause|resume: stops and starts the handlers of a topic, a partition or a key in all consumers.

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "command.hpp"
#include "database.hpp"
#include "operator_name.hpp"
#include "output.hpp"
#include "pause_json.hpp"
#include "text.hpp"
#include "turnstile/ports/store.hpp"
#include "turnstile/postgres/store.hpp"
#include "turnstile/shell.hpp"

namespace turnstile::cli {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kShown = 80;
/// In bytes: a longer key is not part of a command.
constexpr std::size_t kLongestKeyInCommand = 500;
constexpr std::chrono::hours kLongest{24 * 3'650};

struct TopicsOptions {
  ports::PausedPart part;
  std::string key, for_time, why, by;
  bool has_key = false, has_end = false, all = false, breaker = false;
};

/// The tables, and the pauses in them.
struct Tables {
  explicit Tables(const Config& config)
      : admin(open_admin(config)), pauses(postgres::open_store(require_postgres(config))->pauses()) {}

  [[nodiscard]] std::vector<ports::Pause> of(const std::string& topic) const {
    auto all = pauses->active();
    std::erase_if(all, [&](const ports::Pause& pause) { return pause.part.topic != topic; });
    return all;
  }

  postgres::Admin admin;
  std::shared_ptr<ports::Pauses> pauses;
};

std::string shown_key(const std::string& key) {
  return is_text(key) ? "\"" + one_line(key, kShown) + "\"" : "base64 " + one_line(base64(key), kShown);
}

/// `all messages`, `partition 3`, `key "k" in partition 3`
std::string scope(const ports::PausedPart& part) {
  std::string text = part.key ? "key " + shown_key(*part.key) : "";
  if (part.partition) text += fmt::format("{}partition {}", text.empty() ? "" : " in ", *part.partition);
  if (!part.breaker_of.empty())
    return fmt::format("by the circuit breaker of group {}", one_line(part.breaker_of, kShown));
  return text.empty() ? "all messages" : text;
}

/// "topic payments", `topic payments, key "k"`
std::string name(const ports::PausedPart& part) {
  const bool whole = !part.partition && !part.key && part.breaker_of.empty();
  return "topic " + one_line(part.topic, kShown) + (whole ? "" : ", " + scope(part));
}

std::string since(const ports::Pause& pause) {
  return fmt::format("since {}, by {}{}", when(pause.since), one_line(pause.by, kShown),
                     pause.why.empty() ? "" : " (" + one_line(pause.why, kShown) + ")");
}

Json to_json(const std::vector<ports::Pause>& pauses) {
  Json json = Json::array();
  for (const auto& pause : pauses) json.push_back(cli::to_json(pause));
  return json;
}

// --- list ---

Exit list(const Global& global) {
  Tables tables(load_settings(global));
  const auto pauses = tables.pauses->active();
  auto topics = tables.admin.topics();
  if (global.json) {
    print(Json{{"topics", topics}, {"pauses", to_json(pauses)}});
    return Exit::ok;
  }
  for (const auto& pause : pauses) topics.push_back(pause.part.topic);
  std::sort(topics.begin(), topics.end());
  topics.erase(std::unique(topics.begin(), topics.end()), topics.end());
  if (topics.empty()) {
    fmt::print("no consumer has claimed a partition in this database, and nothing is paused\n");
    return Exit::ok;
  }
  std::vector<std::vector<std::string>> rows{{"TOPIC", "PAUSED", "SINCE", "UNTIL", "BY", "WHY"}};
  for (const auto& topic : topics) {
    const std::size_t before = rows.size();
    for (const auto& pause : pauses) {
      if (pause.part.topic != topic) continue;
      rows.push_back({one_line(topic, kShown), scope(pause.part), when(pause.since),
                      pause.until ? when(*pause.until) : "until resumed", one_line(pause.by, 60),
                      one_line(pause.why, 120)});
    }
    if (rows.size() == before) rows.push_back({one_line(topic, kShown), "no"});
  }
  fmt::print("{}", table(rows));
  return Exit::ok;
}

// --- pause, resume ---

milliseconds parse_for(const std::string& text) {
  const auto time = parse_duration(text);
  if (!time || *time > kLongest) {
    throw UsageError(
        fmt::format("--for {}: write 30s, 90m, 2h or 7d, up to 3650d; without --for the pause lasts until: turnstile "
                    "topics resume",
                    one_line(text, kShown)));
  }
  return *time;
}

/// An empty value is refused: as an empty variable of a script it would pause more than was meant.
ports::PausedPart part_of(const TopicsOptions& options) {
  if (options.part.topic.empty()) throw UsageError("the name of the topic is empty");
  if (options.has_key && options.key.empty())
    throw UsageError("--key is empty; leave it out for all keys of the topic");
  ports::PausedPart part = options.part;
  if (options.has_key) part.key = options.key;
  return part;
}

std::string topic_word(const std::string& topic) { return text::shell_word(topic).value_or("TOPIC"); }

void warn_unknown(const std::string& topic, const std::vector<std::string>& known) {
  std::string names;
  for (const auto& other : known) names += (names.empty() ? "" : ", ") + one_line(other, kShown);
  std::fflush(stdout);
  tell(fmt::format(
      "turnstile: warning: no consumer has claimed a partition of a topic \"{0}\" in this database ({1}). The pause "
      "is recorded, and applies to every consumer that reads the topic. If the name is wrong, run: turnstile topics "
      "resume {2} --all\n",
      one_line(topic, kShown), names.empty() ? "nor of another topic" : "there are: " + names, topic_word(topic)));
}

/// A command for sh.
std::string how_to_resume(const TopicsOptions& options) {
  std::string command = "turnstile topics resume " + topic_word(options.part.topic);
  if (options.part.partition) command += fmt::format(" --partition {}", *options.part.partition);
  if (options.key.empty()) return command;
  if (options.key.size() > kLongestKeyInCommand || !text::shell_word(options.key))
    return command + " --key KEY, where KEY is the key that you gave";
  return command + " " + text::shell_option("--key", options.key, "KEY");
}

void warn_unclaimed(const std::string& topic, std::int32_t partition, std::int32_t last, const std::string& resume) {
  std::fflush(stdout);
  tell(fmt::format(
      "turnstile: warning: no consumer has claimed partition {1} of topic \"{0}\" in this database; the highest one "
      "is {2}. The pause is recorded, and applies if the topic gets this partition. If the number is wrong, run: "
      "{3}\n",
      one_line(topic, kShown), partition, last, resume));
}

Exit pause(const Global& global, const TopicsOptions& options) {
  ports::Pause wanted{
      .part = part_of(options), .by = options.by.empty() ? operator_name() : options.by, .why = options.why};
  if (options.has_end) wanted.left = parse_for(options.for_time);
  Tables tables(load_settings(global));
  const auto find = [&] {
    const auto all = tables.of(wanted.part.topic);
    const auto at = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.part == wanted.part; });
    return at == all.end() ? std::optional<ports::Pause>() : *at;
  };
  const auto before = find();
  if (before && wanted.why.empty()) wanted.why = before->why;
  tables.pauses->begin(wanted);
  const auto known = tables.admin.topics();
  const bool is_known = std::find(known.begin(), known.end(), wanted.part.topic) != known.end();
  const auto now = find();
  if (global.json) {
    print(Json{{"pause", now ? cli::to_json(*now) : Json(nullptr)},
               {"before", before ? cli::to_json(*before) : Json(nullptr)},
               {"known", is_known}});
  } else if (!now) {
    fmt::print("{} was paused, and the pause has ended: {}\n", name(wanted.part),
               wanted.left ? "its time is over, or another operator has ended it" : "another operator has ended it");
  } else {
    fmt::print("{} is paused{}: within some seconds no handler starts for its messages. Handlers that run finish\n",
               name(wanted.part), before ? ", as it was " + since(*before) : "");
    fmt::print("{}\n", now->until ? fmt::format("it ends by itself at {}", when(*now->until))
                                  : "it ends with: " + how_to_resume(options));
  }
  if (!now) return Exit::ok;
  if (!is_known) {
    warn_unknown(wanted.part.topic, known);
  } else if (wanted.part.partition) {
    const auto last = tables.admin.last_partition(wanted.part.topic);
    if (last && *wanted.part.partition > *last)
      warn_unclaimed(wanted.part.topic, *wanted.part.partition, *last, how_to_resume(options));
  }
  return Exit::ok;
}

bool is_breaker(const ports::Pause& pause) { return !pause.part.breaker_of.empty(); }

[[noreturn]] void fail_not_paused(const ports::PausedPart& part, const std::vector<ports::Pause>& others) {
  std::string rest;
  for (const auto& other : others) rest += (rest.empty() ? "" : "; ") + scope(other.part);
  const bool only_breakers = std::all_of(others.begin(), others.end(), is_breaker);
  throw Error(Code::not_found,
              fmt::format("{} is not paused{}", name(part),
                          others.empty() ? "; see: turnstile topics list"
                                         : fmt::format(". Of this topic these are: {}. {}", one_line(rest, 400),
                                                       only_breakers ? "To close the circuit breaker, give --breaker"
                                                                     : "Name one of them, or all with --all")));
}

/// An operator's pause and a circuit breaker have different reasons, so the end of one does not end the other.
bool is_meant(const TopicsOptions& options, const ports::PausedPart& part, const ports::Pause& pause) {
  if (options.breaker || is_breaker(pause)) return options.breaker && is_breaker(pause);
  return options.all || (pause.part.partition == part.partition && pause.part.key == part.key);
}

Exit resume(const Global& global, const TopicsOptions& options) {
  const ports::PausedPart part = part_of(options);
  if (options.all && (part.partition || part.key)) throw UsageError("give --all, or one partition or key");
  if (options.breaker && (options.all || part.partition || part.key))
    throw UsageError("--breaker closes the circuit breakers of the topic; do not give --all, --partition or --key too");
  Tables tables(load_settings(global));
  std::vector<ports::Pause> ended, others;
  for (auto& one : tables.of(part.topic)) {
    if (!is_meant(options, part, one)) others.push_back(std::move(one));
    else if (tables.pauses->end(one.part)) ended.push_back(std::move(one));
  }
  if (ended.empty() && options.breaker) {
    throw Error(Code::not_found, fmt::format("no circuit breaker of topic {} is open; see: turnstile topics list",
                                             one_line(part.topic, kShown)));
  }
  if (ended.empty()) fail_not_paused(part, others);
  if (global.json) {
    print(Json{{"resumed", to_json(ended)}, {"still_paused", to_json(others)}});
    return Exit::ok;
  }
  for (const auto& one : ended) fmt::print("{} is no longer paused (it was {})\n", name(one.part), since(one));
  for (const auto& one : others) fmt::print("{} is still paused {}\n", name(one.part), since(one));
  if (others.empty()) fmt::print("within some seconds its handlers start again\n");
  return Exit::ok;
}

/// Returns the option --key.
Argument add_part(Verb verb, TopicsOptions& options) {
  verb.add_option("TOPIC", options.part.topic, "the topic").required();
  verb.add_option("--partition", options.part.partition, "only this partition")
      .type("N")
      .whole_number(0, 2'147'483'647);
  return verb.add_option("--key", options.key, "only messages with this key").type("KEY");
}

}  // namespace

void add_topics(Verb app, Command& command) {
  const auto topics = app.add_verb("topics", "pauses and resumes topics, partitions and keys");
  topics.needs_verb();
  const auto options = std::make_shared<TopicsOptions>();

  const auto list_verb = topics.add_verb("list", "the topics of this database, and what is paused, by whom and why");
  list_verb.runs(command, [](const Global& global) { return list(global); });

  const auto pause_verb = topics.add_verb("pause", "no handler starts until the topic is resumed");
  const auto pause_key = add_part(pause_verb, *options);
  const auto pause_for =
      pause_verb.add_option("--for", options->for_time, "the pause ends by itself after this time").type("TIME");
  pause_verb.add_option("--why", options->why, "the reason, for other operators").type("TEXT");
  pause_verb.add_option("--by", options->by, "who pauses it (default: USER@HOST)").type("NAME");
  pause_verb.footer(
      "Handlers that run finish. The messages wait in Kafka, and offsets are not committed past them. A program with\n"
      "a PollLoop does not look at pauses.");
  pause_verb.runs(command, [options, pause_key, pause_for](const Global& global) {
    options->has_key = pause_key.is_given();
    options->has_end = pause_for.is_given();
    return pause(global, *options);
  });

  const auto resume_verb = topics.add_verb("resume", "ends a pause: handlers start again");
  const auto resume_key = add_part(resume_verb, *options);
  resume_verb.add_flag("--all", options->all, "all pauses of the topic, also of its partitions and keys");
  resume_verb.add_flag("--breaker", options->breaker, "close the circuit breakers of the topic, and end no pause");
  resume_verb.runs(command, [options, resume_key](const Global& global) {
    options->has_key = resume_key.is_given();
    return resume(global, *options);
  });
}

}  // namespace turnstile::cli
