#include "delivery/unit_trace.hpp"

#include <algorithm>
#include <random>
#include <utility>

namespace turnstile::detail {

namespace {

/// Random, and not all 0.
template <std::size_t N>
std::array<std::uint8_t, N> new_id() {
  thread_local std::mt19937_64 random{[] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64{seed};
  }()};
  std::array<std::uint8_t, N> id{};
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < N; ++i) {
    if (i % 8 == 0) bits = std::uniform_int_distribution<std::uint64_t>{1}(random);
    id[i] = static_cast<std::uint8_t>(bits);
    bits >>= 8U;
  }
  return id;
}

TraceContext new_trace() {
  constexpr std::uint8_t sampled = 1;
  return {.trace_id = new_id<16>(), .span_id = new_id<8>(), .flags = sampled};
}

TraceContext child_of(const TraceContext& parent) {
  TraceContext child = parent;
  child.span_id = new_id<8>();
  return child;
}

}  // namespace

std::unique_ptr<UnitTrace> UnitTrace::of(Tracer* tracer, const TopicPlan& plan, std::int32_t partition,
                                         std::span<const Work> works) {
  if (tracer == nullptr || works.empty()) return nullptr;
  std::unique_ptr<UnitTrace> unit;
  std::vector<TraceContext> links;
  for (const Work& work : works) {
    auto trace = trace_of(*work.message);
    const bool is_remote = trace.has_value();
    if (!trace && tracer->begins_trace()) trace = new_trace();
    if (!trace) continue;
    if (trace->is_sampled()) {
      if (!unit) unit.reset(new UnitTrace(*tracer, plan, partition));
      unit->recorded_.push_back({work.message->offset(), *trace, is_remote});
    }
    links.push_back(std::move(*trace));
  }
  if (!unit) return nullptr;
  unit->first_ = works.front().message->offset();
  unit->messages_ = static_cast<std::int64_t>(works.size());
  unit->links_ = std::move(links);
  return unit;
}

UnitTrace::Recorded* UnitTrace::find(Offset offset) noexcept {
  const auto found = std::find_if(recorded_.begin(), recorded_.end(),
                                  [&](const Recorded& recorded) { return recorded.offset == offset; });
  return found == recorded_.end() ? nullptr : &*found;
}

const TraceContext* UnitTrace::begin_handler(const Message& message) {
  Recorded* const recorded = find(message.offset());
  if (recorded == nullptr) return nullptr;
  recorded->handler = child_of(recorded->parent);
  recorded->begun = true;
  return &recorded->handler;
}

UnitTrace::Span::~Span() {
  if (trace_ == nullptr) return;
  if (error_.empty() && std::uncaught_exceptions() > exceptions_) error_ = "an exception";
  if (step_ == SpanReport::Step::handler) trace_->tell_of_handler(messages_, since_, error_);
  else trace_->tell(step_, since_, Clock::now(), error_);
}

void UnitTrace::tell(SpanReport::Step step, Clock::time_point since, Clock::time_point until,
                     const std::string& error) {
  const Recorded& recorded = recorded_.front();
  SpanReport report = report_of(step, child_of(recorded.parent), recorded);
  report.offset = first_;
  report.messages = messages_;
  report.error = error;
  if (messages_ > 1) report.links = links_;
  tell(std::move(report), since, until);
}

void UnitTrace::tell_of_handler(std::span<const Message> messages, Clock::time_point since, const std::string& error) {
  if (messages.size() > 1) return tell(SpanReport::Step::handler, since, Clock::now(), error);
  Recorded* const recorded = find(messages.front().offset());
  if (recorded == nullptr) return;
  // A handler of several messages that gets only one has no context of its own.
  const bool begun = std::exchange(recorded->begun, false);
  SpanReport report =
      report_of(SpanReport::Step::handler, begun ? recorded->handler : child_of(recorded->parent), *recorded);
  report.offset = recorded->offset;
  report.error = error;
  tell(std::move(report), since, Clock::now());
}

UnitTrace::~UnitTrace() {
  for (const Recorded& recorded : recorded_) {
    if (recorded.is_remote) continue;
    SpanReport report{.step = SpanReport::Step::process, .context = recorded.parent, .is_parent_remote = false};
    report.offset = recorded.offset;
    tell(std::move(report), began_, Clock::now());
  }
}

SpanReport UnitTrace::report_of(SpanReport::Step step, const TraceContext& context, const Recorded& recorded) {
  return {.step = step, .context = context, .parent = recorded.parent.span_id, .is_parent_remote = recorded.is_remote};
}

void UnitTrace::tell(SpanReport report, Clock::time_point since, Clock::time_point until) const {
  report.took = until - since;
  report.start = std::chrono::system_clock::now() -
                 std::chrono::duration_cast<std::chrono::system_clock::duration>(Clock::now() - since);
  report.topic = plan_.topic;
  report.partition = partition_;
  report.handler = plan_.handler;
  tracer_.on_span(report);
}

}  // namespace turnstile::detail

std::string_view turnstile::to_text(SpanReport::Step step) {
  switch (step) {
    case SpanReport::Step::receive: return "receive";
    case SpanReport::Step::wait_for_permit: return "wait for permit";
    case SpanReport::Step::claim: return "claim";
    case SpanReport::Step::handler: return "handler";
    case SpanReport::Step::commit: return "commit";
    case SpanReport::Step::process: return "process";
  }
  return "unknown";
}
