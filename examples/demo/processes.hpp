#pragma once
// Consumer processes: started, killed, looked after. None outlives the demo.

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace demo {

class Processes {
 public:
  /// `name`: of what it starts, "consumer". Logs go to `folder`/NAME-N.log.
  Processes(std::string folder, std::string name) : folder_(std::move(folder)), name_(std::move(name)) {}
  ~Processes() { kill_all(); }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  /// This program again, with these arguments, as consumer `number`. Throws std::system_error.
  void start(int number, const std::vector<std::string>& arguments);
  /// kill -9, and waits until it is gone. Throws std::runtime_error when it had ended before by itself.
  void kill(int number);
  /// Whatever still runs; says nothing.
  void kill_all() noexcept;
  /// Throws std::runtime_error, with the end of its log, when a process that was not killed is gone.
  void check();
  /// SIGTERM to all, and waits for them; throws as check() when one does not exit with 0, or not within 30 s.
  void stop();
  [[nodiscard]] pid_t pid(int number) const;
  [[nodiscard]] std::string log(int number) const;

 private:
  /// The end of the log, indented, for a message.
  [[nodiscard]] std::string last_words(int number) const;

  std::string folder_;
  std::string name_;
  std::map<int, pid_t> running_;
};

}  // namespace demo
