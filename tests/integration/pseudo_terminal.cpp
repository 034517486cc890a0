#include "tests/integration/pseudo_terminal.hpp"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "tests/support/eventually.hpp"

namespace turnstile::test {

PseudoTerminal::PseudoTerminal(const std::vector<std::string>& arguments,
                               const std::map<std::string, std::string>& environment, const TemporaryFolder& folder,
                               int columns, int rows)
    : columns_(columns), rows_(rows), lines_(static_cast<std::size_t>(rows)) {
  std::vector<std::string> words{TURNSTILE_BIN_DIR "/turnstile"}, variables;
  words.insert(words.end(), arguments.begin(), arguments.end());
  for (const char* kept : {"PATH", "HOME", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"}) {
    if (const char* value = std::getenv(kept)) variables.push_back(std::string(kept) + "=" + value);
  }
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  if (!environment.contains("TERM")) variables.emplace_back("TERM=xterm");
  std::vector<char*> argv, envp;
  for (auto& word : words) argv.push_back(word.data());
  for (auto& variable : variables) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  const std::string where = folder.path();
  winsize size{static_cast<unsigned short>(rows), static_cast<unsigned short>(columns), 0, 0};
  pid_ = forkpty(&terminal_, nullptr, nullptr, &size);
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "forkpty");
  if (pid_ == 0) {
    // Only calls that are safe after a fork in a process with threads. It waits until the test has the first mode.
    char go = 0;
    if (chdir(where.c_str()) != 0 || read(STDIN_FILENO, &go, 1) != 1) _exit(127);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  if (tcgetattr(terminal_, &before_) != 0) throw std::system_error(errno, std::generic_category(), "tcgetattr");
  press("\n");
}

PseudoTerminal::~PseudoTerminal() {
  if (!ended_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(terminal_);
}

void PseudoTerminal::press(const std::string& keys) const {
  if (write(terminal_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size()))
    throw std::system_error(errno, std::generic_category(), "writing to the pseudo-terminal");
}

void PseudoTerminal::resize(int columns, int rows) {
  screen();
  columns_ = columns;
  rows_ = rows;
  lines_.resize(static_cast<std::size_t>(rows));
  winsize size{static_cast<unsigned short>(rows), static_cast<unsigned short>(columns), 0, 0};
  ioctl(terminal_, TIOCSWINSZ, &size);
}

void PseudoTerminal::signal(int number) const { kill(pid_, number); }

bool PseudoTerminal::stops(std::chrono::seconds within) {
  return eventually(
      [&] {
        read_output();
        return waitpid(pid_, &status_, WNOHANG | WUNTRACED) == pid_ && WIFSTOPPED(status_);
      },
      within);
}

int PseudoTerminal::ends(std::chrono::seconds within) {
  rusage used{};
  ended_ = ended_ || eventually(
                         [&] {
                           read_output();
                           return wait4(pid_, &status_, WNOHANG, &used) == pid_;
                         },
                         within);
  read_output();
  if (!ended_) return -1;
  for (const auto& time : {used.ru_utime, used.ru_stime})
    cpu_time_ += std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

bool PseudoTerminal::is_restored() {
  read_output();
  termios now{};
  if (tcgetattr(terminal_, &now) != 0) return false;
  return now.c_lflag == before_.c_lflag && now.c_iflag == before_.c_iflag && now.c_oflag == before_.c_oflag &&
         std::memcmp(now.c_cc, before_.c_cc, sizeof now.c_cc) == 0 && !alternate_ && cursor_ && wraps_;
}

std::string PseudoTerminal::screen() {
  read_output();
  std::string text;
  for (const auto& line : lines_) text += line + "\n";
  return text;
}

bool PseudoTerminal::shows(const std::string& text, std::chrono::seconds within) {
  return eventually([&] { return screen().find(text) != std::string::npos; }, within);
}

void PseudoTerminal::read_output() {
  std::array<char, 4096> bytes{};
  for (pollfd ready{terminal_, POLLIN, 0}; poll(&ready, 1, 0) > 0 && (ready.revents & POLLIN) != 0;) {
    const auto got = read(terminal_, bytes.data(), bytes.size());
    if (got <= 0) return;
    for (ssize_t i = 0; i < got; ++i) take(bytes[static_cast<std::size_t>(i)]);
  }
}

void PseudoTerminal::take(char byte) {
  if (!sequence_.empty()) {
    sequence_ += byte;
    const bool ends = sequence_.size() > 2 && byte >= 0x40 && byte <= 0x7e;
    if (!ends) return;
    obey(sequence_);
    sequence_.clear();
  } else if (byte == '\x1b') {
    sequence_ = byte;
  } else if (byte == '\r') {
    column_ = 0;
  } else if (byte == '\n') {
    row_ = std::min(row_ + 1, rows_ - 1);
  } else if (row_ < rows_) {
    auto& line = lines_[static_cast<std::size_t>(row_)];
    if (line.size() < static_cast<std::size_t>(column_) + 1) line.resize(static_cast<std::size_t>(column_) + 1, ' ');
    line[static_cast<std::size_t>(column_++)] = byte;  // in bytes: enough for lines that are written as a whole
  }
}

/// Throws for a sequence that the program should not write.
void PseudoTerminal::obey(const std::string& sequence) {
  const std::string code = sequence.substr(2);
  if (code == "?1049h" || code == "?1049l") alternate_ = code.back() == 'h';
  else if (code == "?25h" || code == "?25l") cursor_ = code.back() == 'h';
  else if (code == "?7h" || code == "?7l") wraps_ = code.back() == 'h';
  else if (code == "2J") lines_.assign(static_cast<std::size_t>(rows_), "");
  else if (code == "K") {
    if (row_ < rows_) lines_[static_cast<std::size_t>(row_)].resize(static_cast<std::size_t>(column_), ' ');
  } else if (code == "H") row_ = column_ = 0;
  else if (code.back() == 'H') {
    row_ = std::atoi(code.c_str()) - 1;
    column_ = 0;
  } else throw std::runtime_error("the program wrote an unknown sequence to the terminal: " + code);
}

}  // namespace turnstile::test
