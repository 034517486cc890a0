#pragma once
// The admin endpoint of a process, `[admin] listen`. It is read-only: no request changes anything.
//
//   GET /healthz   200: the threads of the process make progress. 503: only a restart helps. For liveness probes.
//   GET /readyz    200: it is in its group, and PostgreSQL and the token log are available. 503: not, or it drains. For
//                  readiness probes. The body names what fails.
//   GET /status    the state and the settings as JSON. Secrets are "***".
//   GET /metrics   for Prometheus
//
// It has no access control and no TLS: listen on 127.0.0.1, or on an address that only the monitoring can reach.

#include <functional>
#include <memory>
#include <string>

#include "turnstile/admin_view.hpp"
#include "turnstile/config.hpp"

namespace spdlog {
class logger;
}

/// The admin endpoint.
namespace turnstile::admin {

/// Serves until it is destroyed. Thread-safe.
class Server {
 public:
  /// The parts that it shows.
  struct Parts {
    AdminView view;                          ///< the consumer
    std::function<std::string()> metrics{};  ///< the text of GET /metrics. Empty: 404
  };
  /// Begins to listen, on a thread of its own. While the address cannot be used, it logs that once, and tries again.
  /// `logger` must not be null.
  Server(const AdminSettings::Address& at, Parts parts, std::shared_ptr<spdlog::logger> logger);
  /// Ends the requests that are in progress.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Its port, once it listens; 0: not yet.
  [[nodiscard]] int port() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace turnstile::admin
