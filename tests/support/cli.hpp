#pragma once
// Runs the built `turnstile` as a person does, in an empty folder, and captures its output.

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace turnstile::test {

/// A folder that is deleted with its contents by the destructor.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  void write(const std::string& name, const std::string& text) const;

 private:
  std::filesystem::path path_;
};

struct Finished {
  int code = -1;  ///< the exit code; 128 + the signal's number after a signal; -1 if it had to be killed
  std::string out;
  std::string err;
};

/// A process of `turnstile`. The destructor kills it if it still runs.
class CliProcess {
 public:
  /// `environment` is its whole environment, besides PATH and HOME.
  CliProcess(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& environment,
             const std::filesystem::path& folder);
  ~CliProcess();
  CliProcess(const CliProcess&) = delete;
  CliProcess& operator=(const CliProcess&) = delete;

  /// The first line on stdout. Empty if none arrives in time.
  std::string first_line(std::chrono::seconds within);
  /// Waits until `text` is on stdout. False if it is not there in time.
  bool prints(std::string_view text, std::chrono::seconds within);
  void signal(int number) const;
  /// Kills it if it does not end in time.
  Finished wait(std::chrono::seconds within);

 private:
  [[nodiscard]] std::string read(const char* name) const;
  /// Calls `done` with stdout until it returns true.
  bool read_until(const std::function<bool(const std::string&)>& done, std::chrono::seconds within);

  TemporaryFolder output_;
  pid_t pid_ = -1;
};

/// Enough for most tests: a folder, options for every run, and `run("inbox", "stats")`.
class Cli {
 public:
  template <class... Arguments>
  Finished run(const Arguments&... arguments) {
    return run_all({std::string(arguments)...});
  }
  Finished run_all(std::vector<std::string> arguments);
  [[nodiscard]] const TemporaryFolder& folder() const noexcept { return folder_; }
  std::map<std::string, std::string>& environment() noexcept { return environment_; }

 private:
  TemporaryFolder folder_;
  std::map<std::string, std::string> environment_;
};

}  // namespace turnstile::test
