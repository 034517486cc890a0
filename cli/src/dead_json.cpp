#include "dead_json.hpp"

namespace turnstile::cli {

Json to_json(const postgres::DeadSummary& dead) {
  return {{"number", dead.number},
          {"handler", dead.handler},
          {"group", dead.from.group},
          {"topic", dead.from.at.topic},
          {"partition", dead.from.at.partition},
          {"offset", dead.offset},
          {"id", dead.id ? Json(dead.id->text()) : Json(nullptr)},
          {"reason", dead.reason},
          {"error", dead.error},
          {"attempts", dead.attempts},
          {"died_at", iso(dead.died_at)},
          {"replayed_at", iso_or_null(dead.replayed_at)},
          {"replay_in_doubt", dead.replay_in_doubt},
          {"replay_token", dead.replay_token ? Json(*dead.replay_token) : Json(nullptr)},
          {"edits", dead.edits}};
}

Json to_json(const postgres::DeadRecord& dead) {
  Json json = to_json(dead.summary);
  const bool has_time = dead.record.timestamp != Timestamp{};
  json["timestamp"] = has_time ? Json(iso(dead.record.timestamp)) : Json(nullptr);
  json["dead_letter"] = nullptr;
  if (dead.dead_letter) {
    json["dead_letter"] = {{"topic", dead.dead_letter->at.topic},
                           {"partition", dead.dead_letter->at.partition},
                           {"offset", dead.dead_letter->offset}};
  }
  json["key"] = content(dead.record.key);
  json["headers"] = Json::array();
  for (const auto& header : dead.record.headers) {
    json["headers"].push_back({{"name", content(header.name)}, {"value", content(header.value)}});
  }
  json["payload"] = content(dead.record.payload);
  json["damage"] = dead.damage ? Json(*dead.damage) : Json(nullptr);
  json["edited"] = Json::array();
  for (const auto& edit : dead.edits) json["edited"].push_back({{"at", iso(edit.edited_at)}, {"by", edit.edited_by}});
  return json;
}

}  // namespace turnstile::cli
