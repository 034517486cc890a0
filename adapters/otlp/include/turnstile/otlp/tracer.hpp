#pragma once
// Sends spans to an OpenTelemetry collector: OTLP over HTTP, as protobuf. `[tracing] endpoint` turns it on without code.
//
// Handlers never wait for it. Spans go into a bounded queue, and one thread sends them. A span is dropped, and counted,
// if the queue is full or if the collector does not accept it in time. One line `spans_not_sent` reports that.

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "turnstile/config.hpp"
#include "turnstile/tracer.hpp"

namespace spdlog {
class logger;
}

/// Spans for an OpenTelemetry collector.
namespace turnstile::otlp {

/// What the spans say about their process.
struct Resource {
  std::string service;   ///< `service.name`
  std::string instance;  ///< `service.instance.id`
  std::string group;     ///< the consumer group
};
/// That of a consumer with this configuration.
Resource resource_of(const Config& config);

/// Sizes and times. The defaults suit production.
struct Tuning {
  std::size_t queue_spans = 4'096;                    ///< the most spans that wait
  std::size_t queue_bytes = std::size_t{8} << 20;     ///< their most memory
  std::size_t batch_spans = 512;                      ///< the most spans of a request; as many are sent at once
  std::size_t batch_bytes = std::size_t{1} << 20;     ///< their most memory
  std::chrono::milliseconds interval{5'000};          ///< the longest that a span waits for others
  std::chrono::milliseconds request_timeout{10'000};  ///< for a whole request, from the name's lookup to the answer
  std::chrono::milliseconds first_retry{1'000};       ///< the pause before the second attempt; it doubles each time
  std::chrono::milliseconds longest_retry{30'000};    ///< the longest pause
  std::chrono::milliseconds keep_trying{60'000};      ///< after it, the spans of a request are dropped
  std::chrono::milliseconds longest_retry_after{300'000};  ///< of what the collector asks for in Retry-After
  std::chrono::milliseconds flush{2'000};                  ///< the longest that the destructor sends what waits
  std::chrono::milliseconds report_again{60'000};          ///< the least time between two lines about lost spans
};

/// Thread-safe.
class OtlpTracer final : public Tracer {
 public:
  /// REQUIRES: `settings.target()` is present, and `logger` is not null.
  OtlpTracer(const TracingSettings& settings, Resource resource, std::shared_ptr<spdlog::logger> logger,
             const Tuning& tuning = {});
  /// Sends what waits, for up to `flush`.
  ~OtlpTracer() override;
  OtlpTracer(const OtlpTracer&) = delete;
  OtlpTracer& operator=(const OtlpTracer&) = delete;

  /// Copies the span into the queue, or drops it.
  void on_span(const SpanReport& span) noexcept override;
  /// True for a share of `sample`, by chance.
  bool begins_trace() noexcept override;
  /// Since the start of the process.
  [[nodiscard]] std::optional<SpanCounts> counts() const noexcept override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace turnstile::otlp
