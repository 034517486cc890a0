#pragma once
// Takes messages of one partition through inbox, handler and commit, and returns a verdict for each. It has no threads,
// queues or committed offsets: the engine, PollLoop and the tests all use it.
//
// The result is the same as if the messages ran one at a time. If a message of a batch fails, the batch is rolled back.
// The runner isolates the message, and runs the others again without it.

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "delivery/topic.hpp"
#include "delivery/unit_result.hpp"
#include "delivery/work.hpp"

namespace turnstile::detail {

class Unit;

class TopicRunner {
 public:
  using Services = TopicServices;

  TopicRunner(TopicPlan plan, Pipeline pipeline, HandlerId handler, Services services);

  /// Runs `works`, which are messages of the partition `place` in ascending order. `session`: null in a mode without a
  /// store. Does not throw for failures of the handler, the store and the broker. Thread-safe; each thread needs a
  /// session and a watch of its own. `alone`: the process runs nothing else at the same time.
  UnitResult run(std::span<const Work> works, const OwnedPartition& place, ports::InboxSession* session,
                 RunState& watch, bool alone = false);
  /// Messages of one partition.
  struct Share {
    std::span<const Work> works;
    const OwnedPartition& place;
    std::optional<std::chrono::steady_clock::time_point> received_at{};  ///< see RunState::Way
  };
  /// As run(), for messages of several partitions. They share a transaction, unless something fails. One result for each
  /// share. Only if can_share().
  std::vector<UnitResult> run_shared(std::span<const Share> shares, ports::InboxSession* session, RunState& watch);
  [[nodiscard]] bool can_share() const noexcept { return plan().mode == Mode::transactional; }
  /// Mode leased: runs `works` without claims while the store is unavailable.
  UnitResult run_unclaimed(std::span<const Work> works, const OwnedPartition& place, RunState& watch);
  /// Settles the messages whose ids are already in the inbox, and puts the others back. Needs no permit.
  UnitResult look_up(std::span<const Work> works, const OwnedPartition& place, ports::InboxSession& session);
  /// Finds the dead letters of a partition that was just claimed. `start`: the offset from which it is read; absent:
  /// unknown.
  void find_dead(OwnedPartition& place, std::optional<Offset> start) const {
    services().dead_letters->find(place, plan(), handler(), start.value_or(0));
  }
  /// Whether look_up() can settle anything. The topic must deduplicate, and must skip duplicates without comparing
  /// their payloads.
  [[nodiscard]] bool can_look_up() const noexcept;

  /// Why the dead letter of this message waits. Until it is stored, the message stops its partition. Absent: no dead
  /// letter of this message waits.
  [[nodiscard]] std::optional<std::string> why_dead_letter_waits(const OwnedPartition& place,
                                                                 const Message& message) const {
    return topic_.memory.why_dead_letter_waits(place, message);
  }

  /// Another log of this partition begins: what is remembered of single records was about the old log.
  void forget(const TopicPartition& at) { topic_.memory.forget(at); }

  [[nodiscard]] const TopicPlan& plan() const noexcept { return topic_.plan; }
  /// False: its handler takes many messages in one call.
  [[nodiscard]] bool runs_one_at_a_time() const noexcept { return topic_.pipeline.one_at_a_time; }
  /// Null without break_on().
  [[nodiscard]] HandlerBreaker* breaker() const noexcept { return topic_.breaker.get(); }
  [[nodiscard]] HandlerId handler() const noexcept { return topic_.handler; }
  [[nodiscard]] const Services& services() const noexcept { return topic_.services; }

 private:
  UnitResult run_recorded(std::span<const Work> works, const OwnedPartition& place, ports::InboxSession* session,
                          RunState& watch, bool alone);
  UnitResult run_mode(std::span<const Work> works, const OwnedPartition& place, ports::InboxSession* session,
                      RunState& watch);

  Topic topic_;
  void (*run_)(Unit&);  ///< the run function of the topic's mode
};

}  // namespace turnstile::detail
