#include "processes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <deque>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace demo {
namespace {

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return fmt::format("exited with code {}", WEXITSTATUS(status));
}

/// Between fork and exec: only async-signal-safe calls.
[[noreturn]] void become(const char* log, char* const* argv, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent ended before prctl()
  const int out = ::open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (out < 0 || ::dup2(out, STDOUT_FILENO) < 0 || ::dup2(out, STDERR_FILENO) < 0) ::_exit(127);
  ::execv("/proc/self/exe", argv);
  ::_exit(127);
}

}  // namespace

void Processes::kill_all() noexcept {
  for (const auto& [number, pid] : running_) ::kill(pid, SIGKILL);
  for (const auto& [number, pid] : running_) ::waitpid(pid, nullptr, 0);
  running_.clear();
}

void Processes::start(int number, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{fmt::format("turnstile-demo-{}-{}", name_, number)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string log_file = log(number);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid == 0) become(log_file.c_str(), argv.data(), parent);
  running_[number] = pid;
}

bool Processes::suspend_if(int number, const std::function<bool()>& condition) {
  const pid_t pid = running_.at(number);
  int status = 0;
  if (::kill(pid, SIGSTOP) != 0 || ::waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status)) {
    running_.erase(number);
    throw std::runtime_error(fmt::format("{} {} {} before it could be killed", name_, number, how_it_ended(status)));
  }
  if (condition()) return true;
  ::kill(pid, SIGCONT);
  return false;
}

void Processes::kill(int number) {
  check();
  const pid_t pid = running_.at(number);
  ::kill(pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
  running_.erase(number);
  if (!WIFSIGNALED(status)) {
    throw std::runtime_error(fmt::format("{} {} {} before it could be killed", name_, number, how_it_ended(status)));
  }
}

void Processes::check() {
  for (const auto& [number, pid] : running_) {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == 0) continue;
    const std::string what =
        fmt::format("{} {} {}; the end of its log:\n{}", name_, number, how_it_ended(status), last_words(number));
    running_.erase(number);
    throw std::runtime_error(what);
  }
}

void Processes::stop() {
  for (const auto& [number, pid] : running_) ::kill(pid, SIGTERM);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!running_.empty()) {
    const auto [number, pid] = *running_.begin();
    int status = 0;
    const bool gone = ::waitpid(pid, &status, WNOHANG) != 0;
    if (gone) {
      running_.erase(number);
      if (status == 0) continue;
      throw std::runtime_error(fmt::format("{} {} {} when it was to stop; the end of its log:\n{}", name_, number,
                                           how_it_ended(status), last_words(number)));
    }
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error(
          fmt::format("{} {} did not stop within 30 s; the end of its log:\n{}", name_, number, last_words(number)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

pid_t Processes::pid(int number) const {
  const auto found = running_.find(number);
  return found == running_.end() ? 0 : found->second;
}

std::string Processes::log(int number) const { return fmt::format("{}/{}-{}.log", folder_, name_, number); }

std::string Processes::last_words(int number) const {
  std::ifstream file(log(number));
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(std::move(line));
    if (lines.size() > 15) lines.pop_front();
  }
  std::string text;
  for (const std::string& line : lines) text += "    " + line + "\n";
  return text.empty() ? "    (empty)\n" : text;
}

}  // namespace demo
