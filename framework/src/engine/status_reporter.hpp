#pragma once
// Asks Kafka and PostgreSQL for the parts of a consumer's state that only they know, and tells the observers the state
// once a second. It has a thread of its own, because these calls may hang. The watchdog always needs the ends of the
// partitions: without them it cannot tell a quiet partition from one whose records do not arrive.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/partition_end.hpp"
#include "support/observers.hpp"
#include "support/periodic_thread.hpp"
#include "support/status_board.hpp"
#include "turnstile/ports/broker.hpp"
#include "turnstile/ports/store.hpp"

namespace turnstile::detail {

class StatusReporter {
  using SteadyClock = std::chrono::steady_clock;

 public:
  struct Settings {
    Observers observers{};  ///< without any, it asks only for the ends, unless the board wants all
    /// Told of the ends of the partitions each time after Kafka was asked. May be empty.
    std::function<void(const PartitionEnds&)> on_ends{};
    std::shared_ptr<ports::Store> store{};         ///< null: no topic uses it
    bool counts_claims = false;                    ///< whether a topic has mode leased
    std::vector<TopicPartition> asked_of_group{};  ///< the group's coordinator is asked for their offsets
    std::chrono::milliseconds longest_round{0};    ///< of the polling thread, by the settings
    std::chrono::milliseconds tell_every{1'000};
    std::chrono::milliseconds ask_kafka_every{5'000};
    std::chrono::milliseconds ask_store_every{10'000};
  };
  /// `board` must outlive the thread, and `consumer` must live until leave_kafka().
  StatusReporter(Settings settings, const StatusBoard& board, ports::BrokerConsumer& consumer);
  ~StatusReporter() = default;
  StatusReporter(const StatusReporter&) = delete;
  StatusReporter& operator=(const StatusReporter&) = delete;

  // --- polling thread
  /// A round begins.
  void polls() noexcept { polled_at_.store(SteadyClock::now(), std::memory_order_relaxed); }
  /// Partitions are revoked. `lost`: the group has given this member up.
  void revokes(bool lost);
  /// Partitions were assigned and claimed, or wait for a late claim. It owns this many now.
  void assigned(std::size_t partitions);

  // --- any thread
  /// Adds what was learned.
  void add_to(Status& status) const;
  /// No call of `consumer` begins any more. Waits for one that is in progress. The observers are still told.
  void leave_kafka();
  /// Waits for a call of Kafka or PostgreSQL that is in progress.
  void stop() { thread_.stop(); }

 private:
  void step();
  void ask_kafka(const std::vector<TopicPartition>& partitions, bool about_group);
  [[nodiscard]] PartitionEnds ends_of(const std::vector<TopicPartition>& partitions);
  [[nodiscard]] bool coordinator_answers() const;
  void ask_store();

  const Settings settings_;
  const StatusBoard& board_;
  std::mutex asking_;  ///< protects the pointer, and is held during its calls
  ports::BrokerConsumer* consumer_;
  std::atomic<SteadyClock::time_point> polled_at_{SteadyClock::now()};
  std::atomic<bool> in_group_{false};
  /// Used only by the polling thread: since when its partitions stand still.
  std::optional<SteadyClock::time_point> stands_since_ = SteadyClock::now();
  // Used only by the thread:
  PeriodicThread::Time ask_kafka_at_{}, ask_store_at_{};
  std::vector<TopicPartition> asked_;  ///< of Kafka, the last time

  mutable std::mutex mutex_;  ///< protects the following members
  PartitionEnds ends_;
  SteadyClock::time_point answered_at_ = SteadyClock::now();  ///< by the group's coordinator
  bool coordinator_is_silent_ = false;
  bool store_is_silent_ = false;
  std::optional<ports::OutboxLag> outbox_;
  std::optional<ports::ClaimCounts> claims_;
  PeriodicThread thread_;
};

}  // namespace turnstile::detail
