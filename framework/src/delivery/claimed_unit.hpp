#pragma once
// Mode leased: the claims of a unit, the results of its handlers, and their record in the store. A message is settled
// only after its result is recorded. Exception: with store_down = "run", a message can be settled while its result
// waits for the store.

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "delivery/lease_renewer.hpp"
#include "delivery/outgoing.hpp"
#include "delivery/unit.hpp"
#include "delivery/verdicts.hpp"
#include "turnstile/ids.hpp"

namespace turnstile::detail {

class ClaimedUnit {
 public:
  ClaimedUnit(Unit& unit, Verdicts& verdicts) : unit_(unit), verdicts_(verdicts) {}

  /// Claims the items, and starts to renew the claims. False: no item may run. The items have their verdicts, or the
  /// unit has ended.
  bool claim(const Items& items);
  /// Stops the renewal of the claims.
  void release() { hold_.reset(); }
  /// Records that the handler of `items[k]` is about to begin, and with it those of some of the next items (see
  /// TopicMemory::begun_together()). False: it could not be recorded, or the claim is lost.
  bool begin(const Items& items, std::size_t k);
  /// Whether the unit must start no further handler. Once true, it stays true: a later item must not overtake an item
  /// that was given back.
  [[nodiscard]] bool is_over();

  void give_back(UnitItem& item) { add_end(item, ports::ClaimEnd::Kind::given_back); }
  void failed(UnitItem& item, const std::string& why) { add_end(item, ports::ClaimEnd::Kind::failed).error = why; }
  void done(UnitItem& item, BufferedOutgoing::OfItem sent);

  /// Records the results, and settles the finished messages.
  void record();
  /// Whether a result has waited long enough and must be recorded now.
  [[nodiscard]] bool is_record_due() const;

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::vector<ports::InboxEntry> entries_to_claim(const Items& items) const;
  ports::ClaimEnd& add_end(UnitItem& item, ports::ClaimEnd::Kind kind);
  std::optional<std::vector<bool>> end_claims(std::span<const ports::ClaimEnd> ends);
  std::optional<std::vector<bool>> end_one_by_one(std::span<const ports::ClaimEnd> ends, const std::string& why);
  bool gives_up(const std::string& why);
  void rest(std::chrono::milliseconds pause) const;
  [[nodiscard]] bool may_be_recorded_later() const;
  void record_later(bool settles);
  void settle_lost(UnitItem& item, bool goes_on);
  void report_refusal(const UnitItem& item) const;
  [[nodiscard]] const std::string* refusal_of(const UnitItem& item) const;

  Unit& unit_;
  Verdicts& verdicts_;
  const MessageId owner_ = new_message_id();
  bool begun_by_claim_ = true;
  std::unique_ptr<LeaseRenewer::Hold> hold_;
  std::vector<ports::ClaimEnd> ends_;  ///< not recorded yet
  Items ended_;                        ///< the items of `ends_`, in the same order
  Clock::time_point oldest_end_;
  bool over_ = false;
  bool unrecorded_ = false;  ///< the store did not answer for too long
  /// Since when the store has not answered and the unit's end is awaited.
  std::optional<Clock::time_point> awaited_since_;
  std::shared_ptr<const PendingCompletions::Wait> waiting_;  ///< while the results are recorded
  std::map<MessageId, std::string> refused_;                 ///< results that the store permanently refuses, and why
};

/// Whether the message may have taken effect without a record in the database. Either it was settled before the
/// database went back to an earlier time, or its result could not be recorded.
[[nodiscard]] bool is_in_doubt(const Unit& unit, const UnitItem& item);

}  // namespace turnstile::detail
