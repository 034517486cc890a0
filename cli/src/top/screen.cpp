#include "screen.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "fit.hpp"
#include "turnstile/text.hpp"

namespace turnstile::cli::top {

namespace {

using text::count;
using text::number;
using Lines = std::vector<std::string>;

/// Without a limit of lines, longer lists of stalled partitions are cut here.
constexpr std::size_t kMostStalls = 20;
/// An answer of this age is old.
constexpr Moment kOld{3'000};

std::string figure(const std::optional<std::int64_t>& value) { return value ? number(*value) : "-"; }

std::string rate(const std::optional<double>& value) {
  if (!value) return "-";
  return *value < 100 ? fmt::format("{:.1f}", *value) : number(static_cast<std::int64_t>(*value + 0.5));
}

std::string age(std::chrono::milliseconds time) { return text::age(std::chrono::floor<std::chrono::seconds>(time)); }

std::string more(std::size_t left_out, const char* what) {
  return fmt::format("… {} more {}", number(static_cast<std::int64_t>(left_out)), what);
}

// --- the head ---

const char* to_text(Source::State state) {
  switch (state) {
    case Source::State::asking: return "asking";
    case Source::State::ok: return "ok";
    case Source::State::off: return "off";
    case Source::State::unavailable: return "UNAVAILABLE";
  }
  return "";
}

void add_head(const Model& model, const View& view, Lines& lines) {
  lines.push_back(fmt::format("turnstile top  group {}  {}  by {}{}", escaped(model.group), model.time,
                              top::to_text(view.sort), view.paused ? "  PAUSED (p goes on)" : ""));
  const std::vector<std::pair<const char*, const Source*>> sources{
      {"Kafka", &model.kafka}, {"token log", &model.tokens}, {"PostgreSQL", &model.database}};
  std::string states;
  for (const auto& [name, source] : sources)
    states += fmt::format("{}{} {}", states.empty() ? "" : ", ", name, to_text(source->state));
  lines.push_back(states);
  for (const auto& [name, source] : sources) {
    if (source->why.empty()) continue;
    const bool old = source->answered >= Moment{0} && source->state == Source::State::unavailable;
    lines.push_back(fmt::format("  {}{}: {}", name,
                                old ? fmt::format(" (for {})", age(model.now - source->answered)) : "",
                                escaped(source->why)));
  }
}

// --- sections ---

/// A part of the screen that can have fewer lines than it needs.
struct Section {
  std::size_t lines = 0;                         ///< that it needs
  std::function<Lines(std::size_t lines)> draw;  ///< gets at least 1, and returns at most so many
};

/// ", 14s ago" if the values are old.
std::string aged(const Source& source, Moment now) {
  if (source.state != Source::State::unavailable || source.answered < Moment{0} || now - source.answered < kOld)
    return "";
  return fmt::format(", {} ago", age(now - source.answered));
}

/// How many of `all` rows fit below a heading, with a last line for the rest.
std::size_t that_fit(std::size_t all, std::size_t lines) {
  return all + 1 <= lines ? all : std::max<std::size_t>(lines, 2) - 2;
}

Section stalls_section(const Model& model, const View& view) {
  struct Entry {
    std::string name, what;
  };
  std::vector<Entry> entries;
  for (const auto& limiter : model.stopped())
    entries.push_back({"limiter " + escaped(limiter->limiter),
                       fmt::format("{}: {} wait", limiter->why_stopped(), number(limiter->waiting))});
  const std::size_t all = entries.size() + model.stalls.size();
  const std::size_t most = std::max(view.rows, kMostStalls);
  const std::size_t width = view.columns;
  for (const auto& stall : model.stalls) {
    if (entries.size() >= most) break;
    entries.push_back({fmt::format("{}[{}]", escaped(stall.at.topic), stall.at.partition),
                       stall.paused_by.empty()
                           ? fmt::format("{} behind, no progress for {}", number(stall.lag), age(stall.age))
                           : fmt::format("{} behind, paused by {}", number(stall.lag), escaped(stall.paused_by))});
  }
  return {all == 0 ? 0 : std::min(all, kMostStalls) + (all > kMostStalls ? 2 : 1),
          [entries = std::move(entries), width, all](std::size_t room) {
            Lines lines{fmt::format("STALLED: {}", number(static_cast<std::int64_t>(all)))};
            if (room == 1) return Lines{lines[0] + (all > 0 ? ", " + entries[0].name + " " + entries[0].what : "")};
            const std::size_t shown = that_fit(all, room);
            std::size_t widest = 0;
            for (std::size_t i = 0; i < shown; ++i) widest = std::max(widest, columns_of(entries[i].name));
            widest = std::min(widest, width > 50 ? width - 44 : std::size_t{12});
            for (std::size_t i = 0; i < shown; ++i) {
              const std::string name = cut(entries[i].name, widest);
              lines.push_back(name + std::string(widest - columns_of(name) + 2, ' ') + entries[i].what);
            }
            if (shown < all) lines.push_back(more(all - shown, "stalled"));
            return lines;
          }};
}

std::string topics_in_short(const std::vector<TopicView>& topics) {
  std::int64_t lag = 0;
  double speed = 0;
  for (const auto& topic : topics) {
    lag += topic.state.lag.value_or(0);
    speed += topic.state.rate.value_or(0);
  }
  return fmt::format("{}: lag {}, {}/s", count(std::ssize(topics), "topic"), number(lag), rate(speed));
}

Row row_of(const TopicView& topic) {
  const auto& state = topic.state;
  if (!state.exists) return {escaped(state.topic) + " (does not exist)", {"-", "-", "-", "-", figure(topic.dead)}};
  const std::string paused = topic.paused             ? " (paused)"
                             : topic.paused_parts > 0 ? fmt::format(" ({} paused)", number(topic.paused_parts))
                                                      : "";
  return {
      escaped(state.topic) + paused,
      {number(state.partitions), rate(state.rate), figure(state.lag) + (state.lag && state.unknown > 0 ? " (?)" : ""),
       number(state.stalled), figure(topic.dead)}};
}

Section topics_section(const Model& model, const View& view) {
  if (!model.topics_known || model.topics.empty()) {
    const std::string none = !model.topics_known ? "topics: not known yet"
                                                 : "no topics: name them in [topics.NAME], or as turnstile top TOPIC";
    return {1, [none](std::size_t) { return Lines{none}; }};
  }
  auto topics = model.topics;
  sort(topics, view.sort);
  const std::string heading = "TOPIC" + aged(model.kafka, model.now);
  return {topics.size() + 1, [topics, heading, view](std::size_t room) {
            if (room == 1) return Lines{topics_in_short(topics)};
            auto kept = topics;
            const auto left_out = keep_worst(kept, that_fit(topics.size(), room), view.sort);
            std::vector<Row> rows;
            for (const auto& topic : kept) rows.push_back(row_of(topic));
            auto lines = fit_table(
                heading, {{"PARTS", 5, 4}, {"RATE/S", 9, 1}, {"LAG", 11, 0}, {"STALLED", 7, 2}, {"DEAD", 7, 3}}, rows,
                view.columns);
            if (left_out > 0) lines.push_back(more(left_out, "topics; all: ") + topics_in_short(topics));
            return lines;
          }};
}

Row row_of(const LimiterView& limiter) {
  const std::string why = limiter.limit == 0             ? " (paused)"
                          : limiter.held > limiter.limit ? " (over)"
                          : limiter.set                  ? " (set)"
                                                         : "";
  return {escaped(limiter.limiter) + why,
          {number(limiter.limit), number(limiter.held), number(limiter.in_use), number(limiter.waiting)}};
}

Row row_of(const ProcessView& process) {
  return {"  " + escaped(process.name()) + (process.draining ? " (draining)" : ""),
          {"", number(process.held), number(process.in_use), number(process.waiting)}};
}

Section limiters_section(const Model& model, const View& view) {
  if (model.limiters.empty()) return {1, [](std::size_t) { return Lines{"no limits"}; }};
  auto limiters = model.limiters;
  sort(limiters, view.sort);
  std::vector<Row> rows;
  std::vector<std::size_t> owners;  // how many limiters are in the rows up to each
  std::int64_t held = 0, in_use = 0, waiting = 0;
  for (const auto& limiter : limiters) {
    held += limiter.held;
    in_use += limiter.in_use;
    waiting += limiter.waiting;
    rows.push_back(row_of(limiter));
    owners.push_back(owners.empty() ? 1 : owners.back() + 1);
    if (!view.by_process) continue;
    for (const auto& process : limiter.processes) {
      rows.push_back(row_of(process));
      owners.push_back(owners.back());
    }
  }
  const std::string in_short = fmt::format("{}: {} held, {} in use, {} waiting", count(std::ssize(limiters), "limiter"),
                                           number(held), number(in_use), number(waiting));
  const std::string heading = "LIMITER" + aged(model.kafka, model.now);
  const auto width = view.columns;
  return {rows.size() + 1, [=](std::size_t room) {
            if (room == 1) return Lines{in_short};
            const std::size_t shown = that_fit(rows.size(), room);
            auto lines = fit_table(heading, {{"LIMIT", 7, 0}, {"HELD", 7, 2}, {"IN USE", 7, 3}, {"WAITING", 7, 1}},
                                   {rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(shown)}, width);
            const std::size_t left_out = limiters.size() - (shown == 0 ? 0 : owners[shown - 1]);
            if (left_out > 0) lines.push_back(more(left_out, "limiters; all ") + in_short);
            else if (shown < rows.size()) lines.push_back(more(rows.size() - shown, "processes (m hides them)"));
            return lines;
          }};
}

// --- the foot ---

void add_fates(const Model& model, Lines& lines) {
  if (model.facts) {
    const auto& [claims, outbox, dead, pauses] = *model.facts;
    std::int64_t letters = 0;
    for (const auto& each : dead) letters += each.count;
    lines.push_back(fmt::format("dead letters {}, in doubt {}, parked {}, failed {}, running {}{}", number(letters),
                                number(claims.in_doubt), number(claims.parked), number(claims.failed),
                                number(claims.running), aged(model.database, model.now)));
    lines.push_back(fmt::format("outbox: {} waiting{}, {} refused", number(outbox.waiting),
                                outbox.waiting > 0 ? " for up to " + age(outbox.oldest) : "", number(outbox.refused)));
  }
  lines.emplace_back("done, duplicates, retried: see /metrics of each consumer ([admin] listen)");
}

const Lines kHelp{
    "TOPIC    RATE/S: committed offsets per second, over 10 s. LAG: end - committed.",
    "         STALLED: partitions with lag and no commit for --stall-after.",
    "         DEAD: dead letters that were not replayed.",
    "LIMITER  HELD: permits of processes. IN USE: by handlers that run.",
    "         WAITING: would be used at once. By process: as each last reported.",
    "",
    "s  sort by lag, rate, name        l  change a limit",
    "p  pause the screen, go on        m  limiters by process, on and off",
    "h  this help                      q  quit",
    "any key goes back",
};
constexpr const char* kKeys = "s sort  p pause  l limit  m by process  h help  q quit";

void draw_sections(const Model& model, const View& view, std::size_t room, Lines& lines) {
  const std::vector<Section> sections{stalls_section(model, view), topics_section(model, view),
                                      limiters_section(model, view)};
  std::vector<std::size_t> needs;
  for (const auto& section : sections) needs.push_back(section.lines);
  const auto shares = view.rows == 0 ? needs : share_lines(needs, room);
  for (std::size_t i = 0; i < sections.size(); ++i) {
    if (shares[i] == 0) continue;
    for (auto& line : sections[i].draw(shares[i])) lines.push_back(std::move(line));
  }
}

}  // namespace

Lines draw(const Model& model, const View& view) {
  Lines lines, foot;
  add_head(model, view, lines);
  add_fates(model, foot);
  const bool last = view.keys || !view.prompt.empty();
  // A small screen keeps the title, one line of each section, and the keys.
  constexpr std::size_t kSections = 3;
  const auto room = [&] { return view.rows - std::min(view.rows, lines.size() + foot.size() + (last ? 1 : 0)); };
  if (view.rows > 0) {
    while (!foot.empty() && room() < 2 * kSections) foot.pop_back();
    while (lines.size() > 1 && room() < kSections) lines.pop_back();
  }
  if (view.help) lines.insert(lines.end(), kHelp.begin(), kHelp.end());
  else draw_sections(model, view, view.rows == 0 ? 0 : room(), lines);
  if (view.rows > 0)
    lines.resize(std::min(lines.size(), view.rows - std::min(view.rows, foot.size() + (last ? 1 : 0))));
  if (view.rows > 0 && last) lines.resize(view.rows - 1 - std::min(view.rows - 1, foot.size()));
  lines.insert(lines.end(), foot.begin(), foot.end());
  if (last) lines.push_back(view.prompt.empty() ? kKeys : view.prompt);
  if (view.rows > 0) lines.resize(std::min(lines.size(), view.rows));
  for (auto& line : lines) line = cut(line, view.columns);
  return lines;
}

// --- JSON ---

namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Source& source) {
  const bool is_unavailable = source.state == Source::State::unavailable;
  return {{"state", is_unavailable ? "unavailable" : to_text(source.state)},
          {"why", source.why.empty() ? Json(nullptr) : Json(source.why)}};
}

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json to_json(const TopicView& topic) {
  const auto& state = topic.state;
  return {{"topic", state.topic},           {"exists", state.exists},
          {"partitions", state.partitions}, {"rate", or_null(state.rate)},
          {"lag", or_null(state.lag)},      {"lag_unknown", state.unknown},
          {"stalled", state.stalled},       {"dead_letters", or_null(topic.dead)},
          {"paused", topic.paused},         {"paused_parts", topic.paused_parts}};
}

Json to_json(const LimiterView& limiter) {
  Json json{{"limiter", limiter.limiter}, {"limit", limiter.limit},   {"set", limiter.set},
            {"held", limiter.held},       {"in_use", limiter.in_use}, {"waiting", limiter.waiting},
            {"processes", Json::array()}};
  for (const auto& process : limiter.processes) {
    const bool known = !process.client.empty() || !process.host.empty();
    json["processes"].push_back({{"client", known ? Json(process.client) : Json(nullptr)},
                                 {"host", known ? Json(process.host) : Json(nullptr)},
                                 {"pid", known ? Json(process.pid) : Json(nullptr)},
                                 {"held", process.held},
                                 {"in_use", process.in_use},
                                 {"waiting", process.waiting},
                                 {"draining", process.draining}});
  }
  return json;
}

}  // namespace

Json to_json(const Model& model, const std::string& time) {
  Json json{
      {"time", time},
      {"group", model.group},
      {"sources",
       {{"kafka", to_json(model.kafka)}, {"token_log", to_json(model.tokens)}, {"postgres", to_json(model.database)}}},
      {"topics", Json::array()},
      {"stalled", Json::array()},
      {"log", model.token_log.empty() ? Json(nullptr) : Json(model.token_log)},
      {"position", model.position < 0 ? Json(nullptr) : Json(model.position)},
      {"limiters", Json::array()}};
  for (const auto& topic : model.topics) json["topics"].push_back(to_json(topic));
  for (const auto& stall : model.stalls) {
    json["stalled"].push_back({{"topic", stall.at.topic},
                               {"partition", stall.at.partition},
                               {"lag", stall.lag},
                               {"committed", or_null(stall.committed)},
                               {"for_ms", stall.age.count()},
                               {"paused_by", stall.paused_by.empty() ? Json(nullptr) : Json(stall.paused_by)}});
  }
  for (const auto& limiter : model.limiters) json["limiters"].push_back(to_json(limiter));
  for (const char* key : {"claims", "outbox", "dead_letters"}) json[key] = nullptr;
  if (!model.facts) return json;
  const auto& [claims, outbox, dead, pauses] = *model.facts;
  json["claims"] = {
      {"running", claims.running}, {"in_doubt", claims.in_doubt}, {"failed", claims.failed}, {"parked", claims.parked}};
  json["outbox"] = {{"waiting", outbox.waiting}, {"oldest_ms", outbox.oldest.count()}, {"refused", outbox.refused}};
  json["dead_letters"] = Json::array();
  for (const auto& each : dead) {
    const bool known = !each.topic.empty();
    json["dead_letters"].push_back({{"group", known ? Json(each.group) : Json(nullptr)},
                                    {"topic", known ? Json(each.topic) : Json(nullptr)},
                                    {"count", each.count}});
  }
  return json;
}

}  // namespace turnstile::cli::top
