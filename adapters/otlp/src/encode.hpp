#pragma once
// Spans as a request of the OpenTelemetry protocol, and its answers.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "span_queue.hpp"
#include "turnstile/otlp/tracer.hpp"

namespace turnstile::otlp {

/// An ExportTraceServiceRequest. Bytes of a text that are not UTF-8 are replaced: a collector would refuse the request.
std::string encode(const Resource& resource, std::span<const QueuedSpan> spans);

/// Of an ExportTraceServiceResponse.
struct PartialSuccess {
  std::int64_t rejected = 0;
  std::string message;
};
/// Absent: the body is no such answer.
std::optional<PartialSuccess> decode_answer(std::string_view body);
/// The reason in the body of an answer that is an error; empty if there is none. `type` is its content type.
std::string decode_error(std::string_view body, std::string_view type);

}  // namespace turnstile::otlp
