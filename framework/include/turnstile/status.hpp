#pragma once
// The state of a consumer at one moment, with numbers: for metrics, for the admin endpoint, and for programs that
// monitor themselves. Plain values, copied for each call.
//
// What only Kafka or PostgreSQL knows is asked for at intervals, on a thread of its own, so it may be some seconds old.
// These fields are absent until the first answer, and while there is none.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "turnstile/health.hpp"
#include "turnstile/message.hpp"
#include "turnstile/ports/claims.hpp"
#include "turnstile/ports/limiter.hpp"
#include "turnstile/ports/outbox.hpp"
#include "turnstile/ports/pauses.hpp"
#include "turnstile/tracer.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

/// A partition that this process owns.
struct PartitionStatus {
  /// What the process may do with it.
  enum class State : std::uint8_t {
    claiming,  ///< it is not claimed in the database yet: nothing runs
    running,   ///< its messages run
    draining,  ///< nothing new starts
    fenced,    ///< the database knows a newer owner: nothing runs
  };
  TopicPartition at;             ///< the partition
  State state = State::running;  ///< what the process may do with it
  /// Up to which offset all messages are settled. Absent: reading has not begun.
  std::optional<Offset> position{};
  /// The offset after the last record, also if a producer's open transaction hides that from consumers. Asked of Kafka
  /// every 5 s. While Kafka does not tell, it is the last known one.
  std::optional<Offset> end{};
  /// The age of the oldest message that was read and is not settled, by its timestamp; 0 if there is none and `end` is
  /// reached. Absent: unknown, because nothing of the lag was read yet.
  std::optional<std::chrono::milliseconds> behind{};
  std::int64_t in_flight = 0;  ///< messages that were read and are not settled
  std::int64_t running = 0;    ///< of these, those that a worker has
  std::int64_t retrying = 0;   ///< of these, those that wait for their next attempt
  /// Whether an operator has paused it, or its topic. Paused keys are only in Status::pauses.
  bool paused = false;

  /// How many offsets lie between `position` and `end`; 0 at least. Absent if one of them is. Offsets without a
  /// record (markers of transactions, compacted records) count.
  [[nodiscard]] std::optional<std::int64_t> lag() const noexcept;
};
/// "claiming", "running", …
std::string_view to_text(PartitionStatus::State state);

/// A handler that runs now.
struct RunningHandler {
  TopicPartition at;                  ///< the partition of its message
  Offset offset = 0;                  ///< of its message; of a batch: of the first message
  std::string handler;                ///< the handler's name
  std::chrono::milliseconds took{0};  ///< how long it has been running
};

/// A limit, as this process sees it.
struct LimiterStatus {
  std::string name;           ///< the limiter's name
  ports::LimiterState state;  ///< its permits
};

/// A thread that must go round and round.
struct ThreadStatus {
  std::string name;                            ///< "polling", "token log"
  std::chrono::milliseconds quiet{0};          ///< since it began its current round
  std::chrono::milliseconds longest_round{0};  ///< how long a round may take by the settings
};

/// The ids that a handler has stored.
struct StoredIds {
  std::string handler;                           ///< the handler's name
  std::optional<std::chrono::seconds> kept_for;  ///< absent: forever
  /// Ids stored before this time may be deleted. Absent: all ids are still stored. It may be ten minutes old.
  std::optional<Timestamp> all_since;
};

/// The circuit breaker of a topic with break_on().
struct BreakerStatus {
  std::string topic;     ///< the topic
  bool is_open = false;  ///< no handler starts, except for probes
  /// Open: until probes may run. 0: they run now.
  std::chrono::milliseconds left{0};
};

/// The state of a consumer.
struct Status {
  Health health;  ///< as of Consumer::health()
  /// Whether the group has given it an assignment, perhaps an empty one, and has not taken its membership since.
  bool in_group = false;
  /// How long ago Kafka last answered what the group's offsets are. It is asked every 5 s. Absent: it answered the last
  /// time, or was not asked. Kafka ends a membership whose member it does not hear for session.timeout.ms.
  std::optional<std::chrono::milliseconds> kafka_silent{};
  std::vector<ThreadStatus> threads;        ///< while it runs
  std::vector<PartitionStatus> partitions;  ///< those that it owns
  std::vector<RunningHandler> running;      ///< at most one for each worker
  std::vector<LimiterStatus> limiters;      ///< those of its topics, in the order of their names
  std::vector<ports::Pause> pauses;         ///< those of its topics that are in effect
  std::vector<BreakerStatus> breakers;      ///< those of its topics
  /// Absent: its limits need no token log.
  std::optional<ports::TokenLogState> token_log{};
  /// Whether PostgreSQL could be used when it was used last, by a handler or for this status. Absent: no topic needs it.
  std::optional<bool> store_available{};
  std::optional<SpanCounts> spans{};         ///< absent: there is no tracer, or it does not count
  std::vector<StoredIds> ids{};              ///< of the handlers that store ids
  std::optional<ports::OutboxLag> outbox{};  ///< of the whole database. Asked for every 10 s
  std::optional<ports::ClaimCounts>
      claims{};  ///< of the whole database. Asked for every 10 s; absent without mode leased
};

}  // namespace turnstile
