#pragma once
// A TCP proxy on a free loopback port that can simulate failures.

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace turnstile::test {

/// Forwards to host:port. Thread-safe. Its destructor cuts all connections.
class TcpProxy {
 public:
  TcpProxy(std::string host, int port);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  /// On 127.0.0.1.
  [[nodiscard]] int port() const noexcept { return port_; }

  /// The client's next bytes reach the server. The answer is dropped, and both sides are cut.
  void drop_next_answer();
  /// The client's next bytes are dropped, and both sides are cut.
  void drop_next_request();
  /// While true, it forwards nothing in either direction, and accepts new connections without an answer.
  void stall(bool stalled);
  /// Cuts all connections. While `refuse` is true, it cuts new ones at once.
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
  std::atomic<int> cuts_{0};  ///< increases with each cut: pairs of an older count end themselves
  std::atomic<bool> stopping_{false};
  std::atomic<std::size_t> accepted_{0};
  std::thread acceptor_;
  std::vector<std::unique_ptr<Pair>> pairs_;  // used by the acceptor only, until it has ended
};

}  // namespace turnstile::test
