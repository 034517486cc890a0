#pragma once
// A TCP proxy on a free loopback port that can be told to misbehave.

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace turnstile::test {

/// Forwards to host:port. Thread-safe. Destroying it cuts all connections.
class TcpProxy {
 public:
  TcpProxy(std::string host, int port);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  /// On 127.0.0.1.
  [[nodiscard]] int port() const noexcept { return port_; }

  /// What the client sends next reaches the server; the answer never comes back, both sides are cut instead.
  void drop_next_answer();
  /// What the client sends next is swallowed, and both sides are cut.
  void drop_next_request();
  /// Nothing is forwarded in either direction and new connections are accepted in silence, until false.
  void stall(bool stalled);
  /// Cuts all connections; while `refuse` new ones are cut at once.
  void cut(bool refuse);
  [[nodiscard]] std::size_t accepted() const noexcept { return accepted_; }

 private:
  enum class Next { forward, drop_answer, drop_request };
  struct Pair;
  void accept_loop();
  void serve(Pair& pair);
  bool pass(Pair& pair, int from, int to, bool to_server);

  const std::string host_;
  const int server_port_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<Next> next_{Next::forward};
  std::atomic<bool> stalled_{false};
  std::atomic<bool> refusing_{false};
  std::atomic<int> cuts_{0};  ///< counts up: pairs of an older count end themselves
  std::atomic<bool> stopping_{false};
  std::atomic<std::size_t> accepted_{0};
  std::thread acceptor_;
  std::vector<std::unique_ptr<Pair>> pairs_;  // of the acceptor alone, until it has ended
};

}  // namespace turnstile::test
