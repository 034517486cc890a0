#pragma once
// A PgBouncer in front of the test's PostgreSQL, as long as this object lives.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/postgres_schema.hpp"

namespace turnstile::test {

class OwnPgBouncer {
 public:
  /// `mode` is session or transaction.
  explicit OwnPgBouncer(const std::string& mode) {
    std::string pattern = (std::filesystem::temp_directory_path() / "turnstile-pgbouncer.XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder for PgBouncer");
    root_ = pattern;
    std::filesystem::permissions(root_, std::filesystem::perms::owner_all | std::filesystem::perms::others_exec);
    const int status = run("start", "'" + postgres_url().value() + "' " + mode);
    std::getline(std::ifstream(root_ + "/answer"), url_);
    missing_ = WIFEXITED(status) && WEXITSTATUS(status) == 77;
    EXPECT_TRUE(status == 0 || missing_) << url_;
  }
  ~OwnPgBouncer() {
    run("stop", "");
    std::filesystem::remove_all(root_);
  }
  OwnPgBouncer(const OwnPgBouncer&) = delete;
  OwnPgBouncer& operator=(const OwnPgBouncer&) = delete;

  /// Whether PgBouncer is not installed.
  [[nodiscard]] bool missing() const noexcept { return missing_; }
  [[nodiscard]] const std::string& url() const noexcept { return url_; }

 private:
  int run(const std::string& verb, const std::string& more) {
    return std::system((std::string(TURNSTILE_SOURCE_DIR) + "/tests/support/scratch-pgbouncer " + verb + " " + root_ +
                        "/pgbouncer " + more + " > " + root_ + "/answer 2>" + root_ + "/problem")
                           .c_str());
  }

  std::string root_;
  std::string url_;
  bool missing_ = false;
};

}  // namespace turnstile::test
