#include "turnstile/testing/token_log.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace turnstile::testing {

void MemoryTokenTopic::append(std::string bytes) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  append(std::move(bytes), std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

void MemoryTokenTopic::append(std::string bytes, std::int64_t time_ms) {
  const std::lock_guard lock(mutex_);
  const auto position = static_cast<std::int64_t>(records_.size());
  records_.push_back({.position = position, .bytes = std::move(bytes), .time_ms = time_ms});
}

std::vector<ports::TokenLog::Record> MemoryTokenTopic::from(std::int64_t position) const {
  const std::lock_guard lock(mutex_);
  std::vector<ports::TokenLog::Record> found;
  for (auto at = std::max(position, begin_); at < static_cast<std::int64_t>(records_.size()); ++at)
    found.push_back(records_[static_cast<std::size_t>(at)]);
  return found;
}

std::int64_t MemoryTokenTopic::begin() const {
  const std::lock_guard lock(mutex_);
  return begin_;
}

std::int64_t MemoryTokenTopic::end() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(records_.size());
}

void MemoryTokenTopic::cut(std::int64_t below) {
  const std::lock_guard lock(mutex_);
  begin_ = std::max(begin_, below);
}

void MemoryTokenTopic::away(bool is) { away_ = is; }

void MemoryTokenTopic::save(std::string snapshot) {
  const std::lock_guard lock(mutex_);
  snapshots_.push_back(std::move(snapshot));
}

std::optional<ports::TokenLog::Snapshot> MemoryTokenTopic::snapshot(std::int64_t before) const {
  const std::lock_guard lock(mutex_);
  const auto number = std::min(before, static_cast<std::int64_t>(snapshots_.size())) - 1;
  if (number < 0) return std::nullopt;
  return ports::TokenLog::Snapshot{.number = number, .bytes = snapshots_[static_cast<std::size_t>(number)]};
}

std::shared_ptr<MemoryTokenTopic> MemoryTokenParts::part(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  auto& topic = parts_[number];
  if (!topic) topic = std::make_shared<MemoryTokenTopic>();
  return topic;
}

TokenLogParts open_parts(std::shared_ptr<MemoryTokenParts> log) {
  return [log = std::move(log)](std::uint32_t part) { return std::make_unique<MemoryTokenLog>(log->part(part)); };
}

std::optional<ports::TokenLog::Snapshot> MemoryTokenLog::snapshot(std::int64_t before) {
  if (is_away()) throw BrokerError(Code::kafka_unavailable, "the token log in memory is unavailable");
  return topic_->snapshot(before);
}

std::vector<ports::TokenLog::Record> MemoryTokenLog::read(std::chrono::milliseconds timeout) {
  const auto look = [&] { return is_away() ? std::vector<Record>{} : topic_->from(next_); };
  auto found = look();
  if (found.empty()) {
    // Another member's write does not wake this one. A check every millisecond is as good as a broker's round trip.
    std::unique_lock lock(mutex_);
    rung_.wait_for(lock, std::min(timeout, std::chrono::milliseconds(1)), [this] { return woken_; });
    woken_ = false;
    lock.unlock();
    found = look();
  }
  if (found.empty()) return found;
  if (found.front().position > next_) {
    throw TokenLogTrimmed("the token log in memory: positions " + std::to_string(next_) + " to " +
                          std::to_string(found.front().position - 1) + " are missing");
  }
  next_ = found.back().position + 1;
  return found;
}

void MemoryTokenLog::append(std::string bytes) {
  if (is_away()) failed_ = true;
  else topic_->append(std::move(bytes));
}

void MemoryTokenLog::save(std::int64_t position, std::string snapshot) {
  topic_->save(std::move(snapshot));
  saved_ = position;
}

void MemoryTokenLog::wake() noexcept {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  rung_.notify_one();
}

}  // namespace turnstile::testing
