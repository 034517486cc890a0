#pragma once
// A token log in memory, for tests. Several domains in one process share it, as processes share a topic.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "turnstile/ports/token_log.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile::testing {

/// The log that the members share. Thread-safe.
class MemoryTokenTopic {
 public:
  /// Adds a record.
  void append(std::string bytes);
  /// Adds a record with this time, in milliseconds since 1970.
  void append(std::string bytes, std::int64_t time_ms);
  /// The records from this position on.
  [[nodiscard]] std::vector<ports::TokenLog::Record> from(std::int64_t position) const;
  /// The position of the first record in the log.
  [[nodiscard]] std::int64_t begin() const;
  /// The position after the last record.
  [[nodiscard]] std::int64_t end() const;
  /// Deletes the records below this position.
  void cut(std::int64_t below);
  /// Makes the log unavailable or available. While it is unavailable, nothing is read or written, and appends fail.
  void away(bool is);
  /// Whether the log is unavailable now.
  [[nodiscard]] bool is_away() const { return away_; }
  /// Stores a snapshot.
  void save(std::string snapshot);
  /// The newest snapshot with a number below `before`. Absent: there is none.
  [[nodiscard]] std::optional<ports::TokenLog::Snapshot> snapshot(std::int64_t before) const;

 private:
  mutable std::mutex mutex_;
  std::int64_t begin_ = 0;
  std::vector<ports::TokenLog::Record> records_;
  std::vector<std::string> snapshots_;
  std::atomic<bool> away_{false};
};

/// A log that can be divided: a topic for each part. Thread-safe.
class MemoryTokenParts {
 public:
  /// The part's topic. It begins to exist with the first call.
  std::shared_ptr<MemoryTokenTopic> part(std::uint32_t number);

 private:
  std::mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<MemoryTokenTopic>> parts_;
};

/// Opens the parts of this log, for join_token_domain() and TokenReader.
TokenLogParts open_parts(std::shared_ptr<MemoryTokenParts> log);

/// The connection of a member to the log.
struct MemoryTokenCable {
  std::atomic<bool> cut{false};  ///< whether this member cannot reach the log
};

/// A member's log over a topic in memory.
class MemoryTokenLog final : public ports::TokenLog {
 public:
  /// If `cable` is null, the log is always within reach.
  explicit MemoryTokenLog(std::shared_ptr<MemoryTokenTopic> topic, std::shared_ptr<MemoryTokenCable> cable = nullptr)
      : topic_(std::move(topic)), cable_(std::move(cable)) {}

  std::optional<Snapshot> snapshot(std::int64_t before = kNewest) override;
  std::int64_t begin() override { return topic_->begin(); }
  std::int64_t end() override { return topic_->end(); }
  [[nodiscard]] std::optional<std::int64_t> known_end() const override { return topic_->end(); }
  void seek(std::int64_t position) override { next_ = position; }
  std::vector<Record> read(std::chrono::milliseconds timeout) override;
  void append(std::string bytes) override;
  bool failed() override { return std::exchange(failed_, false); }
  [[nodiscard]] std::string why_failed() const override { return "it is away"; }
  void save(std::int64_t position, std::string snapshot) override;
  [[nodiscard]] std::int64_t saved() const override { return saved_; }
  void trim(std::int64_t below) override { topic_->cut(below); }
  /// Ends a wait for records. Any thread may call it.
  void wake() noexcept override;
  void flush(std::chrono::milliseconds) override {}
  [[nodiscard]] std::string name() const override { return "a token log in memory"; }

 private:
  [[nodiscard]] bool is_away() const { return topic_->is_away() || (cable_ && cable_->cut); }

  const std::shared_ptr<MemoryTokenTopic> topic_;
  const std::shared_ptr<MemoryTokenCable> cable_;
  std::int64_t next_ = 0;
  std::int64_t saved_ = -1;
  bool failed_ = false;
  std::mutex mutex_;
  std::condition_variable rung_;
  bool woken_ = false;
};

}  // namespace turnstile::testing
