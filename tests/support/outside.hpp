#pragma once
// Counts the handlers that run at once from the journals of their processes (journal.hpp), without the limiter.

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
  bool stopped = false;  ///< its stop_token was set
};

class Outside {
 public:
  /// Reads the current contents of the folder's journals. `killed` has the processes that have ended, with the time
  /// after which nothing of them runs.
  explicit Outside(const std::string& folder, const std::map<pid_t, Nanos>& killed = {});

  [[nodiscard]] const std::vector<HandlerRun>& runs() const& { return runs_; }
  [[nodiscard]] std::vector<HandlerRun> runs() && { return std::move(runs_); }
  /// Handlers that started and have not ended.
  [[nodiscard]] int running(pid_t pid) const;
  /// The start of its first run after `since`.
  [[nodiscard]] std::optional<Nanos> first_begin(pid_t pid, Nanos since) const;
  /// The first claim of a partition by this process after `since`, committed in the database.
  [[nodiscard]] std::optional<Nanos> first_claim(pid_t pid, Nanos since) const;

  struct Question {
    Nanos from = 0;
    std::optional<pid_t> pid{};  ///< only this process
    /// From when on a run does not count, although it continues: it can do no harm.
    std::function<std::optional<Nanos>(const HandlerRun&)> harmless{};
  };
  /// The most that ran at once.
  [[nodiscard]] int most(const Question& question) const;
  [[nodiscard]] int most() const { return most(Question{}); }
  /// When this number first ran at once since `question.from`.
  [[nodiscard]] std::optional<Nanos> first_with(int count, const Question& question) const;
  /// When more than this number last ran at once.
  [[nodiscard]] std::optional<Nanos> last_above(int count, const Question& question) const;

  /// From when on the database rejects the commit of this run.
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

/// When members of this process could first be considered dead, by the token log. It is their own deadline: from then
/// on their earlier runs do not count. There is one for each silence of at least a lease.
std::vector<Nanos> deadlines(const std::vector<LoggedEvent>& log, pid_t pid, std::chrono::milliseconds lease);

}  // namespace turnstile::test
