#include "tests/support/cli.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

namespace turnstile::test {

namespace {

using Clock = std::chrono::steady_clock;

/// Waits for an event on the descriptor, until `end`.
void wait_for(int descriptor, short events, Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  pollfd waiting{descriptor, events, 0};
  if (left > 0) poll(&waiting, 1, static_cast<int>(left));
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (auto& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

std::vector<std::string> as_list(const std::map<std::string, std::string>& environment) {
  std::vector<std::string> list;
  for (const char* kept : {"PATH", "HOME", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"}) {
    if (const char* value = std::getenv(kept)) list.push_back(std::string(kept) + "=" + value);
  }
  for (const auto& [name, value] : environment) list.push_back(name + "=" + value);
  return list;
}

void redirect(const char* file, int flags, int to) {
  const int descriptor = open(file, flags | O_CLOEXEC, 0600);
  if (descriptor < 0 || dup2(descriptor, to) < 0) _exit(127);
}

int exit_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "turnstile.XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), name);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void TemporaryFolder::write(const std::string& name, const std::string& text) const {
  std::ofstream(path_ / name, std::ios::binary) << text;
}

CliProcess::CliProcess(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& environment,
                       const std::filesystem::path& folder) {
  const std::string program = TURNSTILE_BIN_DIR "/turnstile";
  if (!std::filesystem::exists(program)) throw std::runtime_error(program + " is not built");
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  auto variables = as_list(environment);
  const auto argv = pointers(words), envp = pointers(variables);
  const std::string out = output_.path() / "out", err = output_.path() / "err";
  std::ofstream{out};
  pid_ = fork();
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid_ > 0) return;
  // Only calls that are safe after a fork in a process with threads.
  redirect("/dev/null", O_RDONLY, STDIN_FILENO);
  redirect(out.c_str(), O_WRONLY | O_CREAT, STDOUT_FILENO);
  redirect(err.c_str(), O_WRONLY | O_CREAT, STDERR_FILENO);
  if (chdir(folder.c_str()) != 0) _exit(127);
  execve(program.c_str(), argv.data(), envp.data());
  _exit(127);
}

CliProcess::~CliProcess() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string CliProcess::read(const char* name) const {
  std::ifstream in(output_.path() / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool CliProcess::read_until(const std::function<bool(const std::string&)>& done, std::chrono::seconds within) {
  const auto end = Clock::now() + within;
  while (Clock::now() < end) {
    if (done(read("out"))) return true;
    wait_for(-1, 0, std::min(end, Clock::now() + std::chrono::milliseconds(10)));
  }
  return false;
}

std::string CliProcess::first_line(std::chrono::seconds within) {
  std::string line;
  read_until(
      [&](const std::string& text) {
        const auto end = text.find('\n');
        if (end != std::string::npos) line = text.substr(0, end);
        return end != std::string::npos;
      },
      within);
  return line;
}

bool CliProcess::prints(std::string_view text, std::chrono::seconds within) {
  return read_until([text](const std::string& all) { return all.find(text) != std::string::npos; }, within);
}

void CliProcess::signal(int number) const { kill(pid_, number); }

Finished CliProcess::wait(std::chrono::seconds within) {
  const int ended = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (ended < 0) throw std::system_error(errno, std::generic_category(), "pidfd_open");
  wait_for(ended, POLLIN, Clock::now() + within);
  close(ended);
  Finished finished;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == pid_) {
    finished.code = exit_code(status);
  } else {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
  }
  pid_ = -1;
  finished.out = read("out");
  finished.err = read("err");
  return finished;
}

Finished Cli::run_all(std::vector<std::string> arguments) {
  return CliProcess(arguments, environment_, folder_.path()).wait(std::chrono::seconds(60));
}

}  // namespace turnstile::test
