#pragma once
// Ends a request at its deadline, whatever its server does: cpp-httplib has a timeout for each read, so a server that
// sends a byte now and then would hold a request for as long as it likes. It does not bound the size of headers either, so
// a request also ends when its server has sent too much.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace turnstile::otlp {

/// Thread-safe. Its thread shuts the sockets of the current request down at the deadline, or when they have received more
/// than kMostReceived bytes.
class Deadline {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::uint64_t kMostReceived = std::uint64_t{1} << 20;
  Deadline();
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  /// A request begins.
  void begin(Time deadline);
  /// The current request uses this socket, which stays the caller's.
  void watch(int socket);
  /// The request has ended. Returns whether it was cut.
  bool end();
  /// Whether the last request was cut because its server had sent too much.
  [[nodiscard]] bool was_too_long() const;
  /// This request and later ones end at this time at the latest.
  void end_all_at(Time time);
  /// The earlier of the request's deadline and that of end_all_at().
  [[nodiscard]] Time current() const;

 private:
  [[nodiscard]] Time current_unlocked() const { return deadline_ < last_ ? deadline_ : last_; }
  [[nodiscard]] bool has_received_too_much() const;
  void run();

  mutable std::mutex mutex_;  ///< protects the following members
  std::condition_variable changed_;
  bool active_ = false, cut_ = false, too_long_ = false, quit_ = false;
  Time deadline_ = Time::max(), last_ = Time::max();
  /// Duplicates, which are closed here: the number of a socket that cpp-httplib has closed may be another file's.
  std::vector<int> sockets_;
  std::thread thread_;
};

}  // namespace turnstile::otlp
