#pragma once
// A unit of work: the messages that a worker runs together, what becomes of each, and the order that their topic promises.

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "delivery/owned_partition.hpp"
#include "delivery/run_state.hpp"
#include "delivery/topic.hpp"
#include "delivery/unit_result.hpp"
#include "delivery/work.hpp"
#include "message/request_headers.hpp"
#include "turnstile/ports/claims.hpp"

namespace turnstile {

/// One message while its unit runs.
struct UnitItem {
  const Work* work = nullptr;
  std::optional<MessageId> id{};           ///< absent in a mode without ids
  StampedRequest request{};                ///< where producers number their requests
  Admission admission = Admission::fresh;  ///< by its last transaction
  bool skipped = false;                    ///< its handler, in the last run, had nothing to do
  bool replied = false;                    ///< its handler, in the last run, has replied
  Claim claim{};                           ///< mode leased
  bool begun = false;                      ///< mode leased: the store knows that its handler may have begun
  bool recorded = false;                   ///< mode leased: the store knows that it is done
  Verdict verdict{};

  [[nodiscard]] const Message& message() const { return *work->message; }
  [[nodiscard]] Offset offset() const { return work->message->offset(); }
};

/// Items of one unit, in the order of their offsets.
using Items = std::vector<UnitItem*>;

class Unit {
 public:
  /// `session`: null in a mode that has no store.
  Unit(Topic& topic, std::span<const Work> works, const OwnedPartition& place, InboxSession* session, RunState& watch);
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  [[nodiscard]] std::span<UnitItem> items() noexcept { return items_; }
  [[nodiscard]] Topic& topic() const noexcept { return topic_; }
  [[nodiscard]] const TopicPlan& plan() const noexcept { return topic_.plan; }
  [[nodiscard]] const TopicServices& services() const noexcept { return topic_.services; }
  [[nodiscard]] TopicMemory& memory() const noexcept { return topic_.memory; }
  [[nodiscard]] const OwnedPartition& place() const noexcept { return place_; }
  [[nodiscard]] InboxSession& session() const noexcept { return *session_; }
  [[nodiscard]] RunState& watch() const noexcept { return watch_; }
  /// What the inbox is told of a transaction over items of this unit.
  [[nodiscard]] InboxScope scope() const;
  [[nodiscard]] std::vector<InboxEntry> entries(const Items& items) const;
  /// For log lines: "payments[3] offsets 7 to 9, handler charge".
  [[nodiscard]] std::string describe(const Items& items) const;

  /// This item is not settled: what the topic's order puts behind it waits.
  void block(const UnitItem& item) { blocking_.push_back(&item); }
  /// An earlier item, in the topic's order, is not settled.
  [[nodiscard]] bool is_blocked(const UnitItem& item) const;
  void remove_blocked(Items& items) const;

  /// The unit's result but for the verdicts, which are with the items.
  [[nodiscard]] UnitResult& result() noexcept { return result_; }
  void end(UnitResult::End how, const std::string& why);
  /// Ends the partition's streak of dead letters when a message took effect since the last call.
  void note_successes();
  /// Reports to the observers.
  UnitResult finish();

 private:
  Topic& topic_;
  const OwnedPartition& place_;
  InboxSession* session_;
  RunState& watch_;
  std::vector<UnitItem> items_;
  std::vector<const UnitItem*> blocking_;
  UnitResult result_;
  std::int64_t successes_ = 0;  ///< as of the last note_successes()
  std::chrono::steady_clock::time_point started_;
};

}  // namespace turnstile
