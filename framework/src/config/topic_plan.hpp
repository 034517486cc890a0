#pragma once
// The effective settings of a topic, from code, configuration and defaults. No member is optional, except where absence
// has a meaning. plan_topic() makes it once at the start, and all threads read it.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "message/message_id.hpp"
#include "turnstile/handler.hpp"
#include "turnstile/topic_settings.hpp"

namespace turnstile::detail {

/// The longest wait between two attempts. A stored retry has a due time that PostgreSQL must be able to represent, and
/// an operator wants to see it.
inline constexpr std::chrono::hours kLongestRetryDelay{24 * 3650};

struct TopicPlan {
  std::string topic{};
  std::string handler{};
  /// The only consumer group that may use the handler's name. Empty: any group may, because the configuration gives the
  /// name, or the group is unknown.
  std::string group{};
  Mode mode{};
  Order order{};
  std::string limiter{};  ///< empty: only the number of workers limits the topic
  std::int64_t limit = 0;
  IdSource id_source;
  RetryPolicy retry{};
  BreakPolicy breaks{};                      ///< with break_on()
  std::optional<std::string> dead_letter{};  ///< a topic's name, never ""
  std::int64_t stop_after_dead = 0;          ///< 0: never
  std::size_t batch = 0;
  DuplicatePolicy duplicates{};
  std::vector<std::string> reply_topics{};  ///< a request that names no reply topic is answered in the first of them
  std::size_t max_response = 0;             ///< bytes
  std::chrono::milliseconds lease{};
  UnknownPolicy unknown{};
  RunningPolicy while_running{};
  HorizonPolicy too_old{};
  StoreDownPolicy store_down{};
  std::int64_t request_window = 0;
  bool fingerprint = false;
  std::chrono::milliseconds handler_timeout{};

  /// Whether a record is identified by its place, not by its contents. What is stored for a topic then does not apply
  /// to another topic with the same name.
  [[nodiscard]] bool knows_by_offset() const noexcept { return numbers_records(mode) || id_source.is_offset(); }
};

/// One line for the user: handler, mode, ids, order, limit, retries, dead letters.
std::string describe(const TopicPlan& plan);
/// For the same line, of a topic with break_on().
std::string describe(const BreakPolicy& breaks);

/// `settings` must have passed check_topic(). Otherwise it throws ConfigError.
TopicPlan plan_topic(const std::string& topic, const TopicSettings& settings, const std::string& group = "");

}  // namespace turnstile::detail
