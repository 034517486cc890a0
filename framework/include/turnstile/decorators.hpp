#pragma once
// The decorators. Each is a small value with `decorate(Pipeline&)`; write your own in the same way, or with around().
//
//   charge | transactional() | limit("psp", 64) | retry(exponential{100ms, 5}) | dead_letter()
//
// Policies (all but around and observe) say how the engine runs the handler, wherever they stand in the chain.
// around() wraps the call itself, inside the transaction; the last one named is the outermost.

#include <chrono>
#include <concepts>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "turnstile/handler.hpp"

namespace turnstile {

namespace detail {
/// A policy: a change to the pipeline's settings.
template <class Change>
struct Policy {
  Change change;
  void decorate(Pipeline& pipeline) const { change(pipeline.settings); }
};
template <class Change>
Policy(Change) -> Policy<Change>;
}  // namespace detail

/// Inbox row, the handler's SQL (ctx.tx(), ctx.defer()) and commit in one PostgreSQL transaction: exactly one effect.
inline auto transactional() {
  return detail::Policy{[](TopicSettings& s) { s.mode = Mode::transactional; }};
}

/// As transactional(), for records without ids. Offsets number the records. One row of the partition stores how far the
/// handler has come, and the handler's transaction moves it. Each record takes effect exactly once; a message that was
/// published twice is two records. Needs the order of the partition.
inline auto by_offset() {
  return detail::Policy{[](TopicSettings& s) { s.mode = Mode::by_offset; }};
}
/// As by_offset(), for producers that number what they send (NumberedSender). A message that was published twice takes
/// effect once. Each producer adds one row. `window`: how many numbers back are remembered, and how many responses that
/// were not acknowledged.
inline auto numbered(std::int64_t window = 1'024) {
  return detail::Policy{[window](TopicSettings& s) {
    s.mode = Mode::numbered;
    s.request_window = window;
  }};
}

/// For effects outside PostgreSQL. Turnstile claims the message, runs its handler outside of a transaction, and then
/// records the message as done. It renews the claim's lease while the handler runs. If the process dies in between, it
/// is unknown whether the effect happened, and the message is parked (see on_unknown). Pass ctx.idempotency_key() and
/// ctx.claim_fence() on, so that the other system can refuse copies and late calls.
inline auto leased(std::chrono::milliseconds lease = std::chrono::seconds(30)) {
  return detail::Policy{[lease](TopicSettings& s) {
    s.mode = Mode::leased;
    s.lease = lease;
  }};
}
/// leased(): what happens to a message whose process died while its handler ran.
inline auto on_unknown(UnknownPolicy policy) {
  return detail::Policy{[policy](TopicSettings& s) { s.unknown = policy; }};
}
/// What happens to a message that is older than the stored ids.
inline auto on_too_old(HorizonPolicy policy) {
  return detail::Policy{[policy](TopicSettings& s) { s.too_old = policy; }};
}
/// leased(): whether messages wait while PostgreSQL is unavailable, or run without a claim.
inline auto on_store_down(StoreDownPolicy policy) {
  return detail::Policy{[policy](TopicSettings& s) { s.store_down = policy; }};
}
/// leased(): what happens to a duplicate while the first message runs.
inline auto while_running(RunningPolicy policy) {
  return detail::Policy{[policy](TopicSettings& s) { s.while_running = policy; }};
}

/// At most `count` handlers run at once under this name. Topics with the same name share the limit.
inline auto limit(std::string name, std::int64_t count) {
  return detail::Policy{[name = std::move(name), count](TopicSettings& s) {
    s.limiter = name;
    s.limit = count;
  }};
}
/// The same, under the topic's name.
inline auto limit(std::int64_t count) {
  return detail::Policy{[count](TopicSettings& s) { s.limit = count; }};
}

/// Delays that double: first, twice that, and so on up to cap, each with jitter.
struct exponential {
  std::chrono::milliseconds first;        ///< before the second attempt
  int attempts;                           ///< how often the handler may be started and fail by itself, at least 1
  std::chrono::milliseconds cap{30'000};  ///< the longest delay
};
/// See retry().
struct retrying {
  /// As given to retry().
  RetryPolicy policy;
  /// For delays from minutes to days. A failed message is stored in PostgreSQL, by the transaction that settles it, and
  /// comes back through the same handler, with the same id, limit and fence. By default, later messages with its key
  /// wait behind it, so the order of the key is kept. With DurableRetry::later_messages_pass they overtake it. Messages
  /// without a key always do. Mode transactional only.
  [[nodiscard]] retrying durable(DurableRetry later = DurableRetry::later_messages_wait) const {
    retrying copy = *this;
    copy.policy.durable = later;
    return copy;
  }
  void decorate(Pipeline& pipeline) const { pipeline.settings.retry = policy; }  ///< see retry()
};
/// Runs failed messages again after growing delays, outside of the transaction. Other keys are not blocked.
inline retrying retry(exponential e) { return {{e.attempts, e.first, e.cap}}; }

/// When the circuit breaker of break_on() opens. The configuration overrides it.
struct breaking {
  std::optional<std::int64_t> percent{};                ///< of the calls that failed; default 50
  std::optional<std::int64_t> least{};                  ///< calls before it may open; default 20
  std::optional<std::chrono::milliseconds> window{};    ///< in which calls are counted; default 10 s
  std::optional<std::chrono::milliseconds> open_for{};  ///< until probes run; default 30 s
};
namespace detail {
template <class Counts>
struct BreakOn {
  Counts counts;
  breaking when;
  void decorate(Pipeline& pipeline) const {
    pipeline.breaks_on = counts;
    TopicSettings& s = pipeline.settings;
    if (when.percent) s.break_percent = when.percent;
    if (when.least) s.break_least = when.least;
    if (when.window) s.break_window = when.window;
    if (when.open_for) s.break_for = when.open_for;
  }
};
template <class E>
bool is_of(const std::exception_ptr& thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const E&) {
    return true;
  } catch (...) {
  }
  return false;
}
}  // namespace detail

/// A circuit breaker for the service that the handler calls. When too many calls of the handler fail, the topic pauses in
/// all processes of the consumer group. Then single messages run as probes, until the service answers again. A failure
/// while the breaker is not closed counts as no attempt, and dead-letters nothing. Without types, every failure counts;
/// with types, only exceptions of these types. In a Consumer only.
template <class... E>
auto break_on(breaking when = {}) {
  const auto counts = []([[maybe_unused]] const std::exception_ptr& thrown) {
    if constexpr (sizeof...(E) == 0) return true;
    else return (detail::is_of<E>(thrown) || ...);
  };
  return detail::BreakOn<decltype(counts)>{counts, when};
}
/// The same for exceptions for which `counts` returns true.
template <class Predicate>
  requires std::is_invocable_r_v<bool, const Predicate&, const std::exception&>
auto break_on(Predicate counts, breaking when = {}) {
  const auto counts_thrown = [counts = std::move(counts)](const std::exception_ptr& thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const std::exception& e) {
      return static_cast<bool>(counts(e));
    } catch (...) {
    }
    return false;
  };
  return detail::BreakOn<decltype(counts_thrown)>{counts_thrown, when};
}

/// Sends messages that failed permanently to this topic (default "<topic>.dlq"), with headers that name the reason.
inline auto dead_letter(std::string topic = {}) {
  return detail::Policy{[topic = std::move(topic)](TopicSettings& s) { s.dead_letter = topic; }};
}
/// The partition stops after this many consecutive dead letters with the same reason. The cause is then probably not in
/// the messages, but for example a wrong message_id. 0: never.
inline auto stop_after_dead(std::int64_t in_a_row) {
  return detail::Policy{[in_a_row](TopicSettings& s) { s.stop_after_dead = in_a_row; }};
}

/// The scope of ids: a name that stays the same when the code is renamed.
inline auto handler_id(std::string name) {
  return detail::Policy{[name = std::move(name)](TopicSettings& s) { s.handler = name; }};
}
/// header:NAME | key | json:/pointer | cloudevents | offset. Modes by_offset and numbered keep no ids.
/// In JSON (json:, and structured CloudEvents) an id is a text that is not empty, or an integer. A number with a
/// fraction or an exponent (7.0, 1e3), a boolean, null, an object or a list is no id: the message becomes a dead letter
/// (missing_id).
inline auto id_from(std::string source) {
  return detail::Policy{[source = std::move(source)](TopicSettings& s) { s.message_id = source; }};
}
/// The order in which the messages of a partition run.
inline auto ordered_by(Order order) {
  return detail::Policy{[order](TopicSettings& s) { s.order = order; }};
}
/// The largest number of messages in a transaction. 1: a message never runs again because another message failed.
inline auto batch(std::int64_t most) {
  return detail::Policy{[most](TopicSettings& s) { s.batch = most; }};
}
/// After this time the handler's stop_token is set. Default: 30 s.
inline auto handler_timeout(std::chrono::milliseconds timeout) {
  return detail::Policy{[timeout](TopicSettings& s) { s.handler_timeout = timeout; }};
}
/// What happens to a message whose id has taken effect.
inline auto on_duplicate(DuplicatePolicy policy) {
  return detail::Policy{[policy](TopicSettings& s) { s.duplicates = policy; }};
}
/// Sends the replies of ctx.reply() to the topic in the message's header reply-topic, if it is one of these. Without
/// that header they go to the first topic (docs/guide/replies-and-outbox.md).
inline auto replies(std::string topics) {
  return detail::Policy{[topics = std::move(topics)](TopicSettings& s) { s.reply_topics = topics; }};
}
/// The same id with another payload becomes a dead letter (`mismatch`) instead of a duplicate.
inline auto fingerprint() {
  return detail::Policy{[](TopicSettings& s) { s.fingerprint = true; }};
}

/// Reports the events of this topic to `observer`.
inline auto observe(std::shared_ptr<Observer> observer) {
  struct Decorate {
    std::shared_ptr<Observer> observer;
    void decorate(Pipeline& pipeline) const { pipeline.observers.push_back(observer); }
  };
  return Decorate{std::move(observer)};
}

/// The rest of the chain, which a custom decorator calls once or not at all.
class Next {
 public:
  /// around() constructs it.
  Next(const Invoke& invoke, std::span<const Message> messages, Context& context)
      : invoke_(invoke), messages_(messages), context_(context) {}
  /// Runs the rest of the chain.
  Outcome operator()() const { return invoke_(messages_, context_); }

 private:
  const Invoke& invoke_;
  std::span<const Message> messages_;
  Context& context_;
};

/// A custom decorator around the call: `wrap(std::span<const Message>, Context&, const Next&) -> Outcome`.
/// For a message handler the span has one message. It runs inside of the transaction, on the worker's thread.
template <class Wrap>
requires std::is_invocable_r_v<Outcome, Wrap&, std::span<const Message>, Context&, const Next&> auto around(Wrap wrap) {
  struct Decorate {
    Wrap wrap;
    void decorate(Pipeline& pipeline) const {
      pipeline.invoke = [inner = std::move(pipeline.invoke), wrap = wrap](std::span<const Message> messages,
                                                                          Context& context) mutable -> Outcome {
        return wrap(messages, context, Next{inner, messages, context});
      };
    }
  };
  return Decorate{std::move(wrap)};
}

}  // namespace turnstile
