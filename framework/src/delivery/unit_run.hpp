#pragma once
// One pass of a TopicRunner over one unit of work.

#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "delivery/topic_runner.hpp"
#include "message/request_headers.hpp"
#include "turnstile/error.hpp"

namespace turnstile {

class UnitRun {
 public:
  UnitRun(TopicRunner& runner, std::span<const Work> works, const Place& place, InboxSession* session, RunState& watch);

  void run_plain();
  void run_transactional();
  void run_leased();
  /// Mode leased, while the store is away and the topic fails open.
  void run_unclaimed();
  UnitResult finish();

 private:
  /// Places in `works_` that go through one transaction together, ascending.
  using Range = std::vector<std::size_t>;

  /// How one transaction over a range ended.
  struct Attempt {
    enum class End : std::uint8_t { committed, failed, busy, away, fenced, cancelled, broken };
    End end = End::committed;
    std::optional<std::size_t> culprit{};  ///< failed: place in the range, where it is known
    std::string why{};
    std::optional<Outcome> outcome{};  ///< failed: what the handler answered, where it did not throw
    std::optional<Death> death{};      ///< failed: it was not run, and never will be
    /// busy, away: when the handler's statements, or the commit, were under way; away: with the connection alone
    bool by_handler = false;
  };

  void identify(Range& todo);
  bool pass_over(std::size_t at);
  std::variant<MessageId, MissingId> id_of(std::size_t at);
  bool verify(Range& todo);
  void run_plainly(const Range& todo);
  std::vector<InboxEntry> entries_of(const Range& range) const;
  [[nodiscard]] InboxScope scope() const;
  void settle(Range range);
  /// A range that is to be tried, and how often it was split off because of a message that was known to have failed.
  struct Piece {
    Range range;
    int splits = 0;
  };
  [[nodiscard]] std::string describe(const Range& range) const;
  std::vector<Range> split(const Range& range, std::optional<std::size_t> culprit) const;
  void look_for_culprit(std::vector<Piece>& stack, const Piece& piece, const Attempt& failed);
  Attempt attempt(const Range& range);
  /// Fails with the first of the range that never will be run.
  Attempt refuse(const Range& range, const std::vector<std::size_t>& fresh);
  /// The first of these that may have taken effect and been forgotten.
  std::optional<std::size_t> too_old(const Range& range, const std::vector<std::size_t>& fresh);
  /// It was alone with its process as often as it may be, and each time the process died.
  [[nodiscard]] bool is_killer(std::size_t at) const;
  /// Continues "then …": how a dead message runs again.
  [[nodiscard]] std::string how_to_publish_again() const;
  [[nodiscard]] Death death_of_killer(std::size_t at) const;
  [[nodiscard]] Death death_of_age(std::size_t at) const;
  [[nodiscard]] Death death_of_session(std::size_t at) const;
  [[nodiscard]] Death death_of_forgery(std::size_t at) const;
  [[nodiscard]] Death death_of_window(std::size_t at) const;
  Attempt run_handlers(const Range& range, const std::vector<std::size_t>& fresh);
  Attempt run_one_by_one(const Range& range, const std::vector<std::size_t>& fresh);
  Attempt run_as_batch(const Range& range, const std::vector<std::size_t>& fresh);
  Attempt commit(const Range& range, const std::vector<std::size_t>& fresh);
  Attempt decide_doubt(const Range& range, const std::vector<std::size_t>& fresh, const std::string& why);
  template <class Call>
  Attempt guarded(std::optional<std::size_t> culprit, Call&& call);
  /// Calls the handler, for which `context` was made. `culprit`: who is to blame when it fails.
  Attempt handle(std::span<const Message> messages, Context& context, std::optional<std::size_t> culprit,
                 bool& skipped);
  Outcome invoke(std::span<const Message> messages, Context& context);
  /// After a handler failed: whether its transaction, where it has one, could go on.
  [[nodiscard]] Standing standing() const { return session_ ? session_->standing() : Standing::sound; }

  /// What a Context of this run gives to the outside, for one place in the range, or for all of a span handler's.
  class Outlet final : public Outgoing {
   public:
    Outlet(UnitRun& run, const Range& range, std::optional<std::size_t> k) : run_(run), range_(range), k_(k) {}
    void reply(const Message* to, std::string_view body) override;
    void publish(const OwnedMessage& message) override;

   private:
    [[nodiscard]] std::size_t place_of(const Message* to) const;
    UnitRun& run_;
    const Range& range_;
    const std::optional<std::size_t> k_;
  };
  /// The reply to a message, with its id; nothing when it asks for none.
  std::optional<std::pair<OwnedMessage, MessageId>> reply_record(std::size_t at, std::string_view body);
  void check_response(std::string_view body) const;
  void send_reply(std::size_t at, std::string_view body);
  void replay(const Range& range);

  // Mode leased (unit_leased.cpp).
  struct Leases;
  class Notes;
  bool claim(Leases& leases, const Range& range);
  std::vector<InboxEntry> entries_to_claim(const Range& range) const;
  [[nodiscard]] bool is_in_doubt(std::size_t at) const;
  void run_claimed(Leases& leases, const Range& range);
  bool begin(Leases& leases, const Range& range, std::size_t k);
  void run_handler(Leases& leases, const Range& range);
  bool is_over(Leases& leases);
  void give_back(Leases& leases, std::size_t at);
  std::optional<bool> is_too_old(std::size_t at);
  void not_claimed(Leases& leases, std::size_t at);
  void write_down(Leases& leases);
  void settle_repeats(Leases& leases);
  std::optional<std::vector<bool>> end_claims(Leases& leases, std::span<const ClaimEnd> ends);
  std::optional<std::vector<bool>> end_what_is_taken(Leases& leases, std::span<const ClaimEnd> ends,
                                                     const std::string& why);
  [[nodiscard]] bool may_be_late(std::span<const ClaimEnd> ends) const;
  void write_down_later(const Leases& leases, bool goes_on);
  void tell_of_refusal(const Leases& leases, std::size_t i) const;
  void settle_lost(const Leases& leases, std::size_t i);
  void answer_duplicates(const Range& duplicates);

  void committed(const Range& range);
  void settle_duplicate(std::size_t at);
  void failed_alone(std::size_t at, const Attempt& attempt);
  void bury(std::size_t at, const Death& death);
  /// It cannot become a dead letter now: its partition (or key) waits.
  void wait_to_bury(std::size_t at, const Death& death, const std::string& why, std::chrono::milliseconds delay);
  bool stops_for(std::size_t at, const Death& death);
  void note_what_went_well();
  void leave_dead(std::size_t at);
  void retry(std::size_t at, std::chrono::milliseconds delay, int attempt, const std::string& why);
  /// Busy in its handlers, or its connection lost: counts that, and makes a failure of it when it was so too often in a row.
  Attempt busy(const Range& range, Attempt attempt);
  [[nodiscard]] bool store_answers() const;
  void again_soon(const Range& range, const std::string& why, int tries = 0);
  void wait_for_store(const Range& range);
  /// An earlier message, in the scope that the topic's order gives, is not settled.
  [[nodiscard]] bool held(std::size_t at) const;
  void hold(std::size_t at) { holding_.push_back(at); }
  [[nodiscard]] const Message& message(std::size_t at) const { return *works_[at].message; }
  double chance();

  TopicRunner& runner_;
  const TopicPlan& plan_;
  std::span<const Work> works_;
  const Place& place_;
  InboxSession* session_;
  RunState& watch_;
  UnitResult result_;
  bool unclaimed_ = false;  ///< mode leased, and the store is away
  std::vector<std::optional<MessageId>> ids_;
  std::vector<StampedRequest> requests_;  ///< by place in works_, where producers number them
  std::vector<Admission> admissions_;     ///< of the last attempt, by place in its range
  std::vector<std::uint8_t> skipped_;     ///< of the last attempt, by place in its range
  std::vector<std::uint8_t> replied_;     ///< the same; empty while nobody has
  std::size_t published_ = 0;             ///< in the last attempt
  std::size_t handled_ = 0;               ///< messages whose handler was called in the last attempt
  std::optional<std::size_t>
      overdue_;         ///< place in the last attempt's range of one that ran for longer than handler_timeout
  int busy_tries_ = 0;  ///< in a row, of the last attempt's range
  std::vector<std::size_t> holding_;
  std::int64_t went_well_ = 0;  ///< messages, as of the last note
  std::chrono::steady_clock::time_point started_;
};

/// Turns what `call` throws into an end.
template <class Call>
UnitRun::Attempt UnitRun::guarded(std::optional<std::size_t> culprit, Call&& call) {
  try {
    return call();
  } catch (const Fenced& e) {
    return {.end = Attempt::End::fenced, .why = e.what()};
  } catch (const TransactionEnded& e) {
    return {.end = Attempt::End::broken, .why = e.what()};
  } catch (const StoreUnavailable& e) {
    return {.end = Attempt::End::away, .culprit = culprit, .why = e.what()};
  } catch (const StoreBusy& e) {
    return {.end = Attempt::End::busy, .culprit = culprit, .why = e.what()};
  } catch (const DeferredSqlError& e) {
    return {.end = Attempt::End::failed, .culprit = e.message_index, .why = e.what()};
  } catch (const std::exception& e) {
    return {.end = Attempt::End::failed, .culprit = culprit, .why = e.what()};
  } catch (...) {
    return {.end = Attempt::End::failed,
            .culprit = culprit,
            .why = "the handler threw something that is no std::exception; throw one, so that its message can be kept"};
  }
}

}  // namespace turnstile
