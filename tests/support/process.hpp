#pragma once
// A child process of a test: it starts, signals and waits with a time limit. The destructor kills it.

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace turnstile::test {

/// Whether none of its threads runs. SIGSTOP arrives some time after kill() has returned, at each thread separately.
[[nodiscard]] bool is_stopped(pid_t pid);
/// Sends SIGSTOP and waits until it has arrived. Throws std::runtime_error after 10 s.
void stop_and_wait(pid_t pid);

class Process {
 public:
  /// `environment` is added to this process's own. The child's stdout and stderr go to the file `output`.
  Process(const std::string& program, const std::vector<std::string>& arguments,
          const std::map<std::string, std::string>& environment, const std::string& output);
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;

  void signal(int number) const;
  void freeze() const { stop_and_wait(pid_); }
  void thaw() const { signal(SIGCONT); }
  /// Whether it is stopped (SIGSTOP), by itself or by others.
  [[nodiscard]] bool is_stopped() const { return test::is_stopped(pid_); }
  /// Absent: it still runs. Negative: this signal ended it.
  std::optional<int> ended();
  std::optional<int> wait(std::chrono::milliseconds timeout);
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

 private:
  pid_t pid_ = -1;
  std::optional<int> status_;
};

}  // namespace turnstile::test
