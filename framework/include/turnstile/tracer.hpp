#pragma once
// The port for traces. A message whose sender records its trace (W3C Trace Context, turnstile/trace.hpp) gets a span for
// each step of its processing. Other messages cost one look at their headers. Without a tracer nothing is looked at.
//
// Sampling follows the sender's decision. With a message that has no trace, the tracer may begin one.
// turnstile/otlp/tracer.hpp sends the spans to a collector.

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "turnstile/trace.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

/// A step that has ended. The views are valid during the call.
struct SpanReport {
  /// The steps, in their order.
  enum class Step : std::uint8_t {
    receive,          ///< from the arrival in this process until a worker took the message
    wait_for_permit,  ///< until there was a permit; only if it was not there at once
    claim,            ///< PostgreSQL took the messages: their ids, or their claims
    handler,          ///< a call of the handler
    commit,           ///< until the results were permanent
    process,          ///< the whole way of a message whose trace begins here: the other steps are within it
  };
  Step step = Step::handler;                      ///< which step
  TraceContext context{};                         ///< of this span: its trace, its own id, and its flags
  std::array<std::uint8_t, 8> parent{};           ///< the span that has sent the message; all 0: the trace begins here
  bool is_parent_remote = true;                   ///< whether another process has made the span `parent`
  std::chrono::system_clock::time_point start{};  ///< by this machine's clock
  std::chrono::nanoseconds took{};                ///< its duration
  std::string_view topic{};                       ///< the topic
  std::int32_t partition = 0;                     ///< the partition
  Offset offset = 0;                              ///< of the message; of several: of the first
  std::int64_t messages = 1;                      ///< how many messages the step had
  std::string_view handler{};                     ///< the handler's name
  std::string_view error{};                       ///< why it failed; empty: it has not failed
  /// A step of several messages is one span, in the trace of the first message whose trace is recorded. These are the
  /// traces of all its messages that have one.
  std::span<const TraceContext> links{};
};
/// "receive", "wait for permit", …
std::string_view to_text(SpanReport::Step step);

/// How many spans a tracer has passed on.
struct SpanCounts {
  std::int64_t exported = 0;  ///< the collector has accepted them
  std::int64_t dropped = 0;   ///< they were lost: the queue was full, or the collector did not accept them in time
  std::int64_t waiting = 0;   ///< they are still to be sent
};

/// Takes the spans. Workers call it, several at once. An implementation must be thread-safe and quick, and must not
/// throw.
class Tracer {
 public:
  virtual ~Tracer() = default;
  /// A step has ended.
  virtual void on_span(const SpanReport& span) noexcept = 0;
  /// Whether a trace begins with a message that has no valid one. Asked for each run of such a message.
  virtual bool begins_trace() noexcept { return false; }
  /// Absent: the tracer does not count.
  [[nodiscard]] virtual std::optional<SpanCounts> counts() const noexcept { return std::nullopt; }
};

}  // namespace turnstile
