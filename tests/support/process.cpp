#include "tests/support/process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "tests/support/eventually.hpp"

namespace turnstile::test {

bool is_stopped(pid_t pid) {
  std::error_code gone;
  bool any = false;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone)) {
    std::ifstream file(thread.path() / "stat");
    const std::string stat(std::istreambuf_iterator<char>(file), {});
    const auto state = stat.rfind(')') + 2;  // pid (name) state …
    if (stat.size() <= state) continue;      // the thread has just ended
    if (stat[state] != 'T') return false;
    any = true;
  }
  return any;
}

void stop_and_wait(pid_t pid) {
  if (::kill(pid, SIGSTOP) != 0 || !eventually([&] { return is_stopped(pid); }, std::chrono::seconds(10)))
    throw std::runtime_error("process " + std::to_string(pid) + " does not stop at SIGSTOP");
}

Process::Process(const std::string& program, const std::vector<std::string>& arguments,
                 const std::map<std::string, std::string>& environment, const std::string& output) {
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ > 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(126);
  const int file = ::open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (file >= 0) {
    ::dup2(file, STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
  }
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  ::execv(program.c_str(), argv.data());
  ::_exit(127);
}

Process::Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, -1)), status_(other.status_) {}

Process::~Process() {
  if (pid_ < 0 || ended()) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Process::signal(int number) const { ::kill(pid_, number); }

std::optional<int> Process::ended() {
  if (status_ || pid_ < 0) return status_;
  int raw = 0;
  if (::waitpid(pid_, &raw, WNOHANG) != pid_) return std::nullopt;
  status_ = WIFSIGNALED(raw) ? -WTERMSIG(raw) : WEXITSTATUS(raw);
  return status_;
}

std::optional<int> Process::wait(std::chrono::milliseconds timeout) {
  eventually([&] { return ended().has_value(); }, timeout);
  return status_;
}

}  // namespace turnstile::test
