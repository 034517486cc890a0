#pragma once
// `turnstile` in a pseudo-terminal, as a person has it: its screen, its keys, and the terminal's mode.

#include <termios.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "tests/support/cli.hpp"

namespace turnstile::test {

class PseudoTerminal {
 public:
  /// Starts the program. `environment` is its whole environment, besides PATH and HOME.
  PseudoTerminal(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& environment,
                 const TemporaryFolder& folder, int columns = 80, int rows = 24);
  /// Kills it if it still runs.
  ~PseudoTerminal();
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  /// The screen as it is now, with a line feed after each line.
  std::string screen();
  /// Waits until the screen contains the text.
  bool shows(const std::string& text, std::chrono::seconds within = std::chrono::seconds(30));
  void press(const std::string& keys) const;
  void resize(int columns, int rows);
  void signal(int number) const;
  /// Waits until it has stopped, as after Ctrl-Z.
  bool stops(std::chrono::seconds within = std::chrono::seconds(10));
  /// Waits until it has ended. The exit code, or 128 + the signal's number; -1 if it has not ended.
  int ends(std::chrono::seconds within = std::chrono::seconds(10));
  /// The processor time of the program that has ended.
  [[nodiscard]] std::chrono::microseconds cpu_time() const noexcept { return cpu_time_; }
  /// Whether the mode is as before the start, and the first screen is shown with its cursor.
  bool is_restored();

 private:
  void read_output();
  void take(char byte);
  void obey(const std::string& sequence);

  int terminal_ = -1;
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
  std::chrono::microseconds cpu_time_{0};
  termios before_{};
  int columns_, rows_;
  std::vector<std::string> lines_;
  int row_ = 0, column_ = 0;
  bool alternate_ = false, cursor_ = true, wraps_ = true;
  std::string sequence_{};  ///< an escape sequence that has begun
};

}  // namespace turnstile::test
