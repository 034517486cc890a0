#include "status_json.hpp"

#include <chrono>
#include <nlohmann/json.hpp>

#include "turnstile/text.hpp"

namespace turnstile::admin {

namespace {

using Json = nlohmann::ordered_json;

double seconds(std::chrono::milliseconds time) { return static_cast<double>(time.count()) / 1'000; }

template <class T>
Json known(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json health_json(const Health& health) {
  Json problems = Json::array();
  for (const PartitionProblem& problem : health.problems) {
    problems.push_back({{"topic", problem.at.topic},
                        {"partition", problem.at.partition},
                        {"offset", known(problem.offset)},
                        {"since", text::utc(problem.since)},
                        {"reason", problem.reason}});
  }
  return {{"name", health.name},
          {"state", to_text(health.state)},
          {"since", text::utc(health.since)},
          {"reason", health.reason},
          {"live", health.is_live()},
          {"ready", health.is_ready()},
          {"problems", std::move(problems)}};
}

Json partitions_json(const Status& status) {
  Json all = Json::array();
  for (const PartitionStatus& partition : status.partitions) {
    Json running = Json::array();
    for (const RunningHandler& handler : status.running) {
      if (handler.at != partition.at) continue;
      running.push_back({{"handler", handler.handler}, {"offset", handler.offset}, {"seconds", seconds(handler.took)}});
    }
    all.push_back({{"topic", partition.at.topic},
                   {"partition", partition.at.partition},
                   {"state", to_text(partition.state)},
                   {"position", known(partition.position)},
                   {"end", known(partition.end)},
                   {"lag", known(partition.lag())},
                   {"lag_seconds", partition.behind ? Json(seconds(*partition.behind)) : Json(nullptr)},
                   {"in_flight", partition.in_flight},
                   {"in_workers", partition.running},
                   {"retrying", partition.retrying},
                   {"paused", partition.paused},
                   {"running", std::move(running)}});
  }
  return all;
}

/// Without the keys, which may be personal data: `turnstile topics list` shows them.
Json pauses_json(const Status& status) {
  Json all = Json::array();
  for (const ports::Pause& pause : status.pauses) {
    all.push_back({{"topic", pause.part.topic},
                   {"partition", known(pause.part.partition)},
                   {"of_key", pause.part.key.has_value()},
                   {"since", text::utc(pause.since)},
                   {"until", pause.until ? Json(text::utc(*pause.until)) : Json(nullptr)},
                   {"by", pause.by},
                   {"why", pause.why}});
  }
  return all;
}

Json breakers_json(const Status& status) {
  Json all = Json::array();
  for (const BreakerStatus& breaker : status.breakers)
    all.push_back({{"topic", breaker.topic}, {"open", breaker.is_open}, {"left_seconds", seconds(breaker.left)}});
  return all;
}

Json limiters_json(const Status& status) {
  Json all = Json::array();
  for (const LimiterStatus& limiter : status.limiters) {
    const ports::LimiterState& state = limiter.state;
    all.push_back({{"name", limiter.name},
                   {"limit", state.limit},
                   {"held", state.held},
                   {"in_use", state.in_use},
                   {"share", state.share},
                   {"waiting", state.waiting}});
  }
  return all;
}

Json token_log_json(const Status& status) {
  if (!status.token_log) return nullptr;
  const ports::TokenLogState& log = *status.token_log;
  return {{"available", log.available},
          {"lease_left_seconds", seconds(log.lease_left)},
          {"unread", known(log.unread)},
          {"epochs", log.epochs}};
}

Json store_json(const Status& status) {
  Json ids = Json::array();
  for (const StoredIds& stored : status.ids) {
    ids.push_back({{"handler", stored.handler},
                   {"kept_for_seconds", stored.kept_for ? Json(stored.kept_for->count()) : Json(nullptr)},
                   {"all_since", stored.all_since ? Json(text::utc(*stored.all_since)) : Json(nullptr)}});
  }
  Json outbox = nullptr;
  if (status.outbox) {
    outbox = {{"waiting", status.outbox->waiting},
              {"oldest_seconds", seconds(status.outbox->oldest)},
              {"refused", status.outbox->refused},
              {"scheduled", status.outbox->scheduled},
              {"retries", status.outbox->retries}};
  }
  Json claims = nullptr;
  if (status.claims) {
    claims = {{"running", status.claims->running},
              {"in_doubt", status.claims->in_doubt},
              {"failed", status.claims->failed},
              {"parked", status.claims->parked}};
  }
  return {{"available", known(status.store_available)},
          {"ids", std::move(ids)},
          {"outbox", std::move(outbox)},
          {"claims", std::move(claims)}};
}

Json spans_json(const Status& status) {
  if (!status.spans) return nullptr;
  return {{"exported", status.spans->exported}, {"dropped", status.spans->dropped}, {"waiting", status.spans->waiting}};
}

Json settings_json(const std::vector<ExplainedSetting>& settings) {
  Json all = Json::array();
  for (const ExplainedSetting& setting : settings) {
    Json entry{{"key", setting.key}, {"value", setting.value.empty() ? Json(nullptr) : Json(setting.value)}};
    if (!setting.instead.empty()) entry["instead"] = setting.instead;
    entry["source"] = setting.source;
    all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace

std::string status_json(const Status& status, const std::vector<ExplainedSetting>& settings) {
  const Json all{{"health", health_json(status.health)},
                 {"in_group", status.in_group},
                 {"kafka_silent_seconds", status.kafka_silent ? Json(seconds(*status.kafka_silent)) : Json(nullptr)},
                 {"partitions", partitions_json(status)},
                 {"pauses", pauses_json(status)},
                 {"breakers", breakers_json(status)},
                 {"limiters", limiters_json(status)},
                 {"token_log", token_log_json(status)},
                 {"store", store_json(status)},
                 {"spans", spans_json(status)},
                 {"settings", settings_json(settings)}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace turnstile::admin
