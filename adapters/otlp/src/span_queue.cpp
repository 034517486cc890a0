#include "span_queue.hpp"

#include <algorithm>
#include <utility>

namespace turnstile::otlp {

namespace {

constexpr std::size_t kLongestError = 1'024;

}  // namespace

QueuedSpan::QueuedSpan(const SpanReport& report)
    : step(report.step),
      context(report.context),
      parent(report.parent),
      is_parent_remote(report.is_parent_remote),
      start(report.start),
      took(report.took),
      topic(report.topic),
      partition(report.partition),
      offset(report.offset),
      messages(report.messages),
      handler(report.handler),
      error(report.error.substr(0, kLongestError)),
      links(report.links.begin(), report.links.end()) {}

std::size_t QueuedSpan::bytes() const noexcept {
  std::size_t sum = sizeof *this + context.state.size() + topic.size() + handler.size() + error.size();
  for (const TraceContext& link : links) sum += sizeof link + link.state.size();
  return sum;
}

bool SpanQueue::push(QueuedSpan span) {
  const std::size_t bytes = span.bytes();
  const std::lock_guard lock(mutex_);
  if (closed_ || spans_.size() >= tuning_.queue_spans || bytes_ + bytes > tuning_.queue_bytes) return false;
  const bool was_enough = is_enough(), was_empty = spans_.empty();
  if (was_empty) oldest_ = std::chrono::steady_clock::now();
  spans_.push_back(std::move(span));
  bytes_ += bytes;
  if (was_empty || (!was_enough && is_enough())) changed_.notify_all();
  return true;
}

std::vector<QueuedSpan> SpanQueue::take(Time not_before) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || !spans_.empty(); });
  changed_.wait_until(lock, not_before, [this] { return closed_; });
  changed_.wait_until(lock, oldest_ + tuning_.interval, [this] { return closed_ || is_enough(); });
  std::vector<QueuedSpan> batch;
  for (std::size_t bytes = 0; !spans_.empty() && batch.size() < tuning_.batch_spans;) {
    const std::size_t more = spans_.front().bytes();
    if (!batch.empty() && bytes + more > tuning_.batch_bytes) break;
    bytes += more;
    bytes_ -= more;
    batch.push_back(std::move(spans_.front()));
    spans_.pop_front();
  }
  return batch;
}

void SpanQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

std::size_t SpanQueue::size() const {
  const std::lock_guard lock(mutex_);
  return spans_.size();
}

bool SpanQueue::wait(Time until) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, until, [this] { return closed_; });
}

}  // namespace turnstile::otlp
