#pragma once
// The settings of a topic. A decorator can set each of them in code. The configuration (the file, then the environment)
// overrides the code, so that operators can change a setting without a build. A setting that nothing sets has its
// default, which `turnstile config explain` prints, and which docs/reference/configuration.md lists.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "turnstile/types.hpp"

namespace turnstile {

/// How often a failed message is retried, and after which delay. The delay before attempt n+1 is first * 2^(n-1), but
/// at most `cap`. A random part of up to half of it is subtracted (jitter), so that messages that failed together are
/// not retried together.
struct RetryPolicy {
  /// How often the handler may fail by itself before the message is dead-lettered; at least 1. A death of the process
  /// counts if the process ran nothing else. Runs that were rolled back because another message of the batch failed do
  /// not count.
  int attempts = 5;
  std::chrono::milliseconds first{100};  ///< before the second attempt
  /// The longest delay.
  std::chrono::milliseconds cap{30'000};
  /// Where the message waits. In the database it can wait for days, and survives its consumer.
  DurableRetry durable = DurableRetry::off;
  /// Compares all members.
  bool operator==(const RetryPolicy&) const = default;
};

/// The parts of a RetryPolicy that are set. The other parts come from the pipeline or, if it does not set them, from
/// the defaults.
struct RetrySettings {
  RetrySettings() = default;
  /// Sets all parts.
  RetrySettings(const RetryPolicy& all)  // NOLINT
      : attempts(all.attempts), first(all.first), cap(all.cap) {
    if (all.durable != DurableRetry::off) durable = all.durable;
  }
  std::optional<int> attempts{};                     ///< absent: not set here
  std::optional<std::chrono::milliseconds> first{},  ///< absent: not set here
      cap{};                                         ///< absent: not set here
  std::optional<DurableRetry> durable{};             ///< absent: not set here

  /// Overrides parts of `base` with these.
  [[nodiscard]] RetryPolicy over(const RetryPolicy& base) const {
    return {attempts.value_or(base.attempts), first.value_or(base.first), cap.value_or(base.cap),
            durable.value_or(base.durable)};
  }
  /// Compares all members.
  bool operator==(const RetrySettings&) const = default;
};

/// When the circuit breaker of break_on() opens, and for how long.
struct BreakPolicy {
  std::int64_t percent = 50;                   ///< opens when this part of the calls in the window failed
  std::int64_t least = 20;                     ///< and when there were this many calls
  std::chrono::milliseconds window{10'000};    ///< the time in which calls are counted
  std::chrono::milliseconds open_for{30'000};  ///< then probes run
};

/// How long ids are kept by default: one day longer than Kafka's default for records (retention.ms, 7 days). The extra
/// day is needed because the broker deletes whole segments, and groups lag (hazard: ids-outlive-topic).
inline constexpr std::chrono::seconds kKeepIdsByDefault = std::chrono::hours(8 * 24);

/// How long a record can stay in a topic. Kafka deletes whole segments, so a record stays until the youngest record of
/// its segment has outlived `retention`. That record can be younger by `segment`. Absent: forever (an argument is
/// max()), or unknown.
std::optional<std::chrono::milliseconds> longest_stay(std::optional<std::chrono::milliseconds> retention,
                                                      std::optional<std::chrono::milliseconds> segment);
/// How long ids are kept by default: one day longer than longest_stay(), and at least kKeepIdsByDefault. Absent:
/// forever.
std::optional<std::chrono::seconds> keep_ids_by_default(std::optional<std::chrono::milliseconds> retention,
                                                        std::optional<std::chrono::milliseconds> segment);

/// The settings of a topic. An absent member is not set here.
struct TopicSettings {
  std::optional<std::string> handler;  ///< the scope of ids; default: the topic's name
  std::optional<Mode> mode;    ///< default at_least_once; transactional(), leased(), by_offset() and numbered() set it
  std::optional<Order> order;  ///< default partition
  std::optional<std::string> limiter;  ///< name of the limit; default: the topic's name
  std::optional<std::int64_t> limit;   ///< handlers that run at once; default: only the number of workers limits them
  /// header:NAME | key | json:/pointer | cloudevents | offset. Default: header:message-id. Modes by_offset
  /// and numbered keep no ids.
  std::optional<std::string> message_id;
  /// Mode numbered: the number of requests in the window. Default 1,024.
  std::optional<std::int64_t> request_window;
  /// Must exceed the topic's retention. Default: see keep_ids_by_default().
  std::optional<std::chrono::seconds> keep_ids_for;
  std::optional<std::chrono::milliseconds> handler_timeout;  ///< after it the stop_token is set; default 30 s
  std::optional<std::int64_t> break_percent;                 ///< BreakPolicy::percent, with break_on(); default 50
  std::optional<std::int64_t> break_least;                   ///< BreakPolicy::least, with break_on(); default 20
  std::optional<std::chrono::milliseconds> break_window;     ///< BreakPolicy::window, with break_on(); default 10 s
  std::optional<std::chrono::milliseconds> break_for;        ///< BreakPolicy::open_for, with break_on(); default 30 s
  std::optional<RetrySettings> retry;                        ///< default: 5 attempts, 100 ms doubling to 30 s
  /// "" means "<topic>.dlq". Not set: a failing message is retried forever.
  std::optional<std::string> dead_letter;
  /// The partition stops after this number of consecutive dead letters with the same reason. 0: never. Default: 100.
  std::optional<std::int64_t> stop_after_dead;
  /// The largest number of messages in a transaction, or in a turn of a worker. Default: 500.
  std::optional<std::int64_t> batch;
  std::optional<DuplicatePolicy> duplicates;  ///< default skip
  /// Topics that replies may go to, separated by commas. Not set: responses are only stored.
  std::optional<std::string> reply_topics;
  std::optional<std::int64_t> max_response;  ///< of a response, in bytes; default 64 KiB
  /// Mode leased: the lease of a claim. It is renewed while the handler runs. Default: 30 s.
  std::optional<std::chrono::milliseconds> lease;
  std::optional<UnknownPolicy> unknown;        ///< mode leased; default park
  std::optional<RunningPolicy> while_running;  ///< mode leased; default wait
  std::optional<HorizonPolicy> too_old;        ///< older than the stored ids; default park
  std::optional<StoreDownPolicy> store_down;   ///< mode leased; default wait
  /// Stores a hash of the payload, and parks a message whose id has taken effect with another payload. Default:
  /// off.
  std::optional<bool> fingerprint;
};

/// The dead letter topic of `topic`. Absent: it has none.
std::optional<std::string> dead_letter_name(const std::string& topic, const TopicSettings& settings);

/// The topics that replies may go to, in the order of `reply_topics`. The first is used for a message that names none.
std::vector<std::string> reply_topic_names(const TopicSettings& settings);

/// Overrides fields of `base` with those that are set in `over`.
TopicSettings merge(const TopicSettings& base, const TopicSettings& over);

}  // namespace turnstile
