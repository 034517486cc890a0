#pragma once
// Rates, lags and stalls of topics, out of samples of their offsets. Pure: time is an input.

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "samples.hpp"

namespace turnstile::cli::top {

/// A partition with lag and without progress.
struct Stall {
  TopicPartition at;
  std::int64_t lag = 0;
  std::optional<Offset> committed{};  ///< absent: the group has committed nothing
  std::chrono::milliseconds age{0};   ///< time without progress
  std::string paused_by{};            ///< empty: it is not paused
};

struct TopicState {
  std::string topic;
  bool exists = true;
  std::int64_t partitions = 0;
  std::optional<double> rate{};       ///< committed offsets per second; absent: only one sample so far
  std::optional<std::int64_t> lag{};  ///< over all partitions whose lag is known; absent: it is known of none
  std::int64_t unknown = 0;           ///< partitions whose lag is unknown
  std::int64_t stalled = 0;           ///< partitions
  bool committed = false;             ///< the group has committed an offset in it
};

/// Keeps what is needed of earlier samples.
class Progress {
 public:
  /// Rates are means over this time.
  static constexpr Moment kWindow{10'000};
  /// After a longer time without a sample it is unknown since when a partition stands still.
  static constexpr Moment kGap{5'000};

  /// Samples must come in the order of their times.
  void add(const KafkaSample& sample);
  /// The topics in the order of the last sample. A partition is stalled after `stall_after` without progress.
  [[nodiscard]] std::vector<TopicState> topics(std::chrono::milliseconds stall_after) const;
  /// The stalled partitions, the largest lag first.
  [[nodiscard]] std::vector<Stall> stalls(std::chrono::milliseconds stall_after) const;
  /// Whether a partition has lag, and made no progress in the last two samples or more.
  [[nodiscard]] bool any_standing() const;
  /// Since when all partitions are watched whose lag is known.
  [[nodiscard]] Moment watched_since() const noexcept { return watched_since_; }

 private:
  struct Partition {
    std::optional<Offset> committed{};
    std::optional<std::int64_t> lag{};
    Moment still_since{0};  ///< since when it has lag and makes no progress
  };
  struct Step {
    Moment at{0}, took{0};
    std::int64_t moved = 0;
  };
  struct Topic {
    bool exists = true;
    std::vector<Partition> partitions{};
    std::deque<Step> steps{};
  };
  void add(Topic& topic, const TopicSample& sample, Moment at, std::optional<Moment> before);
  [[nodiscard]] bool is_stalled(const Partition& partition, std::chrono::milliseconds stall_after) const;

  std::optional<Moment> at_{};
  Moment watched_since_{0};
  std::vector<std::string> order_{};
  std::map<std::string, Topic> topics_{};
};

}  // namespace turnstile::cli::top
