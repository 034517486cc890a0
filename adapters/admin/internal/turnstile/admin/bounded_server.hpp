#pragma once
// An HTTP server for a few small requests, which clients that are slow, silent or many cannot keep from answering.
// cpp-httplib bounds the time of each read, and not that of a request, nor the size of its headers.

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <cstddef>

namespace turnstile::admin {

/// Each connection has one request, one deadline, and a largest size of the request. While other connections wait for a
/// thread, a connection that makes its thread wait is closed early. The newest connection is served first: one that waited
/// for long has probably no client any more.
class BoundedServer final : public httplib::Server {
 public:
  BoundedServer();
  /// Call it when it is bound. cpp-httplib lets five connections wait until they are accepted. The kernel drops others, and
  /// their clients try again after 1, 3 and 7 s.
  void let_many_wait() noexcept;
  /// Closes the connections that make their threads wait. Call it before stop().
  void cut() noexcept { cut_ = true; }

 private:
  class Connection;
  class Newest;

  bool process_and_close_socket(socket_t socket) override;
  /// How long a connection may take since it has a thread.
  [[nodiscard]] std::chrono::milliseconds patience(bool reads) const noexcept;

  std::atomic<std::size_t> waiting_{0};  ///< connections that have no thread yet
  std::atomic<bool> cut_{false};
};

}  // namespace turnstile::admin
