#pragma once
// Reads the token log from its beginning, and follows it, on a thread of its own.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "history.hpp"

namespace turnstile::cli::dashboard {

class Follower {
 public:
  /// Returns null if there is no such log yet, and may throw.
  using Open = std::function<std::unique_ptr<TokenReader>()>;

  explicit Follower(Open open);
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  struct State {
    std::string log{};   ///< its name; empty: it was not found yet
    bool ready = false;  ///< it has reached the end of the log once
    std::string why{};   ///< why it does not follow now; empty: it does
    std::int64_t position = -1;
    std::vector<std::string> limiters{};
    std::vector<PermitsView::LimitChange> changes{};  ///< of limits, the oldest first
    std::int64_t first_ms = 0, last_ms = 0;
  };
  [[nodiscard]] State state() const;
  [[nodiscard]] HistoryView view(const std::string& limiter, std::int64_t from_ms, std::int64_t to_ms,
                                 std::size_t steps) const;
  /// Asks the thread to end. False if it still waits for a server.
  bool stop(std::chrono::milliseconds timeout);

 private:
  void run();
  void follow(TokenReader& reader);
  void note(TokenReader& reader);
  void rest(std::chrono::milliseconds time);
  void tell(const std::string& why);

  const Open open_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> stopping_{false};
  bool ended_ = false;
  History history_;
  State state_;
  std::thread thread_;
};

}  // namespace turnstile::cli::dashboard
