#pragma once
// Takes messages of one partition through inbox, handler and commit, and returns a verdict for each. It knows nothing of
// threads, queues or offsets: the engine, the PollLoop and the tests all use it.
//
// The result equals that of one message at a time. When a message of a batch fails, the batch is rolled back, the message
// is isolated, and the others run again without it.

#include <optional>
#include <span>
#include <string>

#include "delivery/topic.hpp"
#include "delivery/unit_result.hpp"
#include "delivery/work.hpp"

namespace turnstile {

class Unit;

class TopicRunner {
 public:
  using Services = TopicServices;

  TopicRunner(TopicPlan plan, Pipeline pipeline, HandlerId handler, Services services);

  /// Runs `works` (of the partition `place`, ascending). `session` is null in a mode without a store. Failures of the
  /// handler, the store and the broker do not throw. Thread-safe, with one session and one watch for each thread.
  /// `alone`: the process runs nothing else at the same time.
  UnitResult run(std::span<const Work> works, const OwnedPartition& place, InboxSession* session, RunState& watch,
                 bool alone = false);
  /// Mode leased: the same while the store is unavailable. Nothing is claimed.
  UnitResult run_unclaimed(std::span<const Work> works, const OwnedPartition& place, RunState& watch);
  /// Settles those whose ids are in the inbox already, and puts the others back: needs no permit.
  UnitResult look_up(std::span<const Work> works, const OwnedPartition& place, InboxSession& session);
  /// For a partition that was just claimed. It is read from `start` on; absent: that is unknown.
  void find_dead(OwnedPartition& place, std::optional<Offset> start) const {
    services().dead_letters->find(place, plan(), handler(), start.value_or(0));
  }
  /// Whether look_up() can settle anything: the topic deduplicates, and skips duplicates without looking at them.
  [[nodiscard]] bool can_look_up() const noexcept;

  /// Why the dead letter of this message waits, so that the message holds its partition. Absent: the message is not dead.
  [[nodiscard]] std::optional<std::string> why_dead_letter_waits(const OwnedPartition& place,
                                                                 const Message& message) const {
    return topic_.memory.why_dead_letter_waits(place, message);
  }

  [[nodiscard]] const TopicPlan& plan() const noexcept { return topic_.plan; }
  [[nodiscard]] HandlerId handler() const noexcept { return topic_.handler; }
  [[nodiscard]] const Services& services() const noexcept { return topic_.services; }

 private:
  UnitResult run_recorded(std::span<const Work> works, const OwnedPartition& place, InboxSession* session,
                          RunState& watch, bool alone);
  UnitResult run_mode(std::span<const Work> works, const OwnedPartition& place, InboxSession* session, RunState& watch);

  Topic topic_;
  void (*run_)(Unit&);  ///< of the topic's mode
};

}  // namespace turnstile
