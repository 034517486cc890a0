#pragma once
// An HTTP server that clients that are slow, silent or many cannot keep from answering: for the admin endpoint and the
// dashboard. cpp-httplib bounds the time of each read, and not that of a request, nor the size of its headers.

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>

namespace turnstile::admin {

/// Each connection has one request, one deadline, and a largest size of the request. While other connections wait for a
/// thread, a connection that makes its thread wait is closed early. The newest connection is served first: one that waited
/// for long has probably no client any more. Header Range is ignored.
class BoundedServer final : public httplib::Server {
 public:
  struct Bounds {
    std::size_t threads = 4;                ///< they answer requests
    std::chrono::milliseconds time{5'000};  ///< for a request and its answer together, if no other connection waits
    std::size_t bytes = 16 * 1024;          ///< of a request; its head may have 16 KiB
  };
  /// The bounds are for a few clients that ask every few seconds.
  BoundedServer() : BoundedServer(Bounds{}) {}
  explicit BoundedServer(const Bounds& bounds);

  /// Returns the port, or 0 if it is in use or the address is not one of this machine. Port 0: any free port.
  [[nodiscard]] int bind(const std::string& host, int port);
  /// Closes the connections that make their threads wait, and ends listen_after_bind().
  void end() {
    cut_ = true;
    stop();
  }

 private:
  class Connection;
  class Newest;

  bool process_and_close_socket(socket_t socket) override;
  /// How long a connection may take since it has a thread.
  [[nodiscard]] std::chrono::milliseconds patience(bool reads) const noexcept;

  const Bounds bounds_;
  std::atomic<std::size_t> waiting_{0};  ///< connections that have no thread yet
  std::atomic<bool> cut_{false};
};

}  // namespace turnstile::admin
