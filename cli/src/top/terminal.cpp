#include "terminal.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>

namespace turnstile::cli::top {

namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
// The alternate screen, no cursor, no line that continues in the next one.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J";
constexpr std::string_view kLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// How long leave() waits for a terminal that takes no output.
constexpr std::chrono::milliseconds kLeaveWait{300};

int open_again(int descriptor) {
  std::array<char, 256> name{};
  if (ttyname_r(descriptor, name.data(), name.size()) == 0) {
    const int opened = open(name.data(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (opened >= 0) return opened;
  }
  return fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
}

}  // namespace

Signals::Signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kSignals) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  descriptor_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
}

Signals::~Signals() { close(descriptor_); }

std::vector<int> Signals::take() const {
  std::vector<int> signals;
  signalfd_siginfo info{};
  while (::read(descriptor_, &info, sizeof info) == static_cast<ssize_t>(sizeof info))
    signals.push_back(static_cast<int>(info.ssi_signo));
  return signals;
}

std::string Terminal::why_not() {
  if (isatty(STDIN_FILENO) == 0) return "stdin is no terminal";
  if (isatty(STDOUT_FILENO) == 0) return "stdout is no terminal";
  const char* kind = std::getenv("TERM");
  if (kind == nullptr || *kind == '\0' || std::string_view(kind) == "dumb")
    return "the terminal cannot show a screen (TERM is \"dumb\", or not set)";
  return "";
}

Terminal::Terminal() : output_(open_again(STDOUT_FILENO)) {
  if (output_ < 0) throw std::system_error(errno, std::generic_category(), "opening the terminal");
  enter();
}

Terminal::~Terminal() {
  leave();
  close(output_);
}

void Terminal::enter() {
  if (!entered_ && tcgetattr(STDIN_FILENO, &before_) != 0)
    throw std::system_error(errno, std::generic_category(), "reading the terminal's mode");
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C and Ctrl-Z stay signals
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) != 0)
    throw std::system_error(errno, std::generic_category(), "setting the terminal's mode");
  entered_ = true;
  shown_.clear();
  shown_size_ = {0, 0};
  pending_ = kEnter;
  flush();
}

void Terminal::leave() noexcept {
  if (!entered_) return;
  entered_ = false;
  // The rest of a screen that was not written is dropped; a sequence that was cut ends with kLeave's first byte.
  try {
    pending_ = kLeave;
    const auto late = std::chrono::steady_clock::now() + kLeaveWait;
    for (flush(); !pending_.empty() && std::chrono::steady_clock::now() < late; flush()) {
      pollfd ready{output_, POLLOUT, 0};
      poll(&ready, 1, 20);
    }
  } catch (...) {  // no memory: the mode is more important
  }
  tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

Terminal::Size Terminal::size() const {
  winsize window{};
  if (ioctl(output_, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 || window.ws_row == 0) return {};
  return {window.ws_col, window.ws_row};
}

void Terminal::show(const std::vector<std::string>& lines, Size size) {
  std::string text;
  if (size.columns != shown_size_.columns || size.rows != shown_size_.rows) {
    text += "\x1b[H\x1b[2J";
    shown_.clear();
    shown_size_ = size;
  }
  for (std::size_t i = 0; i < std::max(lines.size(), shown_.size()); ++i) {
    const std::string_view line = i < lines.size() ? std::string_view(lines[i]) : std::string_view();
    if (i < shown_.size() && shown_[i] == line) continue;
    text += "\x1b[" + std::to_string(i + 1) + ";1H";
    text += line;
    text += "\x1b[K";
  }
  shown_ = lines;
  pending_ += text;
  flush();
}

void Terminal::flush() {
  while (!pending_.empty()) {
    const auto wrote = ::write(output_, pending_.data(), pending_.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno != EAGAIN) pending_.clear();  // it has hung up: read() reports it
    if (wrote <= 0) return;
    pending_.erase(0, static_cast<std::size_t>(wrote));
  }
}

std::string Terminal::read(bool& hung_up) {
  std::array<char, 256> bytes{};
  const auto got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
  // With VMIN 0 a terminal without keys returns 0, as a terminal that has hung up; poll() distinguishes them.
  if (got > 0) return {bytes.data(), static_cast<std::size_t>(got)};
  pollfd ready{STDIN_FILENO, POLLIN, 0};
  poll(&ready, 1, 0);
  hung_up = (ready.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0 || (got < 0 && errno == EIO);
  return "";
}

}  // namespace turnstile::cli::top
