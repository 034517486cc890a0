#pragma once
// A unit: the messages that a worker runs together, the verdict of each, and the order that their topic guarantees.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "delivery/owned_partition.hpp"
#include "delivery/run_state.hpp"
#include "delivery/topic.hpp"
#include "delivery/unit_result.hpp"
#include "delivery/unit_trace.hpp"
#include "delivery/work.hpp"
#include "message/request_headers.hpp"
#include "turnstile/ports/claims.hpp"

namespace turnstile::detail {

/// One message while its unit runs.
struct UnitItem {
  explicit UnitItem(const Work& of) : work(&of) {}

  const Work* work;
  std::optional<MessageId> id{};                         ///< absent in a mode without ids
  StampedRequest request{};                              ///< only if producers number their messages
  ports::Admission admission = ports::Admission::fresh;  ///< the inbox's decision in its last transaction
  bool skipped = false;                                  ///< in the last run, its handler had nothing to do
  bool replied = false;                                  ///< in the last run, its handler replied
  std::optional<ports::RetryRef> back{};                 ///< it came back for this stored retry
  ports::RetryTurn turn = ports::RetryTurn::runs;        ///< the decision in its last transaction
  /// Its next attempt is stored by its last transaction. A delay of 0: it has not failed, and only waits for its key.
  struct Deferral {
    std::chrono::milliseconds delay;
    std::string why;
  };
  std::optional<Deferral> deferral{};
  ports::Claim claim{};   ///< mode leased
  bool begun = false;     ///< mode leased: the store has recorded that its handler may have begun
  bool recorded = false;  ///< mode leased: its result is recorded, or waits in PendingCompletions
  Verdict verdict{};
  const TraceContext* trace = nullptr;  ///< the span of its handler; null unless its trace is recorded

  [[nodiscard]] const Message& message() const { return *work->message; }
  [[nodiscard]] Offset offset() const { return work->message->offset(); }
  /// The number of the attempt that is about to start, or has failed. Earlier ones may be stored.
  [[nodiscard]] int attempt() const { return work->attempt + (back ? back->attempts : 0); }
};

/// Items of one unit, in the order of their offsets.
using Items = std::vector<UnitItem*>;

class Unit {
 public:
  /// `session`: null in a mode without a store. `way`: of its messages; that of the watch, unless it is one of several
  /// units of the worker.
  Unit(Topic& topic, std::span<const Work> works, const OwnedPartition& place, ports::InboxSession* session,
       RunState& watch, const RunState::Way& way);
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  [[nodiscard]] std::span<UnitItem> items() noexcept { return items_; }
  [[nodiscard]] Topic& topic() const noexcept { return topic_; }
  [[nodiscard]] const TopicPlan& plan() const noexcept { return topic_.plan; }
  [[nodiscard]] const TopicServices& services() const noexcept { return topic_.services; }
  [[nodiscard]] TopicMemory& memory() const noexcept { return topic_.memory; }
  [[nodiscard]] const OwnedPartition& place() const noexcept { return place_; }
  [[nodiscard]] ports::InboxSession& session() const noexcept { return *session_; }
  [[nodiscard]] RunState& watch() const noexcept { return watch_; }
  /// Null unless a trace of its messages is recorded.
  [[nodiscard]] UnitTrace* trace() const noexcept { return trace_.get(); }
  /// A handler is about to be called for this item alone. Returns the span of that call, or null.
  const TraceContext* begin_trace(UnitItem& item) const {
    return item.trace = trace_ ? trace_->begin_handler(item.message()) : nullptr;
  }
  /// No further handler of this unit may start: it was cancelled, or the circuit breaker is open.
  [[nodiscard]] bool is_over() const {
    return watch_.is_over() || (topic_.breaker && topic_.breaker->is_open(std::chrono::steady_clock::now()));
  }
  /// The scope of a transaction over items of this unit, for the inbox.
  [[nodiscard]] ports::InboxScope scope() const;
  [[nodiscard]] std::vector<ports::InboxEntry> entries(const Items& items) const;
  /// For log lines: "payments[3] offsets 7 to 9, handler charge".
  [[nodiscard]] std::string describe(const Items& items) const;

  /// Marks this item as not settled. Items that follow it in the topic's order wait.
  void block(const UnitItem& item) { blocking_.push_back(&item); }
  /// Whether an earlier item, in the topic's order, is not settled.
  [[nodiscard]] bool is_blocked(const UnitItem& item) const;
  void remove_blocked(Items& items) const;

  /// The unit's result, without the verdicts. The items hold their verdicts until finish().
  [[nodiscard]] UnitResult& result() noexcept { return result_; }
  void end(UnitResult::End how, const std::string& why);
  /// Ends the partition's streak of dead letters if a message has taken effect since the last call.
  void note_successes();
  /// Collects the verdicts, and reports the unit to the observers.
  UnitResult finish();

 private:
  Topic& topic_;
  const OwnedPartition& place_;
  ports::InboxSession* session_;
  RunState& watch_;
  std::vector<UnitItem> items_;
  std::vector<const UnitItem*> blocking_;
  UnitResult result_;
  std::unique_ptr<UnitTrace> trace_;
  std::int64_t successes_ = 0;  ///< as of the last note_successes()
  std::chrono::steady_clock::time_point started_;
};

}  // namespace turnstile::detail
