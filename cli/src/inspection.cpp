#include "inspection.hpp"

namespace turnstile::cli {

namespace {

constexpr std::int64_t kMostHandlers = 1'000;  // a handler stores a message once

/// All null for a message that did not come from a partition.
template <class Message>
void add_place(Json& json, const Message& message) {
  const auto unless_called = [&](const auto& value) { return message.by_call ? Json(nullptr) : Json(value); };
  json["group"] = unless_called(message.from.group);
  json["topic"] = unless_called(message.from.at.topic);
  json["partition"] = unless_called(message.from.at.partition);
  json["offset"] = unless_called(message.offset);
}

Json to_json(const postgres::SeenMessage& seen) {
  Json json{{"handler", seen.handler}, {"seen_at", iso(seen.seen_at)}};
  add_place(json, seen);
  if (seen.fingerprint) json["fingerprint"] = *seen.fingerprint;
  return json;
}

Json to_json(const postgres::ClaimedMessage& claim) {
  Json json{{"handler", claim.handler},
            {"state", claim.state},
            {"fence", claim.fence},
            {"claimed_at", iso(claim.claimed_at)},
            {"expires_at", iso(claim.expires_at)}};
  add_place(json, claim);
  if (!claim.error.empty()) json["error"] = claim.error;
  return json;
}

Json to_json(const postgres::StoredRetry& stored) {
  return {{"handler", stored.handler},
          {"number", stored.number},
          {"topic", stored.topic},
          {"partition", stored.partition},
          {"offset", stored.offset},
          {"attempts", stored.attempts},
          {"due_at", iso_or_null(stored.due_at)},
          {"error", stored.error}};
}

Json brief(const postgres::DeadSummary& dead) {
  return {{"number", dead.number},
          {"handler", dead.handler},
          {"reason", dead.reason},
          {"died_at", iso(dead.died_at)},
          {"replayed_at", iso_or_null(dead.replayed_at)},
          {"replay_in_doubt", dead.replay_in_doubt}};
}

}  // namespace

Inspection inspect(postgres::Admin& admin, const MessageId& id, const std::optional<std::string>& handler) {
  postgres::DeadFilter filter;
  filter.id = id;
  filter.handler = handler;
  filter.with_replayed = true;
  postgres::RetryFilter stored;
  stored.id = id;
  stored.handler = handler;
  return {admin.inspect(id, handler), admin.claims(id, handler), admin.retries(stored, kMostHandlers),
          admin.dead(filter).letters};
}

Json to_json(const MessageId& id, const Inspection& inspection) {
  Json json{{"id", id.text()},
            {"seen", Json::array()},
            {"claims", Json::array()},
            {"stored", Json::array()},
            {"dead", Json::array()}};
  for (const auto& message : inspection.seen) json["seen"].push_back(to_json(message));
  for (const auto& claim : inspection.claims) json["claims"].push_back(to_json(claim));
  for (const auto& stored : inspection.stored) json["stored"].push_back(to_json(stored));
  for (const auto& letter : inspection.dead) json["dead"].push_back(brief(letter));
  return json;
}

}  // namespace turnstile::cli
