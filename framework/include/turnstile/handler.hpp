#pragma once
// The types that can be handlers, and the form in which the framework stores a handler.

#include <concepts>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "turnstile/context.hpp"
#include "turnstile/message.hpp"
#include "turnstile/observer.hpp"
#include "turnstile/outcome.hpp"
#include "turnstile/topic_settings.hpp"

namespace turnstile {

namespace detail {
template <class R>
concept HandlerResult = std::same_as<R, Outcome> || std::is_void_v<R>;
template <class F, class... A>
concept Answers = std::invocable<F&, A...> && HandlerResult<std::invoke_result_t<F&, A...>>;
}  // namespace detail

/// Takes a message, with or without a Context. Returns an Outcome or nothing.
template <class F>
concept MessageHandler = detail::Answers<F, const Message&, Context&> || detail::Answers<F, const Message&>;

/// Takes all messages of a batch at once, for set-based SQL. Its outcome applies to all of them.
template <class F>
concept BatchHandler =
    detail::Answers<F, std::span<const Message>, Context&> || detail::Answers<F, std::span<const Message>>;

template <class F>
concept Handler = MessageHandler<std::decay_t<F>> || BatchHandler<std::decay_t<F>>;

/// A handler as the framework runs it. A message handler gets one message in each call. A batch handler gets several
/// messages of one partition, in offset order.
using Invoke = std::function<Outcome(std::span<const Message>, Context&)>;

class Pipeline;

/// A type with `decorate(Pipeline&)`. It sets a policy (limit, retry) or wraps the call (around).
template <class D>
concept Decorator = requires(const std::remove_cvref_t<D>& d, Pipeline& p) {
  d.decorate(p);
};

/// A handler with its decorators. Build it with `|`, and pass it to Consumer::topic() or PollLoop::topic(). It is a
/// value. Several threads can call the handler at once.
class Pipeline {
 public:
  /// A handler of any of the four forms, without decorators.
  template <class H>
    requires(!std::same_as<std::remove_cvref_t<H>, Pipeline>)
  Pipeline(H&& handler) {  // NOLINT(google-explicit-constructor): a bare handler is a pipeline
    static_assert(
        Handler<H>,
        "turnstile: not a handler. A handler takes (const turnstile::Message&), (const turnstile::Message&, "
        "turnstile::Context&), (std::span<const turnstile::Message>) or (std::span<const turnstile::Message>, "
        "turnstile::Context&), and returns turnstile::Outcome or void");
    if constexpr (Handler<H>) adopt(std::forward<H>(handler));
  }

  /// The call, including the wrappers of `around` decorators.
  Invoke invoke;
  /// True if `invoke` takes exactly one message in each call.
  bool one_at_a_time = true;
  /// The settings that the code makes. The configuration can override each of them.
  TopicSettings settings;
  std::vector<std::shared_ptr<Observer>> observers;  ///< of this topic; see observe()
  /// Whether a failure counts for the circuit breaker; see break_on(). It gets the exception of the handler, or null if
  /// the handler returned an outcome. Empty: there is no circuit breaker.
  std::function<bool(const std::exception_ptr&)> breaks_on;

 private:
  template <class H>
  void adopt(H&& handler) {
    using F = std::decay_t<H>;
    one_at_a_time = MessageHandler<F>;
    invoke = [f = F(std::forward<H>(handler))](std::span<const Message> messages, Context& context) mutable -> Outcome {
      (void)context;
      if constexpr (detail::Answers<F, const Message&, Context&>)
        return answer([&] { return f(messages.front(), context); });
      else if constexpr (detail::Answers<F, const Message&>) return answer([&] { return f(messages.front()); });
      else if constexpr (detail::Answers<F, std::span<const Message>, Context&>)
        return answer([&] { return f(messages, context); });
      else return answer([&] { return f(messages); });
    };
  }
  template <class Call>
  static Outcome answer(Call&& call) {
    if constexpr (std::is_void_v<std::invoke_result_t<Call>>) {
      call();
      return Outcome::done();
    } else {
      return call();
    }
  }
};

/// `handler | decorator` applies decorators from left to right. The last decorator is the outermost.
template <class H, Decorator D>
Pipeline operator|(H&& handler, const D& decorator) {
  Pipeline pipeline(std::forward<H>(handler));
  decorator.decorate(pipeline);
  return pipeline;
}

}  // namespace turnstile
