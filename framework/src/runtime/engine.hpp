#pragma once
// The consumer engine. One thread (that of run()) owns the Kafka consumer; workers run handlers; one keeper thread looks
// after time: late claims, watermarks, the watchdog.
//
//   poll -> feed a lane -> worker takes a unit -> TopicRunner -> lane -> position -> commit

#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/keeper.hpp"
#include "runtime/scheduler.hpp"
#include "turnstile/config.hpp"
#include "turnstile/ports/broker.hpp"
#include "turnstile/ports/limiter.hpp"

namespace turnstile {

struct EngineSettings {
  ConsumerSettings consumer;
  std::string group;
  int workers = 4;
  std::chrono::milliseconds lock_timeout{5'000};
};

class Engine final : private AssignmentListener {
 public:
  Engine(EngineSettings settings, Broker& broker, std::shared_ptr<InboxStore> store, std::shared_ptr<Limiters> limiters,
         std::shared_ptr<const Journal> journal);
  ~Engine() override;

  /// Before run().
  TopicState& add_topic(std::unique_ptr<TopicState> topic);
  /// Until `stop` is positive; 2 and more ends the drain as well. Throws BrokerError.
  void run(const std::atomic<int>& stop);

 private:
  std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition> partitions) override;
  void on_revoked(std::span<const TopicPartition> partitions, bool lost) override;

  [[nodiscard]] TopicState* topic_of(const TopicPartition& at) const;
  void start_workers();
  void feed_all();
  void commit(bool wait);
  void release(const std::vector<LanePtr>& lanes, bool lost);
  void shut_down();
  void take_late_claims();
  LanePtr begin_anew(const LanePtr& lane);
  void expect_same_handler(const LaneState& lane);
  Place place_of(LaneState& lane, const PartitionClaim& claim, std::chrono::milliseconds wait);
  std::optional<Offset> start_of(const LaneState& lane, const PartitionClaim& claim, Place& place,
                                 std::chrono::milliseconds wait);
  void mark_in_doubt(const LaneState& lane, const std::optional<Offset>& committed, Offset start, Place& place);

  const EngineSettings settings_;
  std::shared_ptr<InboxStore> store_;
  std::shared_ptr<Limiters> limiters_;
  std::shared_ptr<const Journal> journal_;
  std::unique_ptr<BrokerConsumer> consumer_;
  /// Shared with the workers, which may outlive the engine when a handler never returns.
  struct Shared;
  std::shared_ptr<Shared> shared_;
  std::unique_ptr<Keeper> keeper_;
  std::vector<std::thread> workers_;
  const std::atomic<int>* stop_ = nullptr;
  SteadyTime next_commit_{};
  std::exception_ptr fatal_;  ///< nothing may go on: run() ends with it
};

}  // namespace turnstile
