#pragma once
// The trace context of a message: W3C Trace Context (https://www.w3.org/TR/trace-context/, level 1), in the headers
// `traceparent` and `tracestate`. It names the trace that a message belongs to, and the span that has sent it.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "turnstile/message.hpp"

namespace turnstile {

/// The header of the trace and the span.
inline constexpr std::string_view kTraceparentHeader = "traceparent";
/// The header of what systems on the way have added.
inline constexpr std::string_view kTracestateHeader = "tracestate";

/// A place in a trace.
struct TraceContext {
  std::array<std::uint8_t, 16> trace_id{};  ///< not all 0
  std::array<std::uint8_t, 8> span_id{};    ///< not all 0; in a message, the span that has sent it
  std::uint8_t flags = 0;                   ///< bit 0: sampled; unknown bits are 0
  std::string state{};                      ///< the header tracestate, unchanged; up to 512 bytes, else empty

  /// Whether the sender records this trace, so that its receivers should too.
  [[nodiscard]] bool is_sampled() const noexcept { return (flags & 1U) != 0; }
  /// Compares all members.
  bool operator==(const TraceContext&) const = default;
};

/// Reads the value of a header `traceparent`. Absent: it is no valid one. A version that this build does not know is
/// read as far as it is known, and `ff` is none.
std::optional<TraceContext> parse_traceparent(std::string_view text);
/// The value of a header `traceparent`, of version 00.
std::string to_traceparent(const TraceContext& trace);
/// "4bf92f3577b34da6a3ce929d0e0e4736"
std::string trace_id_text(const TraceContext& trace);

/// The trace context of a message. Absent: it has no valid header `traceparent`, or more than one.
std::optional<TraceContext> trace_of(const Message& message);
/// Sets the headers of the message, unless it has a header `traceparent`.
void put_trace(OwnedMessage& message, const TraceContext& trace);

}  // namespace turnstile
