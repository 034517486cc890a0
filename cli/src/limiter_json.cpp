#include "limiter_json.hpp"

#include <algorithm>

#include "domain.hpp"

namespace turnstile::cli {

namespace {

const char* source_of(const PermitsView::Entry& entry) {
  if (entry.set) return "set";
  return entry.configured.empty() ? "none" : "configuration";
}

}  // namespace

bool is_over(const PermitsView::Entry& entry) { return entry.held() > entry.limit; }

std::int64_t free(const PermitsView::Entry& entry) {
  return entry.moving ? 0 : std::max<std::int64_t>(entry.limit - entry.set_aside - entry.held(), 0);
}

Json to_json(const PermitsView::Entry& entry) {
  Json json{
      {"limiter", entry.limiter},     {"limit", entry.limit},   {"source", source_of(entry)},
      {"paused", entry.set == 0},     {"moving", entry.moving}, {"set", entry.set ? Json(*entry.set) : Json(nullptr)},
      {"set_aside", entry.set_aside}, {"held", entry.held()},   {"free", free(entry)},
      {"over", is_over(entry)},       {"busy", entry.busy()},   {"waiting", entry.waiting()},
      {"configured", Json::array()}};
  for (const auto& who : entry.holders) {
    if (who.configured == 0) continue;
    Json member = cli::to_json(TokenMember{.id = who.member, .client = who.client, .host = who.host, .pid = who.pid});
    member["limit"] = who.configured;
    json["configured"].push_back(std::move(member));
  }
  return json;
}

Json to_json(const PermitsView::LimitChange& change) {
  return {{"position", change.position},
          {"part", change.part},
          {"at", iso_or_null(moment(change.at_ms))},
          {"limiter", change.limiter},
          {"limit", change.limit ? Json(*change.limit) : Json(nullptr)},
          {"by", change.by.empty() ? Json(nullptr) : Json(change.by)}};
}

}  // namespace turnstile::cli
