#pragma once
// What the dashboard answers, as JSON. Each call may throw what the verbs of the command line throw.

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <string>
#include <vector>

#include "../command.hpp"
#include "../domain.hpp"
#include "../top/watch.hpp"
#include "follower.hpp"
#include "replay_job.hpp"

namespace turnstile::cli::dashboard {

/// The parameters of a request.
class Query {
 public:
  explicit Query(std::map<std::string, std::string> values) : values_(std::move(values)) {}
  /// Absent if it is not given, or empty.
  [[nodiscard]] std::optional<std::string> text(const std::string& name) const;
  [[nodiscard]] bool has(const std::string& name) const { return values_.contains(name); }
  /// Throws UsageError if it is no whole number, or out of range.
  [[nodiscard]] std::int64_t number(const std::string& name, std::int64_t otherwise, std::int64_t low,
                                    std::int64_t high) const;

 private:
  std::map<std::string, std::string> values_;
};

inline constexpr std::ptrdiff_t kMostSearches = 8;

class Api {
 public:
  struct Options {
    DomainOptions domain;
    std::vector<std::string> topics{};  ///< empty: as `turnstile top`
    std::string by;                     ///< the operator, for the record of changes
  };
  /// Connects to the servers on threads of its own. `global` must outlive it.
  Api(const Global& global, Config config, Options options);

  Json overview();
  Json history(const Query& query) const;
  /// As `turnstile log replay --json`, with the record at that position.
  Json permits_at(const Query& query) const;

  Json dead_groups(const Query& query) const;
  Json dead_list(const Query& query) const;
  Json dead_letter(std::int64_t number) const;
  Json edit_dead(std::int64_t number, const Json& body) const;
  Json replay_preview(const Json& body) const;
  Json replay(const Json& body);
  Json replay_state() const { return job_.state(); }
  Json stop_replay();

  Json message(const Query& query) const;
  /// The records of a topic with an id: each delivery that is still in Kafka. At most kMostSearches at once.
  Json deliveries(const Query& query);

  Json set_limit(const Json& body) const;

  /// Stops the replay after the current dead letter, and ends the threads. Does not return if a server does not answer.
  void end(int exit);

 private:
  [[nodiscard]] std::unique_ptr<TokenReader> open_log() const;

  const Global& global_;
  const Config config_;
  const Options options_;
  std::mutex mutex_;  ///< of watch_
  top::Watch watch_;
  Follower follower_;
  ReplayJob job_;
  std::counting_semaphore<> searches_{kMostSearches};
};

}  // namespace turnstile::cli::dashboard
