#pragma once
// Per-topic settings. Each may be set in code by a decorator, and overridden by the configuration (file, then
// environment), so that operators change them without a build. What nobody set takes the default given here.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "turnstile/types.hpp"

namespace turnstile {

/// How often, and how long between. The delay before attempt n+1 is first * 2^(n-1), at most `cap`, of which a random
/// half is taken off (jitter, so that what failed together does not come back together).
struct RetryPolicy {
  /// How often the message's handler may be started and fail by itself, at least 1; then it is a dead letter. A death of the process that
  /// ran nothing else counts. Runs that were rolled back because of another message of the batch do not.
  int attempts = 5;
  std::chrono::milliseconds first{100};  ///< before the second attempt
  /// The longest delay.
  std::chrono::milliseconds cap{30'000};
  /// Member by member.
  bool operator==(const RetryPolicy&) const = default;
};

/// The parts of a RetryPolicy that are set. The others are as another place sets them (the pipeline, for the configuration), or as the
/// default is.
struct RetrySettings {
  RetrySettings() = default;
  /// All parts are set.
  RetrySettings(const RetryPolicy& all) : attempts(all.attempts), first(all.first), cap(all.cap) {}  // NOLINT
  std::optional<int> attempts{};                     ///< nothing: not set here
  std::optional<std::chrono::milliseconds> first{},  ///< nothing: not set here
      cap{};                                         ///< nothing: not set here

  /// These parts over those of `base`.
  [[nodiscard]] RetryPolicy over(const RetryPolicy& base) const {
    return {attempts.value_or(base.attempts), first.value_or(base.first), cap.value_or(base.cap)};
  }
  /// Member by member.
  bool operator==(const RetrySettings&) const = default;
};

/// How long ids are kept when nothing says otherwise: a day longer than Kafka keeps records by default (retention.ms, 7 days),
/// because the broker deletes whole segments and a group lags (hazard: ids-outlive-topic).
inline constexpr std::chrono::seconds kKeepIdsByDefault = std::chrono::hours(8 * 24);

/// For how long a record can stay in a topic. Whole segments go, so one stays until the youngest of its segment, which may be
/// `segment` younger, has outlived `retention`. Nothing: for ever (one of them is max()), or nobody knows.
std::optional<std::chrono::milliseconds> longest_stay(std::optional<std::chrono::milliseconds> retention,
                                                      std::optional<std::chrono::milliseconds> segment);
/// How long ids are kept when nobody says how long: a day longer than that, and at least the above. Nothing: for ever.
std::optional<std::chrono::seconds> keep_ids_by_default(std::optional<std::chrono::milliseconds> retention,
                                                        std::optional<std::chrono::milliseconds> segment);

/// The settings of one topic; what is absent was not set here.
struct TopicSettings {
  std::optional<std::string> handler;  ///< the scope of ids; default: the topic's name
  std::optional<Mode> mode;    ///< default at_least_once; transactional(), leased(), by_offset() and numbered() set it
  std::optional<Order> order;  ///< default partition
  std::optional<std::string> limiter;  ///< name of the limit; default: the topic's name
  std::optional<std::int64_t> limit;   ///< handlers running at once; default: no limit but the workers
  std::optional<std::string>
      message_id;  ///< header:NAME | key | json:/pointer | cloudevents | offset; default header:message-id; not in modes by_offset and numbered
  std::optional<std::int64_t> request_window;  ///< mode numbered: how many numbers back are remembered; default 1,024
  std::optional<std::chrono::seconds> keep_ids_for;  ///< must exceed the topic's retention; see keep_ids_by_default()
  std::optional<std::chrono::milliseconds> handler_timeout;  ///< stop_token is set after it; default 30 s
  std::optional<RetrySettings> retry;                        ///< default: 5 attempts, 100 ms doubling to 30 s
  std::optional<std::string>
      dead_letter;  ///< topic; "" = "<topic>.dlq"; not set: a failing message is retried for ever
  /// So many dead letters in a row for the same reason, and nothing else between, and the partition stops; 0: never. Default 100
  std::optional<std::int64_t> stop_after_dead;
  std::optional<std::int64_t> batch;  ///< most messages in one transaction (or one turn of a worker); default 500
  std::optional<DuplicatePolicy> duplicates;  ///< default skip
  std::optional<std::string>
      reply_topics;  ///< where replies may go, separated by commas; not set: responses are only kept
  std::optional<std::int64_t> max_response;  ///< bytes of one response; default 64 KiB
  std::optional<std::chrono::milliseconds>
      lease;                             ///< of a claim, mode leased; renewed while the handler runs; default 30 s
  std::optional<UnknownPolicy> unknown;  ///< mode leased; default park
  std::optional<RunningPolicy> while_running;  ///< mode leased; default wait
  std::optional<HorizonPolicy> too_old;        ///< older than what is remembered; default park
  std::optional<StoreDownPolicy> store_down;   ///< mode leased; default wait
  std::optional<bool>
      fingerprint;  ///< keep a hash of the payload and park an id that comes with another body; default off
};

/// The topic of the dead letters of `topic`; nothing: they have none.
std::optional<std::string> dead_letter_name(const std::string& topic, const TopicSettings& settings);

/// Where replies may go, in the order of `reply_topics`: who names none is answered to the first.
std::vector<std::string> reply_topic_names(const TopicSettings& settings);

/// Fields that are set in `over` win.
TopicSettings merge(const TopicSettings& base, const TopicSettings& over);

}  // namespace turnstile
