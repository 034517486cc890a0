#pragma once
// Runs a Consumer in this process, for tests that look into its handlers: it starts it, captures its log, stops and
// joins it.

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
  /// `set_up` sets the topics and their handlers. The handlers must outlive this object.
  Running(Config config, SetUp set_up);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  /// Requests a stop, and waits for it. Returns the text of the exception of run(); empty if it returned normally.
  std::string stop();
  /// The same without a stop request, for a consumer that refuses to start. Also empty if it still runs after
  /// `timeout`.
  std::string failure(std::chrono::milliseconds timeout = std::chrono::seconds(20));

  [[nodiscard]] std::vector<std::string> log() const;
  [[nodiscard]] std::string log_text() const;
  [[nodiscard]] int lines_with(const std::string& text) const;
  /// Waits until a line contains the text.
  [[nodiscard]] bool says(const std::string& text, std::chrono::milliseconds timeout = std::chrono::seconds(20)) const;

 private:
  class Sink;
  std::shared_ptr<Sink> sink_;
  std::unique_ptr<Consumer> consumer_;
  std::string thrown_;  // used by the thread until `ended_`
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace turnstile::test
