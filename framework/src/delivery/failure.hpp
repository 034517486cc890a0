#pragma once
// Why items failed. guarded() is the only place that turns exceptions into a Failure.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "delivery/dead_letters.hpp"
#include "delivery/unit.hpp"
#include "turnstile/error.hpp"
#include "turnstile/outcome.hpp"

namespace turnstile::detail {

struct Failure {
  enum class Kind : std::uint8_t {
    failed,
    busy,         ///< a concurrent transaction was in the way; the whole transaction may be repeated
    unavailable,  ///< the store does not answer
    fenced,       ///< another process owns the partition
    cancelled,    ///< the unit must stop: for example, its partition was revoked or its permit was lost
    broken,       ///< the handler ended the transaction of its batch
  };
  Kind kind = Kind::failed;
  UnitItem* culprit = nullptr;  ///< null: it is unknown which item is to blame
  std::string why{};
  std::optional<Outcome> outcome{};         ///< failed: the handler's outcome, if it did not throw
  std::optional<DeadLetter> dead_letter{};  ///< failed: the culprit did not run, and must never run
  /// busy, unavailable: the handler's statements or the commit caused it. unavailable: only this connection is
  /// affected.
  bool by_handler = false;
  int busy_tries = 0;       ///< by_handler: how often in a row
  bool breaks = false;      ///< it counts for the topic's circuit breaker, if the handler is to blame
  bool caught = false;      ///< the circuit breaker is not closed: it counts as no attempt
  std::size_t handled = 0;  ///< messages whose handler was called
};

/// An exception of a user's type can return no text.
inline std::string text_of(const std::exception& e) {
  const char* const text = e.what();
  return text != nullptr ? text : "the handler threw an exception whose what() returned a null pointer";
}

/// Runs `call`, and turns its exception into a Failure. Absent: `call` did not throw. `items`: the items of the open
/// transaction, in its order. `culprit`: the item to blame if the exception names none.
template <class Call>
std::optional<Failure> guarded(const Items& items, UnitItem* culprit, Call&& call) {
  using Kind = Failure::Kind;
  try {
    call();
    return std::nullopt;
  } catch (const Fenced& e) {
    return Failure{.kind = Kind::fenced, .why = text_of(e)};
  } catch (const TransactionEnded& e) {
    return Failure{.kind = Kind::broken, .why = text_of(e)};
  } catch (const StoreUnavailable& e) {
    return Failure{.kind = Kind::unavailable, .culprit = culprit, .why = text_of(e)};
  } catch (const StoreBusy& e) {
    return Failure{.kind = Kind::busy, .culprit = culprit, .why = text_of(e)};
  } catch (const DeferredSqlError& e) {
    UnitItem* const at = e.message_index < items.size() ? items[e.message_index] : nullptr;
    return Failure{.culprit = at, .why = text_of(e)};
  } catch (const std::exception& e) {
    return Failure{.culprit = culprit, .why = text_of(e)};
  } catch (...) {
    return Failure{
        .culprit = culprit,
        .why = "the handler threw something that is no std::exception; throw one, so that its message can be kept"};
  }
}
template <class Call>
std::optional<Failure> guarded(Call&& call) {
  return guarded({}, nullptr, std::forward<Call>(call));
}

}  // namespace turnstile::detail
