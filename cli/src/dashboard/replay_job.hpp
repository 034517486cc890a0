#pragma once
// A replay of dead letters on a thread of its own, one at a time.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "../replayer.hpp"
#include "../text.hpp"

namespace turnstile::cli::dashboard {

class ReplayJob {
 public:
  ReplayJob() = default;
  ~ReplayJob();
  ReplayJob(const ReplayJob&) = delete;
  ReplayJob& operator=(const ReplayJob&) = delete;

  /// Throws Refusal if one runs. `config` must outlive it.
  void start(const Config& config, std::int64_t expected, std::function<void(Replayer&)> work);
  /// It ends after the dead letter that it publishes now.
  void stop();
  void wait();
  [[nodiscard]] Json state() const;

 private:
  class Listener;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool running_ = false, stopping_ = false;
  Json state_ = nullptr;
  std::thread thread_;
};

}  // namespace turnstile::cli::dashboard
