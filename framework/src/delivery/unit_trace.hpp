#pragma once
// The spans of a unit, if the trace of one of its messages is recorded. A step of the whole unit is one span. A call of a
// handler that takes one message is a span in that message's trace.

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/topic_plan.hpp"
#include "delivery/work.hpp"
#include "turnstile/tracer.hpp"

namespace turnstile::detail {

/// Used by one worker.
class UnitTrace {
 public:
  using Clock = std::chrono::steady_clock;
  /// Null if there is no tracer, or if no message's trace is recorded.
  static std::unique_ptr<UnitTrace> of(Tracer* tracer, const TopicPlan& plan, std::int32_t partition,
                                       std::span<const Work> works);
  /// Reports the whole way of the messages whose traces begin here.
  ~UnitTrace();
  UnitTrace(const UnitTrace&) = delete;
  UnitTrace& operator=(const UnitTrace&) = delete;

  /// When the messages arrived, or the unit began.
  void began(Clock::time_point at) noexcept { began_ = at; }

  /// A handler is about to be called for this message. Returns the context of its span, which lives until the next call
  /// for the message. Null: the message's trace is not recorded.
  const TraceContext* begin_handler(const Message& message);

  /// A span from its construction to its destruction.
  class Span {
   public:
    /// `trace`: null for none. `messages`: those of the step; empty: all of the unit.
    Span(UnitTrace* trace, SpanReport::Step step, std::span<const Message> messages = {}) noexcept
        : trace_(trace),
          step_(step),
          messages_(messages),
          since_(trace == nullptr ? Clock::time_point() : Clock::now()) {}
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;
    /// An exception that leaves its scope fails it, too.
    void failed(const std::string& why) {
      if (trace_ != nullptr) error_ = why.empty() ? "failed" : why;
    }

   private:
    UnitTrace* const trace_;
    const SpanReport::Step step_;
    const std::span<const Message> messages_;
    const Clock::time_point since_;
    const int exceptions_ = trace_ == nullptr ? 0 : std::uncaught_exceptions();
    std::string error_;
  };
  /// A step of the whole unit that has ended.
  void tell(SpanReport::Step step, Clock::time_point since, Clock::time_point until, const std::string& error = {});

 private:
  struct Recorded {
    Offset offset = 0;
    TraceContext parent;     ///< of the steps: as the message has it; else the trace begins with it
    bool is_remote = true;   ///< the message has it
    TraceContext handler{};  ///< the span of the last begin_handler()
    bool begun = false;      ///< begin_handler() was called, and the span has not ended
  };
  UnitTrace(Tracer& tracer, const TopicPlan& plan, std::int32_t partition) noexcept
      : tracer_(tracer), plan_(plan), partition_(partition) {}
  [[nodiscard]] Recorded* find(Offset offset) noexcept;
  void tell_of_handler(std::span<const Message> messages, Clock::time_point since, const std::string& error);
  static SpanReport report_of(SpanReport::Step step, const TraceContext& context, const Recorded& recorded);
  void tell(SpanReport report, Clock::time_point since, Clock::time_point until) const;

  Tracer& tracer_;
  const TopicPlan& plan_;
  const std::int32_t partition_;
  Clock::time_point began_ = Clock::now();
  Offset first_ = 0;
  std::int64_t messages_ = 0;
  std::vector<Recorded> recorded_;   ///< by offset
  std::vector<TraceContext> links_;  ///< of all messages that have a trace
};

}  // namespace turnstile::detail
