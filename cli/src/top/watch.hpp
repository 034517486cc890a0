#pragma once
// Samples of Kafka, the token log and PostgreSQL, and the model of them: for `turnstile top` and the dashboard.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "../text.hpp"
#include "gatherer.hpp"
#include "model.hpp"
#include "progress.hpp"

namespace turnstile::cli::top {

/// The time by this machine's clock.
Microseconds utc();

/// Not thread-safe.
class Watch {
 public:
  struct Options {
    std::vector<std::string> topics{};  ///< named by the operator; empty: those of the configuration
    std::optional<std::string> log{};   ///< the token log; absent: as the configuration has it
    std::chrono::milliseconds stall_after{10'000};
  };

  /// `config` must outlive it. Any thread calls `on_news`.
  Watch(const Config& config, const Options& options, std::function<void()> on_news);

  /// Takes what the sources have told. Returns whether there is a new sample of Kafka.
  bool refresh();
  [[nodiscard]] Model model() const;

  /// Whether it knows enough for a single look: a rate, and of each partition that stands still whether it is stalled.
  [[nodiscard]] bool knows_enough() const;
  /// For a single look: a source that has not answered yet is unavailable.
  void give_up();
  [[nodiscard]] bool any_unavailable() const;

  std::optional<std::string> take_result();
  void change(const LimitChange& change) { gatherer_.change(change); }

  /// Call it when the output is complete. Does not return if a request still waits for a server: its thread, and
  /// librdkafka's, could hold up the end of the process for many seconds.
  void end(int exit);

 private:
  const std::string group_;
  const std::chrono::milliseconds stall_after_;
  Progress progress_;
  Gatherer::News news_;
  std::optional<std::string> result_;
  int samples_ = 0;
  Moment first_{0}, last_{0};
  Gatherer gatherer_;
};

}  // namespace turnstile::cli::top
