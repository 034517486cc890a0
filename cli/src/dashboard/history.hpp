#pragma once
// Who held how many permits over time, out of the records of a token log. Pure.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "turnstile/token_reader.hpp"

namespace turnstile::cli::dashboard {

/// A part of the history of a limiter, in steps of equal length.
struct HistoryView {
  struct Process {
    std::string name;  ///< "billing@host1:4711"
    std::vector<std::int64_t> held{};
  };
  std::vector<std::int64_t> times_ms{};               ///< the end of each step
  std::vector<std::int64_t> positions{};              ///< of the last record up to then; -1: before the history
  std::vector<std::optional<std::int64_t>> limits{};  ///< at the end of each step; absent: unknown
  std::vector<Process> processes{};                   ///< that held permits in it, in the order of their first permit
  std::int64_t others = 0;                            ///< processes that are left out: those that held the least
  std::int64_t first_ms = 0, last_ms = 0;             ///< of the whole history; 0: there is none
};

/// Not thread-safe. It keeps a bounded number of changes, and forgets the oldest.
class History {
 public:
  static constexpr std::size_t kMostChanges = 200'000;
  static constexpr std::size_t kMostProcesses = 12;  ///< in a view

  explicit History(std::size_t most_changes = kMostChanges) : most_(most_changes) {}

  /// The state at the beginning, or after a gap. `time_ms` may be 0, if it is unknown.
  void set(const PermitsView& view, std::int64_t time_ms);
  /// The next record.
  void add(const TokenRecord& record);
  /// The limits in effect after the last record.
  void note_limits(const PermitsView& view);

  [[nodiscard]] std::vector<std::string> limiters() const;
  /// `steps` from `from_ms` on, exclusive, up to `to_ms`. The permits of a step are those at its end.
  [[nodiscard]] HistoryView view(const std::string& limiter, std::int64_t from_ms, std::int64_t to_ms,
                                 std::size_t steps) const;
  [[nodiscard]] std::int64_t first_ms() const { return moments_.empty() ? 0 : moments_.front().time_ms; }
  [[nodiscard]] std::int64_t last_ms() const { return moments_.empty() ? 0 : moments_.back().time_ms; }
  [[nodiscard]] std::int64_t position() const { return moments_.empty() ? -1 : moments_.back().position; }

 private:
  struct Moment {
    std::int64_t time_ms, position;
  };
  struct Change {
    std::int64_t time_ms;
    std::uint64_t member;
    std::int64_t held;
  };
  struct Limit {
    std::int64_t time_ms, limit;
  };
  struct Series {
    std::map<std::uint64_t, std::int64_t> before{};  ///< what members held before the first change
    std::deque<Change> changes{};
    std::deque<Limit> limits{};
    std::map<std::uint64_t, std::int64_t> now{};
  };
  void pass(std::int64_t time_ms, std::int64_t position);
  void change(const std::string& limiter, const TokenMember& member, std::int64_t held, std::int64_t time_ms);
  void forget_oldest();

  std::size_t most_;
  std::size_t changes_ = 0;
  std::map<std::string, Series> series_;
  std::map<std::uint64_t, std::string> names_;
  std::deque<Moment> moments_;  ///< at most one for each kResolution, and the last
};

}  // namespace turnstile::cli::dashboard
