#pragma once
// The consumer engine. The thread of run() polls Kafka. Workers run handlers, and an idle one also takes records
// (idle_workers.hpp). PartitionKeeper has two more threads: for late claims and watermarks, and for the watchdog.
//
//   take -> feed a lane -> worker takes a unit -> TopicRunner -> lane -> position -> commit

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/kafka_answers.hpp"
#include "engine/log_identity.hpp"
#include "engine/outlasting_trials.hpp"
#include "engine/partition_keeper.hpp"
#include "engine/scheduler.hpp"
#include "engine/status_reporter.hpp"
#include "turnstile/config.hpp"
#include "turnstile/ports/broker.hpp"
#include "turnstile/ports/limiter.hpp"

namespace turnstile::detail {

struct EngineSettings {
  ConsumerSettings consumer;
  std::string group;
  int workers = 4;
  std::chrono::milliseconds lock_timeout{5'000};
  std::shared_ptr<StatusBoard> status = std::make_shared<StatusBoard>();
};

class Engine final : private ports::AssignmentListener {
 public:
  Engine(EngineSettings settings, ports::Broker& broker, std::shared_ptr<ports::Store> store,
         std::shared_ptr<ports::Limiters> limiters, std::shared_ptr<const RunLog> run_log);
  ~Engine() override;

  TopicState& add_topic(std::unique_ptr<TopicState> topic);  ///< before run()
  /// Runs until `stop` is positive; 2 or more also ends the drain. Throws BrokerError, TransactionEnded, Halted.
  void run(const std::atomic<int>& stop);

 private:
  std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition> partitions) override;
  void on_revoked(std::span<const TopicPartition> partitions, bool lost) override;
  void on_commit_end(std::span<const TopicPartitionOffset> offsets, bool committed) override;
  void on_topic_change(const std::string& topic, bool exists) override;

  [[nodiscard]] TopicState* topic_of(const TopicPartition& at) const;
  void start_workers();
  std::string poll_until(const std::atomic<int>& stop, std::unique_lock<std::mutex>& turn);
  void receive();
  void feed_received() noexcept;
  void feed_all();
  void pass_gap(LaneState& lane);
  std::unique_ptr<ports::Block> take(const LanePtr& lane, std::size_t most);
  void commit(bool wait);
  void release(const std::vector<LanePtr>& lanes, bool lost);
  void shut_down();
  void end_pending_completions() const;
  [[nodiscard]] std::string why_halted() const;
  void halt(const std::string& why);
  void tell_of_waiting();
  void count_partitions(std::size_t now);
  void describe(Status& status) const;
  // How partitions are claimed (engine_claims.cpp).
  LanePtr open_claiming(TopicState& topic, OwnedPartition place, std::optional<LaneState::Before> before = {});
  void open_unfenced(const std::vector<LanePtr>& lanes);
  std::vector<TopicPartitionOffset> claim(const std::vector<LanePtr>& lanes);
  void tell_assigned(const LaneState& lane, Epoch epoch) const;
  enum class LateClaim : std::uint8_t {
    released,            ///< the lane is no longer ours
    first,               ///< of a lane that was never claimed
    again,               ///< of a fenced lane
    of_another_history,  ///< of a fenced lane, and the database has another history or a lower watermark
  };
  LateClaim look_at(LaneState& lane, const ports::PartitionClaim& claim) const;
  void take_late_claims();
  void take_late_claim(LanePtr lane, const ports::PartitionClaim& claim, KafkaAnswers& kafka);
  LanePtr begin_anew(const LanePtr& lane);
  void begin_again(LaneState& lane, OwnedPartition& place);
  // For logs that differ from the log that was read (engine_log_changes.cpp).
  void doubt(const LanePtr& lane);
  bool has_offset_now(const TopicPartition& at);
  void begin_other_logs();
  void look_for_other_logs();
  bool has_drained(const LanePtr& lane);
  void claim_other_log(const LanePtr& lane);
  void flush_drained(const LaneState& lane);
  [[nodiscard]] std::optional<Offset> settled_in_store(const LaneState& lane) const;
  bool begin_without_store(const LanePtr& lane, KafkaAnswers& kafka);
  LogIdentity::Known what_is_known(const TopicPartition& at, LogIdentity::Known in_store, KafkaAnswers& kafka);
  // What the group's offsets tell of the logs (engine_group_offsets.cpp).
  void forget_old_offsets();
  void look_for_recreated_topics();
  std::vector<std::optional<ports::GroupOffset>> look_at_offsets(const std::vector<TopicPartition>& asked,
                                                                 std::chrono::milliseconds wait);
  bool begin_missing_log(const TopicPartition& at, const Fence& fence, KafkaAnswers& kafka);
  std::vector<TopicPartitionOffset> still_there(std::vector<TopicPartitionOffset> positions, bool wait);
  [[nodiscard]] std::vector<TopicPartition> watched(const std::vector<LanePtr>& lanes) const;
  void leave_other_logs(const std::vector<LanePtr>& lanes, bool lost);
  [[nodiscard]] bool has_late_claim(const LanePtr& lane) const;
  struct Leaving;
  Leaving own_to_leave(const LanePtr& lane, bool lost);
  std::optional<Offset> leave(Leaving& one, KafkaAnswers& kafka);
  std::optional<Offset> act_on(const LogIdentity::Verdict& verdict, const TopicState& topic, OwnedPartition& place,
                               const LogIdentity::Known& known);
  Offset not_below(const TopicPartition& at, Offset start, const LogIdentity::Known& known);
  void guard(const std::vector<LanePtr>& lanes);
  void watch_over(OwnedPartition& place, const OwnedPartition& before, const ports::PartitionClaim& claim,
                  std::optional<Offset> start, KafkaAnswers& kafka);
  void give_up(const std::vector<LanePtr>& lanes);
  OwnedPartition place_of(LaneState& lane, ports::PartitionClaim claim, KafkaAnswers& kafka);
  std::optional<Offset> start_of(LaneState& lane, ports::PartitionClaim& claim, OwnedPartition& place,
                                 KafkaAnswers& kafka);
  void release_in_rebalance(const std::vector<LanePtr>& lanes, bool lost);
  void go_on_without_store(const std::vector<LanePtr>& lanes, KafkaAnswers& kafka);
  const EngineSettings settings_;
  std::shared_ptr<ports::Store> store_;
  std::shared_ptr<ports::Trials> trials_;  ///< null without a store
  std::shared_ptr<ports::Limiters> limiters_;
  std::shared_ptr<const RunLog> run_log_;
  /// Shared with the workers. They may outlive the engine if a handler never returns.
  struct Shared;
  std::shared_ptr<Shared> shared_;
  std::unique_ptr<PartitionKeeper> keeper_;
  std::unique_ptr<OutlastingTrials> outlasting_;  ///< null without a store
  std::vector<std::thread> workers_;
  const std::atomic<int>* stop_ = nullptr;
  SteadyTime next_commit_{};
  LeaseClock::time_point next_log_check_{};  ///< when to ask for the group's offsets of all partitions
  LogIdentity logs_;
  bool recreations_known_ = true;                  ///< Kafka has answered the last look_for_recreated_topics()
  std::map<TopicPartition, OwnedPartition> kept_;  ///< released in the current rebalance, see go_on_without_store()
  std::vector<LanePtr> other_logs_;                ///< lanes for which Kafka has another log
  SteadyTime next_other_logs_{};
  std::exception_ptr fatal_;        ///< nothing may continue: run() ends with it
  SteadyTime look_again_{};         ///< when to check again whether it can continue
  std::vector<std::string> names_;  ///< of the topics
  std::size_t partitions_ = 0;
  bool at_work_ = false;                      ///< true from the subscription to the shutdown
  std::optional<SteadyTime> waiting_since_;   ///< for partitions; absent: it has some, or has reported the wait
  std::unique_ptr<StatusReporter> reporter_;  ///< its thread uses consumer_, and ends before
  /// Last, so that it is destroyed first: its close() calls functions that need the other members.
  std::unique_ptr<ports::BrokerConsumer> consumer_;
};

}  // namespace turnstile::detail
