#include "api.hpp"

#include <fmt/format.h>

#include <charconv>
#include <chrono>

#include "../limiter_json.hpp"
#include "../log_replay.hpp"
#include "../pause_json.hpp"
#include "../top/screen.hpp"
#include "turnstile/kafka/limiters.hpp"

namespace turnstile::cli::dashboard {

namespace {

constexpr std::chrono::milliseconds kStop{3'000}, kChangeTimeout{15'000};
constexpr std::int64_t kLongestName = 255;

std::string log_topic(const Config& config, const DomainOptions& domain) {
  if (domain.topic) return *domain.topic;
  return config.limits.topic.empty() ? config.group() + ".tokens" : config.limits.topic;
}

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(top::utc().time_since_epoch()).count();
}

}  // namespace

std::optional<std::string> Query::text(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
}

std::int64_t Query::number(const std::string& name, std::int64_t otherwise, std::int64_t low, std::int64_t high) const {
  const auto given = text(name);
  if (!given) return otherwise;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(given->data(), given->data() + given->size(), value);
  if (error != std::errc{} || end != given->data() + given->size() || value < low || value > high) {
    throw UsageError(fmt::format("{}={}: write a whole number from {} to {}", name, one_line(*given, 40), low, high));
  }
  return value;
}

Api::Api(const Global& global, Config config, Options options)
    : global_(global),
      config_(std::move(config)),
      options_(std::move(options)),
      watch_(config_, {.topics = options_.topics, .log = options_.domain.topic}, [] {}),
      follower_([this] { return open_log(); }) {}

std::unique_ptr<TokenReader> Api::open_log() const {
  if (config_.limits.over != "cluster" && !options_.domain.topic)
    throw UsageError("[limits] over is not \"cluster\": there is no token log, and so no history of permits");
  const auto brokers = config_.kafka.find("bootstrap.servers");
  if (brokers == config_.kafka.end() || brokers->second.empty()) throw UsageError("no broker is named");
  const std::string topic = log_topic(config_, options_.domain);
  auto log = kafka::find_token_log(config_.kafka, topic, nullptr);
  if (!log) return nullptr;
  return std::make_unique<TokenReader>(std::move(log), kafka::parts_of_token_log(config_.kafka, topic));
}

Json Api::overview() {
  top::Model model;
  {
    const std::lock_guard lock(mutex_);
    watch_.refresh();
    model = watch_.model();
  }
  Json json = top::to_json(model, iso(top::utc()));
  json["topics_known"] = model.topics_known;
  json["pauses"] = Json::array();
  if (model.facts) {
    for (const auto& pause : model.facts->pauses) json["pauses"].push_back(to_json(pause));
  }
  const auto state = follower_.state();
  json["history"] = {{"log", state.log.empty() ? Json(nullptr) : Json(state.log)},
                     {"ready", state.ready},
                     {"why", state.why.empty() ? Json(nullptr) : Json(state.why)},
                     {"position", state.position},
                     {"limiters", state.limiters},
                     {"first_ms", state.first_ms},
                     {"last_ms", state.last_ms}};
  json["limit_changes"] = Json::array();
  for (auto change = state.changes.rbegin(); change != state.changes.rend(); ++change)
    json["limit_changes"].push_back(cli::to_json(*change));
  return json;
}

Json Api::history(const Query& query) const {
  const auto limiter = query.text("limiter");
  if (!limiter) throw UsageError("limiter=NAME is missing");
  constexpr std::int64_t kForever = 4'102'444'800'000;  // 2100
  const std::int64_t to_ms = query.number("to", now_ms(), 0, kForever);
  const std::int64_t from_ms = query.number("from", to_ms - 300'000, 0, kForever);
  if (from_ms >= to_ms) throw UsageError("from must be before to");
  const auto view =
      follower_.view(*limiter, from_ms, to_ms, static_cast<std::size_t>(query.number("steps", 300, 1, 2'000)));
  Json json{{"limiter", *limiter},       {"times", view.times_ms},     {"positions", view.positions},
            {"limits", Json::array()},   {"processes", Json::array()}, {"others", view.others},
            {"first_ms", view.first_ms}, {"last_ms", view.last_ms}};
  for (const auto& limit : view.limits) json["limits"].push_back(limit ? Json(*limit) : Json(nullptr));
  for (const auto& process : view.processes)
    json["processes"].push_back({{"name", process.name}, {"held", process.held}});
  return json;
}

Json Api::permits_at(const Query& query) const {
  const std::int64_t position = query.number("position", -1, 0, INT64_MAX);
  if (position < 0) throw UsageError("position=N is missing");
  Json json;
  look_at_domain(global_, options_.domain, [&](TokenReader& reader) {
    replay_to(reader, position);
    json = replay_as_json(reader);
    return Exit::ok;
  });
  return json;
}

Json Api::set_limit(const Json& body) const {
  if (!body.contains("limiter") || !body["limiter"].is_string() || !body.contains("limit") ||
      !(body["limit"].is_null() || body["limit"].is_number_integer()))
    throw UsageError("a change of a limit needs limiter, a text, and limit, a whole number or null");
  const auto name = body["limiter"].get<std::string>();
  std::optional<std::int64_t> limit;
  if (!body["limit"].is_null()) limit = body["limit"].get<std::int64_t>();
  const auto reader = open_domain(global_, options_.domain);
  reader->start(reader->end());
  const auto find = [&]() -> Json {
    for (const auto& entry : reader->permits_at_home_of(name).limiters) {
      if (entry.limiter == name) return cli::to_json(entry);
    }
    return nullptr;
  };
  const Json before = find();
  if (before.is_null()) {
    throw Error(Code::limiter_unknown,
                fmt::format("no limiter \"{}\" in {}; to set it before its first member starts: turnstile limits set "
                            "NAME N --ahead",
                            one_line(name, 60), reader->name()));
  }
  if (!reader->set_limit(name, limit, kChangeTimeout, options_.by.substr(0, kLongestName))) {
    throw BrokerError(
        Code::token_log_silent,
        fmt::format("limiter \"{}\": the change was not read back from {} within {}. It may still take effect",
                    one_line(name, 60), reader->name(), duration(kChangeTimeout)));
  }
  return {{"before", before}, {"now", find()}, {"by", options_.by}};
}

Json Api::stop_replay() {
  job_.stop();
  return {{"stopping", true}};
}

void Api::end(int exit) {
  job_.stop();
  job_.wait();
  const bool ended = follower_.stop(kStop);
  if (!ended) std::_Exit(exit);
  watch_.end(exit);
}

}  // namespace turnstile::cli::dashboard
