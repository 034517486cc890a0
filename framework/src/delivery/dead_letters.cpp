#include "delivery/dead_letters.hpp"

#include <array>
#include <limits>

#include "message/replay.hpp"
#include "support/failpoint.hpp"
#include "turnstile/error.hpp"

namespace turnstile::detail {

namespace {

constexpr std::string_view kPrefix = "turnstile-";

/// The longest text of header turnstile-error, in bytes. A longer text is cut off, because a stack trace of kilobytes
/// does not help a reader.
constexpr std::size_t kErrorBytes = 1000;

}  // namespace

OwnedMessage dead_letter_record(const Message& message, const TopicPlan& plan, const DeadLetter& letter) {
  OwnedMessage record = message.own();
  record.topic = plan.dead_letter.value_or("");
  record.partition = -1;
  // Kafka gives the record the present time. With the original time, the retention of the dead letter topic could
  // delete the record at once.
  record.timestamp = {};
  // If a dead letter fails again, its record names its first origin and its last place, each once.
  const auto first = first_origin(message);
  std::erase_if(record.headers, [](const Header& h) { return h.name.starts_with(kPrefix); });
  const std::array<std::pair<std::string_view, std::string>, 9> why{{
      {"turnstile-original-topic", std::string(message.topic())},
      {"turnstile-original-partition", std::to_string(message.partition())},
      {"turnstile-original-offset", std::to_string(message.offset())},
      {"turnstile-original-timestamp", std::to_string(message.timestamp().time_since_epoch().count())},
      {"turnstile-handler", plan.handler},
      {"turnstile-reason", std::string(to_text(letter.reason))},
      {"turnstile-error", letter.error.substr(0, kErrorBytes)},
      {"turnstile-attempts", std::to_string(letter.attempts)},
      {kDeaths, std::to_string(deaths_of(message) + 1)},
  }};
  for (const auto& [name, value] : why) record.headers.push_back({std::string(name), value});
  if (first) record.headers.push_back({std::string(kFirstOrigin), *first});
  return record;
}

void DeadLetters::find(OwnedPartition& place, const TopicPlan& plan, HandlerId handler, Offset first) const {
  if (!keeps_rows(place)) return;
  auto dead =
      store_->dead_between(handler, *place.fence, first, std::numeric_limits<Offset>::max(),
                           plan.id_source.is_offset() ? std::nullopt : std::optional(DeadReason::killed_process));
  place.dead = dead.empty() ? nullptr : std::make_shared<const std::set<Offset>>(std::move(dead));
}

bool DeadLetters::is_kept(const Message& message, const OwnedPartition& place, HandlerId handler) const {
  return keeps_rows(place) && !store_->dead_between(handler, *place.fence, message.offset(), message.offset()).empty();
}

DeadLetters::Kept DeadLetters::keep(const Message& message, const std::optional<MessageId>& id,
                                    const OwnedPartition& place, const TopicPlan& plan, HandlerId handler,
                                    const DeadLetter& letter, const std::optional<ports::RetryRef>& back) {
  const bool has_row = keeps_rows(place);
  TURNSTILE_FAILPOINT("before-dead-letter");
  std::optional<TopicPartitionOffset> where;
  const bool goes_round = deaths_of(message) >= kMostDeaths;
  if (goes_round && !has_row) {
    throw BrokerError(Code::dead_letter_refused,
                      "it has been a dead letter " + std::to_string(kMostDeaths) +
                          " times (header turnstile-deaths): do dead letter topics lead back to '" + plan.topic +
                          "'? End the circle, or have the handler answer done() to it");
  }
  if (plan.dead_letter && !goes_round) {
    if (!producer_) throw BrokerError(Code::api_misused, "no producer for dead letters of topic '" + plan.topic + "'");
    const auto sent = producer_->send(dead_letter_record(message, plan, letter));
    where = TopicPartitionOffset{{*plan.dead_letter, sent.partition}, sent.offset};
  }
  TURNSTILE_FAILPOINT("dead-letter-sent");
  if (has_row) {
    OwnedMessage record = message.own();
    std::erase_if(record.headers, [](const Header& header) { return header.name == kRetry; });
    store_->record_dead(ports::DeadMessage{.handler = handler,
                                           .fence = *place.fence,
                                           .record = std::move(record),
                                           .id = id,
                                           .reason = letter.reason,
                                           .error = letter.error,
                                           .attempts = letter.attempts,
                                           .dead_letter = where,
                                           .retry = back});
  }
  TURNSTILE_FAILPOINT("after-dead-letter");
  return where ? Kept::sent : goes_round ? Kept::went_round : Kept::parked;
}

}  // namespace turnstile::detail
