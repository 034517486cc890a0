#include "turnstile/settings.hpp"

#include <algorithm>

#include "message/reply.hpp"

namespace turnstile {
namespace {

template <class T>
void take(std::optional<T>& into, const std::optional<T>& over) {
  if (over) into = over;
}

}  // namespace

std::optional<std::string> dead_letter_name(const std::string& topic, const TopicSettings& settings) {
  return settings.dead_letter && settings.dead_letter->empty() ? topic + ".dlq" : settings.dead_letter;
}

std::vector<std::string> reply_topic_names(const TopicSettings& settings) {
  return split_names(settings.reply_topics.value_or(""));
}

std::optional<std::chrono::milliseconds> longest_stay(std::optional<std::chrono::milliseconds> retention,
                                                      std::optional<std::chrono::milliseconds> segment) {
  using std::chrono::hours;
  // More is nothing that a person means; keeps sums in range.
  constexpr std::chrono::milliseconds longest = hours(24 * 365 * 50);
  const auto gathered = segment.value_or(hours(24 * 7));  // Kafka's default
  if (!retention || *retention > longest || gathered > longest) return std::nullopt;
  return *retention + gathered;
}

std::optional<std::chrono::seconds> keep_ids_by_default(std::optional<std::chrono::milliseconds> retention,
                                                        std::optional<std::chrono::milliseconds> segment) {
  const auto stay = longest_stay(retention, segment);
  if (!stay) return std::nullopt;
  return std::max(kKeepIdsByDefault, std::chrono::ceil<std::chrono::seconds>(*stay) + std::chrono::hours(24));
}

TopicSettings merge(const TopicSettings& base, const TopicSettings& over) {
  TopicSettings merged = base;
  take(merged.handler, over.handler);
  take(merged.mode, over.mode);
  take(merged.order, over.order);
  take(merged.limiter, over.limiter);
  take(merged.limit, over.limit);
  take(merged.message_id, over.message_id);
  take(merged.keep_ids_for, over.keep_ids_for);
  take(merged.handler_timeout, over.handler_timeout);
  if (over.retry) {
    RetrySettings& retry = merged.retry ? *merged.retry : merged.retry.emplace();
    take(retry.attempts, over.retry->attempts);
    take(retry.first, over.retry->first);
    take(retry.cap, over.retry->cap);
  }
  take(merged.dead_letter, over.dead_letter);
  take(merged.stop_after_dead, over.stop_after_dead);
  take(merged.batch, over.batch);
  take(merged.duplicates, over.duplicates);
  take(merged.reply_topics, over.reply_topics);
  take(merged.max_response, over.max_response);
  take(merged.lease, over.lease);
  take(merged.unknown, over.unknown);
  take(merged.while_running, over.while_running);
  take(merged.request_window, over.request_window);
  take(merged.too_old, over.too_old);
  take(merged.store_down, over.store_down);
  take(merged.fingerprint, over.fingerprint);
  return merged;
}

}  // namespace turnstile
