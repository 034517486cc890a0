#pragma once
// An Apache Kafka for one test, which the test can freeze. It lives as long as this object.

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "tests/support/process.hpp"

namespace turnstile::test {

class OwnKafka {
 public:
  /// `creates_topics`: it creates the topics that its clients name.
  explicit OwnKafka(bool creates_topics = false) : creates_topics_(creates_topics) {
    std::string pattern = (std::filesystem::temp_directory_path() / "turnstile-kafka.XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder for Kafka");
    root_ = pattern;
    EXPECT_EQ(run("start"), 0) << "see " << root_ << "/problem";
    std::string answer;
    std::getline(std::ifstream(root_ + "/answer"), answer);
    servers_ = answer.substr(answer.find('=') + 1);
    std::ifstream(root_ + "/kafka/pid") >> pid_;
  }
  ~OwnKafka() {
    thaw();
    run("stop");
    std::filesystem::remove_all(root_);
  }
  OwnKafka(const OwnKafka&) = delete;
  OwnKafka& operator=(const OwnKafka&) = delete;

  [[nodiscard]] const std::string& servers() const noexcept { return servers_; }
  /// Connections stay open, and nothing is answered.
  void freeze() const { stop_and_wait(pid_); }
  void thaw() const {
    if (pid_ > 0) ::kill(pid_, SIGCONT);
  }

 private:
  int run(const std::string& verb) const {
    return std::system(((creates_topics_ ? "TURNSTILE_SCRATCH_CREATES_TOPICS=true " : "") +
                        std::string(TURNSTILE_SOURCE_DIR) + "/tests/support/scratch-kafka " + verb + " " + root_ +
                        "/kafka >" + root_ + "/answer 2>" + root_ + "/problem")
                           .c_str());
  }

  const bool creates_topics_;
  std::string root_;
  std::string servers_;
  pid_t pid_ = 0;
};

}  // namespace turnstile::test
