#pragma once
// A PostgreSQL of a test's own, which it may break.

#include <gtest/gtest.h>
#include <sys/types.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/eventually.hpp"
#include "tests/support/postgres_schema.hpp"
#include "tests/support/process.hpp"

namespace turnstile::test {

/// A PostgreSQL of the test's own, so that what happens to it affects no other test.
class OwnPostgres {
 public:
  OwnPostgres() {
    root_ = (std::filesystem::temp_directory_path() / "turnstile-pg-XXXXXX").string();
    if (::mkdtemp(root_.data()) == nullptr) throw std::runtime_error("no folder " + root_);
    run("start");
    std::ifstream answer(root_ + "/answer");
    std::string line;
    std::getline(answer, line);
    url_ = line.substr(line.find('=') + 1);
  }
  ~OwnPostgres() {
    for (const pid_t writer : writers_) ::kill(writer, SIGCONT);
    run("stop");
    std::filesystem::remove_all(root_);
  }
  OwnPostgres(const OwnPostgres&) = delete;
  OwnPostgres& operator=(const OwnPostgres&) = delete;

  [[nodiscard]] const std::string& url() const noexcept { return url_; }
  /// The copy is like a backup, or like a replica that is far behind.
  void keep_copy() {
    run("kill");
    std::filesystem::remove_all(root_ + "/copy");
    EXPECT_EQ(std::system(("cp -a " + root_ + "/pg/data " + root_ + "/copy").c_str()), 0);
    run("restart");
  }
  void go_back_to_copy() {
    run("kill");
    std::filesystem::remove_all(root_ + "/pg/data");
    EXPECT_EQ(std::system(("cp -a " + root_ + "/copy " + root_ + "/pg/data").c_str()), 0);
    run("restart");
  }
  /// From now on only the backends of clients write the log to the disk, when a commit waits for that.
  void hold_writers() {
    Sql sql(url_);
    for (const std::string& pid :
         sql.column("SELECT pid FROM pg_stat_activity WHERE backend_type NOT LIKE 'autovacuum w%' AND "
                    "backend_type <> 'client backend'")) {
      writers_.push_back(static_cast<pid_t>(std::stol(pid)));
      stop_and_wait(writers_.back());
    }
  }
  /// As if the kernel had killed the processes that hold_writers() stopped, because memory ran out. The server goes on,
  /// and recovers without commits that did not wait for the disk. It waits until the server answers.
  void crash() {
    const auto recovered_up_to = [this] { return Sql(url_).one("SELECT concat(pg_last_wal_replay_lsn())"); };
    const std::string before = recovered_up_to();
    for (const pid_t writer : std::exchange(writers_, {})) ::kill(writer, SIGKILL);
    const bool answers = eventually([&] {
      try {
        return recovered_up_to() != before;
      } catch (const std::runtime_error&) {
        return false;
      }
    });
    if (!answers) throw std::runtime_error("PostgreSQL has not recovered");
  }
  /// Runs a command of tests/support/scratch-postgres.
  void run(const std::string& verb, const std::string& more = {}) {
    const std::string command = std::string(TURNSTILE_SOURCE_DIR) + "/tests/support/scratch-postgres " + verb + " " +
                                root_ + "/pg " + more + " > " + root_ + "/answer 2>&1";
    const int status = std::system(command.c_str());
    EXPECT_EQ(status, 0) << command;
  }

 private:
  std::string root_;
  std::string url_;
  std::vector<pid_t> writers_;
};

}  // namespace turnstile::test
