#pragma once
// Asks the three sources, each on a thread of its own, so that one that does not answer holds up neither the others nor
// the screen.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "samples.hpp"
#include "sources.hpp"

namespace turnstile::cli::top {

class Gatherer {
 public:
  struct Options {
    std::vector<std::string> topics;  ///< named by the operator; empty: those of the configuration
    std::optional<std::string> log;   ///< the token log; absent: as the configuration has it
    std::chrono::milliseconds interval{1'000};
  };
  /// Everything that is known now.
  struct News {
    std::vector<KafkaSample> kafka{};  ///< since the last call
    std::optional<TokenSample> tokens{};
    std::optional<DatabaseSample> database{};
    Source kafka_source{}, token_source{}, database_source{};
    std::optional<std::string> result{};  ///< of a change that has ended
  };

  /// `config` must outlive it. Any thread calls `on_news`.
  Gatherer(const Config& config, Options options, std::function<void()> on_news);
  ~Gatherer();
  Gatherer(const Gatherer&) = delete;
  Gatherer& operator=(const Gatherer&) = delete;

  News take();
  /// The thread of the token log makes the change.
  void change(LimitChange change);
  /// Asks the threads to end. False if one still waits for a server after `timeout`: then only the end of the process
  /// ends it.
  bool stop(std::chrono::milliseconds timeout);

  /// The time that samples and sources have.
  [[nodiscard]] Moment now() const;

 private:
  void ask_kafka();
  void ask_token_log();
  void ask_database();
  /// Calls `look` again and again, and rests for the time that it returns.
  void repeat(Source& source, const std::function<std::chrono::milliseconds()>& look);
  /// Turns what `look` throws into the state of `source`. Returns the time to rest.
  std::chrono::milliseconds look_once(Source& source, const std::function<std::chrono::milliseconds()>& look);
  void tell(Source& source, Source::State state, const std::string& why);
  /// It still asks, and a server has answered.
  void tell_progress(Source& source, const std::string& what);
  void make_change();
  void start(void (Gatherer::*ask)());
  [[nodiscard]] bool stopping() const { return stopping_.load(); }

  const Config& config_;
  const Options options_;
  const std::function<void()> on_news_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> stopping_{false};
  int running_ = 0;
  News news_{};
  std::vector<std::string> found_topics_{};  ///< by the database, for Kafka
  std::optional<LimitChange> wanted_{};
  std::optional<TokenSource> tokens_{};  ///< only its thread uses it
  std::vector<std::thread> threads_{};
};

}  // namespace turnstile::cli::top
