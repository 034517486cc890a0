#pragma once
// Starts, kills and checks consumer processes. None outlives the demo.

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace demo {

class Processes {
 public:
  /// `name` is the name of the processes, "consumer". Logs go to `folder`/NAME-N.log.
  Processes(std::string folder, std::string name) : folder_(std::move(folder)), name_(std::move(name)) {}
  ~Processes() { kill_all(); }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  /// Starts this program again with these arguments, as consumer `number`. Throws std::system_error.
  void start(int number, const std::vector<std::string>& arguments);
  /// Stops the process (SIGSTOP) if the condition holds once it stands still.
  bool suspend_if(int number, const std::function<bool()>& condition);
  /// Sends kill -9, and waits until the process has ended. Throws std::runtime_error if it had already ended by itself.
  void kill(int number);
  /// Kills all running processes without messages.
  void kill_all() noexcept;
  /// Throws std::runtime_error, with the end of its log, if a process has ended that was not killed.
  void check();
  /// Sends SIGTERM to all, and waits for them. Throws as check() if a process does not exit with 0 within 30 s.
  void stop();
  [[nodiscard]] pid_t pid(int number) const;
  [[nodiscard]] std::string log(int number) const;

 private:
  /// The end of the log, indented, for an error text.
  [[nodiscard]] std::string last_words(int number) const;

  std::string folder_;
  std::string name_;
  std::map<int, pid_t> running_;
};

}  // namespace demo
