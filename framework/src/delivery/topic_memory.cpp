#include "delivery/topic_memory.hpp"

#include <algorithm>

namespace turnstile::detail {

namespace {

/// If a process dies, it is unknown whether a message whose handler had begun took effect. The store therefore records
/// each begin by itself, just before the handler runs. That costs about 1/10 of this time. Only if handlers take less
/// than this time, the store records several begins together.
constexpr std::int64_t kBegunTogetherNs = 200'000;
constexpr std::int64_t kMostBegunTogether = 16;
/// How many handlers are timed before several begins are recorded together.
constexpr std::int64_t kTimedFirst = 64;
/// A single one may be a deadlock, or an open transaction with one of the ids. The next begin then succeeds.
constexpr int kReportedBusyBegin = 2;
constexpr std::chrono::minutes kReportsApart{1};

}  // namespace

const TopicMemory::Pending* TopicMemory::pending(const OwnedPartition& place, const Message& message) const {
  const auto it = pending_.find({place.at.partition, message.offset()});
  const bool is_same =
      it != pending_.end() && it->second.fence == place.fence && it->second.timestamp == message.timestamp();
  return is_same ? &it->second : nullptr;
}

std::optional<DeadLetter> TopicMemory::pending_dead_letter(const OwnedPartition& place, const Message& message) const {
  if (pending_count_.load(std::memory_order_relaxed) == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const Pending* const found = pending(place, message);
  return found == nullptr ? std::nullopt : std::optional(found->dead_letter);
}

std::optional<std::string> TopicMemory::why_dead_letter_waits(const OwnedPartition& place,
                                                              const Message& message) const {
  if (pending_count_.load(std::memory_order_relaxed) == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const Pending* const found = pending(place, message);
  if (found == nullptr) return std::nullopt;
  return "the message is dead (" + std::string(to_text(found->dead_letter.reason)) +
         ") and no dead letter yet: " + found->refused;
}

void TopicMemory::keep_pending(const OwnedPartition& place, const Message& message, const DeadLetter& dead_letter,
                               const std::string& refused) {
  const std::lock_guard lock(mutex_);
  pending_[{place.at.partition, message.offset()}] = {place.fence, message.timestamp(), dead_letter, refused};
  pending_count_ = pending_.size();
}

void TopicMemory::drop_pending(const OwnedPartition& place, const Message& message) {
  if (pending_count_.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(mutex_);
  pending_.erase({place.at.partition, message.offset()});
  pending_count_ = pending_.size();
}

void TopicMemory::forget(const TopicPartition& at) {
  const std::lock_guard lock(mutex_);
  const auto is_there = [&](const auto& entry) { return entry.first.first == at.partition; };
  std::erase_if(pending_, is_there);
  pending_count_ = pending_.size();
  std::erase_if(busy_, is_there);
  busy_count_ = busy_.size();
  streaks_.forget(at);
}

int TopicMemory::count_busy(const OwnedPartition& place, Offset offset) {
  const std::lock_guard lock(mutex_);
  const int count = ++busy_[{place.at.partition, offset}];
  busy_count_ = busy_.size();
  return count;
}

bool TopicMemory::note_begin(bool busy) noexcept {
  if (!busy) {
    if (busy_begins_.load(std::memory_order_relaxed) != 0) busy_begins_ = 0;
    return false;
  }
  if (++busy_begins_ < kReportedBusyBegin) return false;
  const auto now = std::chrono::steady_clock::now();
  auto due = report_busy_.load();
  return now >= due && report_busy_.compare_exchange_strong(due, now + kReportsApart);
}

int TopicMemory::busy_tries(const OwnedPartition& place, Offset offset) const {
  if (busy_count_.load(std::memory_order_relaxed) == 0) return 0;
  const std::lock_guard lock(mutex_);
  const auto found = busy_.find({place.at.partition, offset});
  return found == busy_.end() ? 0 : found->second;
}

void TopicMemory::forget_busy(const OwnedPartition& place, Offset offset) {
  if (busy_count_.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(mutex_);
  busy_.erase({place.at.partition, offset});
  busy_count_ = busy_.size();
}

void TopicMemory::note_unrecorded(const MessageId& id) {
  const std::lock_guard lock(mutex_);
  unrecorded_.insert(id);
  unrecorded_count_ = unrecorded_.size();
}

void TopicMemory::drop_unrecorded(const MessageId& id) {
  if (unrecorded_count_.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(mutex_);
  unrecorded_.erase(id);
  unrecorded_count_ = unrecorded_.size();
}

bool TopicMemory::is_unrecorded(const MessageId& id) const {
  if (unrecorded_count_.load(std::memory_order_relaxed) == 0) return false;
  const std::lock_guard lock(mutex_);
  return unrecorded_.contains(id);
}

std::size_t TopicMemory::begun_together() const noexcept {
  if (timed_.load(std::memory_order_relaxed) < kTimedFirst) return 1;
  const auto mean = std::max<std::int64_t>(1, mean_handler_ns_.load(std::memory_order_relaxed));
  return static_cast<std::size_t>(std::clamp<std::int64_t>(kBegunTogetherNs / mean, 1, kMostBegunTogether));
}

void TopicMemory::note_handler_time(std::chrono::nanoseconds took) noexcept {
  const auto mean = mean_handler_ns_.load(std::memory_order_relaxed);
  const auto before = timed_.fetch_add(1, std::memory_order_relaxed);
  mean_handler_ns_.store(before == 0 ? took.count() : mean + (took.count() - mean) / 16, std::memory_order_relaxed);
}

}  // namespace turnstile::detail
