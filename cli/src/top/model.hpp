#pragma once
// What `turnstile top` shows, and in which order. Pure.

#include <optional>
#include <string>
#include <vector>

#include "progress.hpp"
#include "samples.hpp"

namespace turnstile::cli::top {

enum class Sort : std::uint8_t { lag, rate, name };
const char* to_text(Sort sort);
Sort next(Sort sort);

struct TopicView {
  TopicState state{};
  std::optional<std::int64_t> dead{};  ///< dead letters of the group that were not replayed; absent: unknown
  bool paused = false;                 ///< as a whole
  std::int64_t paused_parts = 0;       ///< paused partitions and keys
};

struct ProcessView {
  std::string client{}, host{};  ///< empty if unknown
  std::uint32_t pid = 0;
  std::int64_t held = 0, in_use = 0, waiting = 0;
  bool draining = false;

  /// "billing@host1:4711", with its bytes as they are
  [[nodiscard]] std::string name() const;
};

struct LimiterView {
  std::string limiter;
  std::int64_t limit = 0;
  bool set = false;  ///< by an operator
  std::int64_t held = 0, in_use = 0, waiting = 0;
  std::vector<ProcessView> processes{};  ///< those that hold or want permits, the most in use first

  /// Why no handler starts under it. Empty: they do.
  [[nodiscard]] std::string why_stopped() const;
};

struct Model {
  Moment now{0};
  std::string time;   ///< "14:05:09 UTC", for people
  std::string group;  ///< the consumer group
  Source kafka{}, tokens{}, database{};
  bool topics_known = false;  ///< Kafka has answered at least once
  std::vector<TopicView> topics{};
  std::vector<Stall> stalls{};
  std::string token_log{};
  std::int64_t position = -1;  ///< in the token log
  std::vector<LimiterView> limiters{};
  std::optional<DatabaseSample> facts{};  ///< of the database

  /// Limiters under which no handler starts although processes wait.
  [[nodiscard]] std::vector<const LimiterView*> stopped() const;
};

/// Topics and limiters are in the order of their names. `facts` and `permits` are absent until they are known.
Model make_model(const Progress& progress, std::chrono::milliseconds stall_after, std::string group,
                 const std::optional<TokenSample>& tokens, const std::optional<DatabaseSample>& facts);

/// The largest of the chosen figure first.
void sort(std::vector<TopicView>& topics, Sort by);
/// By lag: the most waiting first; by rate: the most in use first.
void sort(std::vector<LimiterView>& limiters, Sort by);
/// Keeps the `most` that need attention first, in the order that they have. Returns how many it left out.
std::size_t keep_worst(std::vector<TopicView>& topics, std::size_t most, Sort by);

}  // namespace turnstile::cli::top
