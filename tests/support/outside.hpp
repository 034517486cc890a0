#pragma once
// How many handlers run at once, by what their processes have written in their journals (journal.hpp): the limiter is not asked.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/token_topic.hpp"

namespace turnstile::test {

using Nanos = std::int64_t;  ///< CLOCK_MONOTONIC

struct HandlerRun {
  pid_t pid = 0;
  std::int64_t number = 0;
  std::int32_t partition = 0;
  std::int64_t epoch = 0, offset = 0;
  Nanos begin = 0;
  std::optional<Nanos> end{};
  bool stopped = false;  ///< it was asked to stop
};

class Outside {
 public:
  /// Reads what the journals of the folder hold now. `killed`: processes that have ended, by when; nothing of them runs since.
  explicit Outside(const std::string& folder, const std::map<pid_t, Nanos>& killed = {});

  [[nodiscard]] const std::vector<HandlerRun>& runs() const& { return runs_; }
  [[nodiscard]] std::vector<HandlerRun> runs() && { return std::move(runs_); }
  /// Begun and not ended.
  [[nodiscard]] int running(pid_t pid) const;
  /// When the first of its runs began that began after `since`.
  [[nodiscard]] std::optional<Nanos> first_begin(pid_t pid, Nanos since) const;
  /// First claim of a partition by this process after `since`, committed in the database.
  [[nodiscard]] std::optional<Nanos> first_claim(pid_t pid, Nanos since) const;

  struct Question {
    Nanos from = 0;
    std::optional<pid_t> pid{};  ///< of one process alone
    /// From when on a run does not count any more, although it goes on: it can do no harm.
    std::function<std::optional<Nanos>(const HandlerRun&)> harmless{};
  };
  /// Most at once.
  [[nodiscard]] int most(const Question& question) const;
  [[nodiscard]] int most() const { return most(Question{}); }
  /// When so many run at once for the first time since `question.from`.
  [[nodiscard]] std::optional<Nanos> first_with(int count, const Question& question) const;
  /// When more than that ran for the last time.
  [[nodiscard]] std::optional<Nanos> last_above(int count, const Question& question) const;

  /// From when on the database refuses what this run would commit.
  [[nodiscard]] std::optional<Nanos> fenced_at(const HandlerRun& run) const;

 private:
  void sweep(const Question& question, const std::function<bool(Nanos, int)>& at) const;

  std::vector<HandlerRun> runs_;
  struct Claim {
    pid_t pid;
    std::int32_t partition;
    std::int64_t epoch;
    Nanos at;
  };
  std::vector<Claim> claims_;
};

/// When members of this process, by the token log, could first be taken for dead: their own deadline, from when on nothing of what
/// they ran before counts. One for each silence that lasted so long.
std::vector<Nanos> deadlines(const std::vector<LoggedEvent>& log, pid_t pid, std::chrono::milliseconds lease);

}  // namespace turnstile::test
