#pragma once
// The spans that wait to be sent: bounded by number and by memory.

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "turnstile/otlp/tracer.hpp"

namespace turnstile::otlp {

/// A SpanReport with texts of its own.
struct QueuedSpan {
  explicit QueuedSpan(const SpanReport& report);
  /// Its approximate memory.
  [[nodiscard]] std::size_t bytes() const noexcept;

  SpanReport::Step step;
  TraceContext context;
  std::array<std::uint8_t, 8> parent;
  bool is_parent_remote;
  std::chrono::system_clock::time_point start;
  std::chrono::nanoseconds took;
  std::string topic;
  std::int32_t partition;
  Offset offset;
  std::int64_t messages;
  std::string handler;
  std::string error;  ///< cut to 1,024 bytes
  std::vector<TraceContext> links;
};

/// Thread-safe.
class SpanQueue {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit SpanQueue(const Tuning& tuning) : tuning_(tuning) {}

  /// False: the queue is full or closed, and the span is not in it.
  bool push(QueuedSpan span);
  /// Waits until there are enough spans for a request, until the first one has waited for the interval, or until
  /// close(). Not before `not_before`, unless it is closed. Returns the oldest spans; none only after close().
  std::vector<QueuedSpan> take(Time not_before);
  /// Nothing comes in any more, and nothing waits any more.
  void close();
  [[nodiscard]] std::size_t size() const;
  /// Waits until this time, or until close(). Returns whether it is closed.
  bool wait(Time until);

 private:
  [[nodiscard]] bool is_enough() const noexcept {
    return spans_.size() >= tuning_.batch_spans || bytes_ >= tuning_.batch_bytes;
  }

  const Tuning tuning_;
  mutable std::mutex mutex_;  ///< protects the following members
  std::condition_variable changed_;
  std::deque<QueuedSpan> spans_;
  std::size_t bytes_ = 0;
  Time oldest_{};  ///< when the first of `spans_` came in, if no request was taken since
  bool closed_ = false;
};

}  // namespace turnstile::otlp
