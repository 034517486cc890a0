#pragma once
// A Consumer that runs in this process, for tests that look into its handlers: started, its log kept, stopped and joined.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "turnstile/consumer.hpp"

namespace turnstile::test {

class Running {
 public:
  using SetUp = std::function<void(Consumer&)>;
  /// `set_up` names the topics and their handlers, which must outlive this.
  Running(Config config, SetUp set_up);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  /// Asks it to stop and waits until it has. What run() threw; empty when it ended by itself.
  std::string stop();
  /// The same without asking: for what refuses to start. Empty also when it still runs after `timeout`.
  std::string failure(std::chrono::milliseconds timeout = std::chrono::seconds(20));

  [[nodiscard]] std::vector<std::string> log() const;
  [[nodiscard]] std::string log_text() const;
  [[nodiscard]] int lines_with(const std::string& text) const;
  /// Waits until a line holds the text.
  [[nodiscard]] bool says(const std::string& text, std::chrono::milliseconds timeout = std::chrono::seconds(20)) const;

 private:
  class Sink;
  std::shared_ptr<Sink> sink_;
  std::unique_ptr<Consumer> consumer_;
  std::string thrown_;  // the thread's, until `ended_`
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace turnstile::test
