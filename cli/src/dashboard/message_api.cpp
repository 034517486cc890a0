// The history of a message id: what the tables know of it, and its records in Kafka.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <semaphore>

#include "../database.hpp"
#include "../dead_json.hpp"
#include "../inspection.hpp"
#include "../point.hpp"
#include "../settings.hpp"
#include "api.hpp"
#include "turnstile/kafka/record_reader.hpp"
#include "turnstile/record_ids.hpp"

namespace turnstile::cli::dashboard {

namespace {

using std::chrono::steady_clock;

/// A search through a topic ends then, and says so.
constexpr std::chrono::seconds kLongestSearch{20};
constexpr std::chrono::seconds kKafkaPatience{10};
constexpr std::size_t kMostFound = 200;

/// A search keeps a thread of the server for up to kLongestSearch, and the page needs some.
class SearchTurn {
 public:
  explicit SearchTurn(std::counting_semaphore<>& free) : free_(free) {
    if (!free_.try_acquire())
      throw Refusal(fmt::format("{} searches through topics are running already; search again when one has ended",
                                kMostSearches));
  }
  ~SearchTurn() { free_.release(); }
  SearchTurn(const SearchTurn&) = delete;
  SearchTurn& operator=(const SearchTurn&) = delete;

 private:
  std::counting_semaphore<>& free_;
};

MessageId id_of(const Query& query) {
  const auto text = query.text("id");
  if (!text) throw UsageError("id=ID is missing");
  return MessageId::from(*text);
}

std::string what_became_of(const Inspection& known, const TopicPartition& at, Offset offset,
                           const std::string& handler) {
  const auto is_here = [&](const auto& row) {
    return row.handler == handler && row.from.at == at && row.offset == offset;
  };
  for (const auto& letter : known.dead) {
    if (is_here(letter))
      return fmt::format("dead letter {} ({}){}", letter.number, letter.reason,
                         letter.replayed_at ? ", replayed " + when(*letter.replayed_at) : "");
  }
  const auto seen =
      std::find_if(known.seen.begin(), known.seen.end(), [&](const auto& row) { return row.handler == handler; });
  if (seen != known.seen.end() && is_here(*seen)) return "took effect " + when(seen->seen_at);
  if (seen != known.seen.end()) return "duplicate: the id took effect from another record";
  for (const auto& claim : known.claims) {
    if (is_here(claim)) return claim.state + " since " + when(claim.claimed_at);
  }
  for (const auto& stored : known.stored) {
    if (stored.handler == handler)
      return fmt::format("stored for attempt {}: see turnstile retries list", stored.attempts + 1);
  }
  return "no effect is recorded: it waits, or its id was deleted for its age";
}

}  // namespace

Json Api::message(const Query& query) const {
  const MessageId id = id_of(query);
  auto admin = open_admin(config_);
  const auto known = inspect(admin, id, std::nullopt);
  Json json = to_json(id, known);
  json["asked"] = *query.text("id");
  json["dead"] = Json::array();
  for (const auto& letter : known.dead) {
    Json one = to_json(letter);
    if (const auto whole = admin.load_dead(letter.number)) {
      one["edited"] = Json::array();
      for (const auto& edit : whole->edits)
        one["edited"].push_back({{"at", iso(edit.edited_at)}, {"by", edit.edited_by}});
    }
    json["dead"].push_back(std::move(one));
  }
  json["replies"] = Json::array();
  json["outbox"] = Json::array();
  const auto trail = admin.trail(id);
  for (const auto& reply : trail.replies) {
    json["replies"].push_back(
        {{"handler", reply.handler}, {"replied_at", iso(reply.replied_at)}, {"bytes", reply.bytes}});
  }
  for (const auto& record : trail.outbox) {
    json["outbox"].push_back({{"id", record.id.text()},
                              {"topic", record.topic},
                              {"state", record.state},
                              {"written_at", iso(record.written_at)},
                              {"due_at", iso_or_null(record.due_at)},
                              {"same_transaction", record.same_transaction}});
  }
  json["topics"] = admin.topics();
  return json;
}

Json Api::deliveries(const Query& query) {
  const MessageId id = id_of(query);
  const auto topic = query.text("topic");
  if (!topic) throw UsageError("topic=NAME is missing");
  std::optional<Timestamp> from;
  if (const auto since = query.text("since")) {
    from = std::chrono::floor<std::chrono::milliseconds>(parse_time("since", *since, top::utc()));
  }
  const auto settings = config_.topics.find(*topic);
  const RecordIds ids(*topic, settings == config_.topics.end() ? TopicSettings{} : settings->second, config_.group());
  const SearchTurn turn(searches_);
  auto admin = open_admin(config_);
  const auto known = inspect(admin, id, std::nullopt);
  kafka::RecordReader reader(require_kafka(config_), *topic, nullptr, kKafkaPatience);
  Json json{{"topic", *topic}, {"handler", ids.handler()}, {"read", 0}, {"complete", true}, {"records", Json::array()}};
  std::int64_t read = 0;
  const auto late = steady_clock::now() + kLongestSearch;
  for (const auto& range : reader.ranges(from, std::nullopt)) {
    if (range.begin >= range.end) continue;
    reader.read(range, [&](std::span<const Message> messages) {
      for (const Message& message : messages) {
        ++read;
        const auto found = ids.of(message, 0);
        const auto* own = std::get_if<MessageId>(&found);
        const bool is_other = std::holds_alternative<RecordIds::ForAnother>(found);
        if (own == nullptr || is_other || !(*own == id)) continue;
        json["records"].push_back(
            {{"partition", range.partition},
             {"offset", message.offset()},
             {"time", message.timestamp() == Timestamp{} ? Json(nullptr) : Json(iso(message.timestamp()))},
             {"fate", what_became_of(known, {*topic, range.partition}, message.offset(), ids.handler())}});
      }
      return json["records"].size() < kMostFound && steady_clock::now() < late;
    });
    if (json["records"].size() >= kMostFound || steady_clock::now() >= late) {
      json["complete"] = false;
      break;
    }
  }
  json["read"] = read;
  return json;
}

}  // namespace turnstile::cli::dashboard
