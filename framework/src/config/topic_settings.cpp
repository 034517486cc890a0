#include "turnstile/topic_settings.hpp"

#include <algorithm>

#include "config/settings_table.hpp"
#include "message/reply.hpp"

namespace turnstile {

std::optional<std::string> dead_letter_name(const std::string& topic, const TopicSettings& settings) {
  return settings.dead_letter && settings.dead_letter->empty() ? topic + ".dlq" : settings.dead_letter;
}

std::vector<std::string> reply_topic_names(const TopicSettings& settings) {
  return detail::split_names(settings.reply_topics.value_or(""));
}

std::optional<std::chrono::milliseconds> longest_stay(std::optional<std::chrono::milliseconds> retention,
                                                      std::optional<std::chrono::milliseconds> segment) {
  using std::chrono::hours;
  // No useful setting is longer, and shorter ones cannot overflow a sum.
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
  for (const auto& setting : detail::topic_keys()) setting.take(merged, over);
  return merged;
}

}  // namespace turnstile
