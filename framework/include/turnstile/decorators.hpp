#pragma once
// The decorators. Each is a small value with `decorate(Pipeline&)`; write your own in the same way, or with around().
//
//   charge | transactional() | limit("psp", 64) | retry(exponential{100ms, 5}) | dead_letter()
//
// Policies (all but around and observe) say how the engine runs the handler, wherever they stand in the chain.
// around() wraps the call itself, inside the transaction; the last one named is the outermost.

#include <chrono>
#include <concepts>
#include <memory>
#include <string>
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

/// As transactional(), for records without ids. Offsets number them, and one row of the partition, which the handler's transaction moves,
/// says how far the handler has come. Each record takes effect exactly once; a message that was published twice is two records. Needs the
/// order of the partition.
inline auto by_offset() {
  return detail::Policy{[](TopicSettings& s) { s.mode = Mode::by_offset; }};
}
/// As by_offset(), for producers that number what they send (NumberedSender): a message that was published twice takes effect once. One
/// more row for each producer. `window`: how many numbers back are remembered, and how many responses that were not acknowledged.
inline auto numbered(std::int64_t window = 1'024) {
  return detail::Policy{[window](TopicSettings& s) {
    s.mode = Mode::numbered;
    s.request_window = window;
  }};
}

/// For effects outside of PostgreSQL: the message is claimed, the handler runs outside of any transaction, and then it is written down
/// as done. The claim's lease is renewed while the handler runs; when the process dies in between, nobody can know whether the effect
/// was made, and the message is parked (see on_unknown). Pass ctx.idempotency_key() and ctx.claim_fence() on, so that the other side can
/// refuse what comes twice, or late.
inline auto leased(std::chrono::milliseconds lease = std::chrono::seconds(30)) {
  return detail::Policy{[lease](TopicSettings& s) {
    s.mode = Mode::leased;
    s.lease = lease;
  }};
}
/// leased(): what becomes of a message whose process died while it ran.
inline auto on_unknown(UnknownPolicy policy) {
  return detail::Policy{[policy](TopicSettings& s) { s.unknown = policy; }};
}
/// What becomes of a message that is older than the stored ids.
inline auto on_too_old(HorizonPolicy policy) {
  return detail::Policy{[policy](TopicSettings& s) { s.too_old = policy; }};
}
/// leased(): whether messages wait while PostgreSQL does not answer, or run without being claimed.
inline auto on_store_down(StoreDownPolicy policy) {
  return detail::Policy{[policy](TopicSettings& s) { s.store_down = policy; }};
}
/// leased(): what becomes of a duplicate while the first one runs.
inline auto while_running(RunningPolicy policy) {
  return detail::Policy{[policy](TopicSettings& s) { s.while_running = policy; }};
}

/// At most `count` handlers at once under this name; topics that name the same limiter share it.
inline auto limit(std::string name, std::int64_t count) {
  return detail::Policy{[name = std::move(name), count](TopicSettings& s) {
    s.limiter = name;
    s.limit = count;
  }};
}
/// A limit of the topic's own name.
inline auto limit(std::int64_t count) {
  return detail::Policy{[count](TopicSettings& s) { s.limit = count; }};
}

/// Delays that double: first, twice that, and so on up to cap, each with jitter.
struct exponential {
  std::chrono::milliseconds first;        ///< before the second attempt
  int attempts;                           ///< how often the handler may be started and fail by itself, at least 1
  std::chrono::milliseconds cap{30'000};  ///< the longest delay
};
/// Runs what failed again, after growing delays, outside the transaction and without blocking other keys.
inline auto retry(exponential e) {
  return detail::Policy{[e](TopicSettings& s) { s.retry = RetryPolicy{e.attempts, e.first, e.cap}; }};
}

/// What failed for good goes to this topic (default "<topic>.dlq"), with headers that say why.
inline auto dead_letter(std::string topic = {}) {
  return detail::Policy{[topic = std::move(topic)](TopicSettings& s) { s.dead_letter = topic; }};
}
/// After so many dead letters in a row for the same reason the partition stops, since the cause is then most likely not in the messages: a
/// wrong message_id, say. 0: never.
inline auto stop_after_dead(std::int64_t in_a_row) {
  return detail::Policy{[in_a_row](TopicSettings& s) { s.stop_after_dead = in_a_row; }};
}

/// The scope of ids. A name that stays the same over renames in the code.
inline auto handler_id(std::string name) {
  return detail::Policy{[name = std::move(name)](TopicSettings& s) { s.handler = name; }};
}
/// header:NAME | key | json:/pointer | cloudevents | offset. Modes by_offset and numbered keep no ids.
/// In JSON (json:, and structured CloudEvents) an id is a text that is not empty, or an integer. A message whose id is a number with a
/// fraction or an exponent (7.0, 1e3), a boolean, null, an object or a list is a dead letter (missing_id).
inline auto id_from(std::string source) {
  return detail::Policy{[source = std::move(source)](TopicSettings& s) { s.message_id = source; }};
}
/// In which order the messages of a partition run.
inline auto ordered_by(Order order) {
  return detail::Policy{[order](TopicSettings& s) { s.order = order; }};
}
/// Most messages in one transaction. 1: a handler is never run again because of a neighbour.
inline auto batch(std::int64_t most) {
  return detail::Policy{[most](TopicSettings& s) { s.batch = most; }};
}
/// After this time the handler's stop_token is set. Default: 30 s.
inline auto handler_timeout(std::chrono::milliseconds timeout) {
  return detail::Policy{[timeout](TopicSettings& s) { s.handler_timeout = timeout; }};
}
/// What becomes of a message whose id has taken effect.
inline auto on_duplicate(DuplicatePolicy policy) {
  return detail::Policy{[policy](TopicSettings& s) { s.duplicates = policy; }};
}
/// What ctx.reply() says is sent to the topic that the message's header reply-topic names, if it is one of these, and without that
/// header to the first (docs/guide/replies-and-outbox.md).
inline auto replies(std::string topics) {
  return detail::Policy{[topics = std::move(topics)](TopicSettings& s) { s.reply_topics = topics; }};
}
/// Same id, other payload: park it and count it, never skip it in silence.
inline auto fingerprint() {
  return detail::Policy{[](TopicSettings& s) { s.fingerprint = true; }};
}

/// Tells `observer` what happens in this topic.
inline auto observe(std::shared_ptr<Observer> observer) {
  struct Decorate {
    std::shared_ptr<Observer> observer;
    void decorate(Pipeline& pipeline) const { pipeline.observers.push_back(observer); }
  };
  return Decorate{std::move(observer)};
}

/// The rest of the chain, as a decorator of one's own calls it: once, or not at all.
class Next {
 public:
  /// By around().
  Next(const Invoke& invoke, std::span<const Message> messages, Context& context)
      : invoke_(invoke), messages_(messages), context_(context) {}
  /// Runs the rest of the chain.
  Outcome operator()() const { return invoke_(messages_, context_); }

 private:
  const Invoke& invoke_;
  std::span<const Message> messages_;
  Context& context_;
};

/// A decorator of one's own round the call: `wrap(std::span<const Message>, Context&, const Next&) -> Outcome`.
/// For a message handler the span holds one message. It runs inside the transaction, on the worker's thread.
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
