// Dead letters: groups, lists, edits and replays.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>

#include "../dead_edit.hpp"
#include "../dead_json.hpp"
#include "../dead_options.hpp"
#include "api.hpp"

namespace turnstile::cli::dashboard {

namespace {

constexpr std::int64_t kPage = 50, kMostGroups = 200;
constexpr std::size_t kMostNumbers = 1'000;

/// Letters of a topic that the tables no longer know have an empty one. Without it, the filter would match others.
DeadOptions options_of(const std::function<std::optional<std::string>(const char*)>& value_of) {
  const auto text = [&](const char* name) {
    auto value = value_of(name);
    if (value && value->empty()) throw UsageError(fmt::format("{} is empty: leave it out, or name one", name));
    return value;
  };
  DeadOptions options;
  options.handler = text("handler");
  options.topic = text("topic");
  options.reason = text("reason");
  options.since = text("since");
  options.until = text("until");
  options.header = text("header");
  options.text = text("text");
  return options;
}

constexpr std::array<const char*, 7> kFilters{"handler", "topic", "reason", "since", "until", "header", "text"};

/// A misspelt filter would replay all letters.
void refuse_others(const Json& body, std::initializer_list<const char*> known) {
  for (const auto& [key, value] : body.items()) {
    const auto is = [&key = key](const char* name) { return key == name; };
    if (std::none_of(kFilters.begin(), kFilters.end(), is) && std::none_of(known.begin(), known.end(), is))
      throw UsageError(fmt::format("the request has an unknown field, {}", one_line(key, 60)));
  }
}

DeadOptions options_of(const Query& query) {
  return options_of(
      [&](const char* name) { return query.has(name) ? std::optional(query.text(name).value_or("")) : std::nullopt; });
}

DeadOptions options_of(const Json& body) {
  return options_of([&](const char* name) -> std::optional<std::string> {
    const auto found = body.find(name);
    if (found == body.end()) return std::nullopt;
    if (!found->is_string()) throw UsageError(fmt::format("{} must be a text", name));
    return found->get<std::string>();
  });
}

postgres::DeadRecord load(postgres::Admin& admin, std::int64_t number) {
  auto dead = admin.load_dead(number);
  if (!dead) throw Error(Code::not_found, fmt::format("there is no dead letter {}", number));
  return std::move(*dead);
}

std::optional<std::chrono::nanoseconds> rate_of(const Json& body) {
  const auto found = body.find("rate");
  if (found == body.end() || found->is_null() || *found == "") return std::nullopt;
  const auto interval = found->is_string() ? parse_rate(found->get<std::string>()) : std::nullopt;
  if (!interval) throw UsageError("rate: write a number from 1 to 1000000 and a unit, as in 100/s, 30/m or 5/h");
  return interval;
}

/// Absent: all of a filter.
std::optional<std::vector<std::int64_t>> numbers_of(const Json& body) {
  const auto found = body.find("numbers");
  if (found == body.end() || found->is_null()) return std::nullopt;
  if (!found->is_array() || found->empty() || found->size() > kMostNumbers)
    throw UsageError(fmt::format("numbers: a list of 1 to {} numbers of dead letters", kMostNumbers));
  std::vector<std::int64_t> numbers;
  for (const auto& each : *found) {
    const bool fits = !each.is_number_unsigned() || each.get<std::uint64_t>() <= INT64_MAX;
    if (!each.is_number_integer() || !fits) throw UsageError("numbers: only whole numbers of 64 bits");
    numbers.push_back(each.get<std::int64_t>());
  }
  return numbers;
}

}  // namespace

Json Api::dead_groups(const Query& query) const {
  auto admin = open_admin(config_);
  auto filter = dead_filter(admin, options_of(query));
  filter.with_replayed = query.text("all").has_value();
  filter.most = kMostGroups;
  const auto groups = admin.dead_groups(filter, query.text("by") != "reason");
  return {{"groups", to_json(groups)}, {"of_groups", groups.of_groups}, {"letters", groups.letters}};
}

Json Api::dead_list(const Query& query) const {
  auto admin = open_admin(config_);
  auto filter = dead_filter(admin, options_of(query));
  filter.with_replayed = query.text("all").has_value();
  filter.after = query.text("after");
  filter.most = query.number("most", kPage, 1, 500);
  const auto page = admin.dead(filter);
  Json json{{"dead", Json::array()}, {"next", page.next ? Json(*page.next) : Json(nullptr)}};
  for (const auto& letter : page.letters) json["dead"].push_back(to_json(letter));
  return json;
}

Json Api::dead_letter(std::int64_t number) const {
  auto admin = open_admin(config_);
  const auto dead = load(admin, number);
  Json json = to_json(dead);
  json["place"] = place(dead.summary.from, dead.summary.offset);
  json["editable"] = nullptr;
  try {
    require_editable(dead);
  } catch (const Refusal& refusal) {
    json["editable"] = refusal.what();
  }
  return json;
}

Json Api::edit_dead(std::int64_t number, const Json& body) const {
  DeadChanges changes;
  if (body.contains("payload")) {
    if (!body["payload"].is_string()) throw UsageError("payload must be a text");
    changes.payload = body["payload"].get<std::string>();
  }
  for (const auto& header : body.value("headers", Json::array()))
    changes.headers.push_back({header.at("name").get<std::string>(), header.at("value").get<std::string>()});
  for (const auto& name : body.value("removed", Json::array())) changes.removed.push_back(name.get<std::string>());
  auto admin = open_admin(config_);
  const auto dead = load(admin, number);
  require_editable(dead);
  if (body.value("edits", -1) != dead.summary.edits)
    throw Refusal(fmt::format("dead letter {} was edited meanwhile: open it again", number));
  cli::edit_dead(admin, dead, changed(dead, changes), options_.by);
  return {{"edited", number}, {"edits", dead.summary.edits + 1}};
}

Json Api::replay_preview(const Json& body) const {
  refuse_others(body, {"rate", "all"});
  const auto interval = rate_of(body);
  const auto options = options_of(body);
  auto admin = open_admin(config_);
  const auto preview =
      preview_replay(config_, admin, dead_filter(admin, options), options.reason.has_value(), interval);
  Json json{{"would_replay", preview.published.letters},
            {"seconds", interval ? Json(preview.seconds) : Json(nullptr)},
            {"would_skip", Json::array()}};
  for (const auto& [letters, why] : preview.skipped()) json["would_skip"].push_back({{"count", letters}, {"why", why}});
  return json;
}

Json Api::replay(const Json& body) {
  refuse_others(body, {"rate", "all", "numbers"});
  const auto interval = rate_of(body);
  const auto numbers = numbers_of(body);
  if (numbers) {
    if (options_of(body).any()) throw UsageError("a replay takes either numbers or a filter");
    job_.start(config_, static_cast<std::int64_t>(numbers->size()),
               [numbers = *numbers, interval](Replayer& replayer) { replayer.some(numbers, interval); });
    return job_.state();
  }
  const auto options = options_of(body);
  if (!options.any() && body.value("all", Json()) != true)
    throw UsageError("a replay needs numbers, a filter, or \"all\": true");
  if (options.reason == "forged")
    throw UsageError("a forged message is replayed only by its number, after you have examined it");
  const bool by_reason = options.reason.has_value();
  auto admin = open_admin(config_);
  const auto filter = dead_filter(admin, options);
  const auto expected = preview_replay(config_, admin, filter, by_reason, interval).published.letters;
  job_.start(config_, expected,
             [filter, by_reason, interval](Replayer& replayer) { replayer.all(filter, by_reason, interval); });
  return job_.state();
}

}  // namespace turnstile::cli::dashboard
