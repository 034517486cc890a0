#pragma once
// Why items did not get through, and the one place where exceptions become that.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "delivery/dead_letters.hpp"
#include "delivery/unit.hpp"
#include "turnstile/error.hpp"
#include "turnstile/outcome.hpp"

namespace turnstile {

struct Failure {
  enum class Kind : std::uint8_t {
    failed,
    busy,         ///< a concurrent transaction was in the way: the whole may be tried again
    unavailable,  ///< the store does not answer
    fenced,       ///< another process owns the partition
    cancelled,    ///< the unit has lost its reason to run
    broken,       ///< the handler ended the transaction of its batch
  };
  Kind kind = Kind::failed;
  UnitItem* culprit = nullptr;  ///< null: it is not known which item is to blame
  std::string why{};
  std::optional<Outcome> outcome{};         ///< failed: the handler's answer, where it did not throw
  std::optional<DeadLetter> dead_letter{};  ///< failed: the culprit did not run, and never will
  /// busy, unavailable: it happened in the handler's statements, or in the commit; unavailable: to this connection alone
  bool by_handler = false;
  int busy_tries = 0;       ///< by_handler: how often in a row
  std::size_t handled = 0;  ///< messages whose handler had been called
};

/// Turns what `call` throws into a Failure; nothing: it did not throw. `items` are those of the open transaction, in its order.
template <class Call>
std::optional<Failure> guarded(const Items& items, UnitItem* culprit, Call&& call) {
  using Kind = Failure::Kind;
  try {
    call();
    return std::nullopt;
  } catch (const Fenced& e) {
    return Failure{.kind = Kind::fenced, .why = e.what()};
  } catch (const TransactionEnded& e) {
    return Failure{.kind = Kind::broken, .why = e.what()};
  } catch (const StoreUnavailable& e) {
    return Failure{.kind = Kind::unavailable, .culprit = culprit, .why = e.what()};
  } catch (const StoreBusy& e) {
    return Failure{.kind = Kind::busy, .culprit = culprit, .why = e.what()};
  } catch (const DeferredSqlError& e) {
    UnitItem* const at = e.message_index < items.size() ? items[e.message_index] : nullptr;
    return Failure{.culprit = at, .why = e.what()};
  } catch (const std::exception& e) {
    return Failure{.culprit = culprit, .why = e.what()};
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

}  // namespace turnstile
