#pragma once
// The lines of a topic's table `retry`. They are members of an optional struct, so they are lines of their own, not
// codecs.

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "config/codec.hpp"
#include "config/settings_table.hpp"
#include "config/topic_plan.hpp"

namespace turnstile::detail::setting {

struct Backoff {
  using Value = std::pair<std::chrono::milliseconds, std::chrono::milliseconds>;
  static Problem read(const ConfigValue& value, Value& into) {
    if (auto problem = read_range(value, into.first, into.second)) return problem;
    if (into.second > kLongestRetryDelay)
      return "has a longest wait of " + to_text(into.second) + ", but the longest one is " +
             to_text(kLongestRetryDelay);
    return std::nullopt;
  }
  static std::string write(const Value& value) {
    return codec::toml_text(to_text(value.first) + ".." + to_text(value.second));
  }
  static std::string form() { return "two durations"; }
};

inline RetrySettings& retry_of(TopicSettings& settings) {
  return settings.retry ? *settings.retry : settings.retry.emplace();
}

struct Attempts {
  static Problem read(const ConfigValue& value, TopicSettings& into) {
    std::int64_t attempts = 0;
    if (auto problem = turnstile::detail::read(value, 1, std::numeric_limits<int>::max(), attempts)) return problem;
    retry_of(into).attempts = static_cast<int>(attempts);
    return std::nullopt;
  }
  static std::optional<std::string> write(const TopicSettings& from) {
    if (!from.retry || !from.retry->attempts) return std::nullopt;
    return std::to_string(*from.retry->attempts);
  }
  static void take(TopicSettings& into, const TopicSettings& over) {
    if (over.retry && over.retry->attempts) retry_of(into).attempts = over.retry->attempts;
  }
  static std::string form() { return "number from 1"; }
};

inline constexpr std::array<std::pair<std::string_view, DurableRetry>, 3> kDurable{
    {{"off", DurableRetry::off},
     {"wait", DurableRetry::later_messages_wait},
     {"pass", DurableRetry::later_messages_pass}}};
struct DurableLine {
  using Word = codec::Choice<kDurable>;
  static Problem read(const ConfigValue& value, TopicSettings& into) {
    DurableRetry durable{};
    if (auto problem = Word::read(value, durable)) return problem;
    retry_of(into).durable = durable;
    return std::nullopt;
  }
  static std::optional<std::string> write(const TopicSettings& from) {
    if (!from.retry || !from.retry->durable) return std::nullopt;
    return Word::write(*from.retry->durable);
  }
  static void take(TopicSettings& into, const TopicSettings& over) {
    if (over.retry && over.retry->durable) retry_of(into).durable = over.retry->durable;
  }
};

struct BackoffLine {
  static Problem read(const ConfigValue& value, TopicSettings& into) {
    Backoff::Value range;
    if (auto problem = Backoff::read(value, range)) return problem;
    RetrySettings& retry = retry_of(into);
    retry.first = range.first;
    retry.cap = range.second;
    return std::nullopt;
  }
  static std::optional<std::string> write(const TopicSettings& from) {
    if (!from.retry || !from.retry->first || !from.retry->cap) return std::nullopt;
    return Backoff::write({*from.retry->first, *from.retry->cap});
  }
  static void take(TopicSettings& into, const TopicSettings& over) {
    if (!over.retry || (!over.retry->first && !over.retry->cap)) return;
    RetrySettings& retry = retry_of(into);
    if (over.retry->first) retry.first = over.retry->first;
    if (over.retry->cap) retry.cap = over.retry->cap;
  }
};

}  // namespace turnstile::detail::setting
