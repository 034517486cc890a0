#include "turnstile/admin/server.hpp"

#include <spdlog/spdlog.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "conditions.hpp"
#include "status_json.hpp"
#include "turnstile/admin/bounded_server.hpp"
#include "turnstile/log.hpp"

namespace turnstile::admin {

namespace {

using namespace std::chrono_literals;

constexpr auto kRetry = 2s;
constexpr auto kStopAgain = 10ms;
constexpr const char* kText = "text/plain; charset=utf-8";
constexpr const char* kIndex =
    "Turnstile's admin endpoint. It is read-only.\n"
    "  /healthz   whether the threads of this process make progress\n"
    "  /readyz    whether it does its work\n"
    "  /status    partitions, handlers, limits and settings, as JSON\n"
    "  /metrics   for Prometheus\n";

void answer(httplib::Response& response, const std::vector<std::string>& failed) {
  std::string body = failed.empty() ? "ok\n" : "";
  for (const std::string& condition : failed) body += condition + "\n";
  response.status = failed.empty() ? 200 : 503;
  response.set_content(body, kText);
}

}  // namespace

struct Server::Impl {
  Impl(AdminSettings::Address where, Parts what, std::shared_ptr<spdlog::logger> log)
      : at(std::move(where)), parts(std::move(what)), logger(std::move(log)) {}

  void prepare(httplib::Server& http) const {
    http.set_payload_max_length(1);
    http.set_pre_routing_handler([](const httplib::Request& request, httplib::Response& response) {
      if (request.method == "GET" || request.method == "HEAD") return httplib::Server::HandlerResponse::Unhandled;
      response.status = 405;
      response.set_header("Allow", "GET, HEAD");
      response.set_content("This endpoint is read-only: use GET.\n", kText);
      return httplib::Server::HandlerResponse::Handled;
    });
    http.Get("/", [](const httplib::Request&, httplib::Response& response) { response.set_content(kIndex, kText); });
    http.Get("/healthz", [this](const httplib::Request&, httplib::Response& response) {
      answer(response, why_not_healthy(parts.view.status()));
    });
    http.Get("/readyz", [this](const httplib::Request&, httplib::Response& response) {
      answer(response, why_not_ready(parts.view.status()));
    });
    http.Get("/status", [this](const httplib::Request&, httplib::Response& response) {
      response.set_content(status_json(parts.view.status(), parts.view.settings()), "application/json");
    });
    if (!parts.metrics) return;
    http.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      response.set_content(parts.metrics(), "text/plain; version=0.0.4; charset=utf-8");
    });
  }

  [[nodiscard]] std::string address() const { return at.host + ":" + std::to_string(at.port); }

  void run() {
    bool told = false;
    std::unique_lock lock(mutex);
    for (; !stopping; stop.wait_for(lock, kRetry, [this] { return stopping; })) {
      // A new one each time: one that could not bind cannot be used again.
      server = std::make_unique<BoundedServer>();
      prepare(*server);
      const int bound = server->bind(at.host, at.port);
      if (bound == 0) {
        if (!std::exchange(told, true)) {
          log_error(*logger, Code::admin_unavailable,
                    "the admin endpoint cannot listen on " + address() +
                        ": the port is in use, or the address is not one of this machine. The consumer works without "
                        "it, and tries again every 2 s. Set [admin] listen to another address, with port 0 for any "
                        "free port");
        }
        continue;
      }
      port = bound;
      logger->info("the admin endpoint listens on http://{}:{}/ (read-only)", at.host, bound);
      lock.unlock();
      server->listen_after_bind();
      lock.lock();
      port = 0;
    }
    ended = true;
    stop.notify_all();
  }

  const AdminSettings::Address at;
  const Parts parts;
  const std::shared_ptr<spdlog::logger> logger;
  std::atomic<int> port{0};
  std::mutex mutex;  ///< protects server (not its calls), stopping and ended
  std::condition_variable stop;
  std::unique_ptr<BoundedServer> server;
  bool stopping = false, ended = false;
  std::thread thread;
};

Server::Server(const AdminSettings::Address& at, Parts parts, std::shared_ptr<spdlog::logger> logger)
    : impl_(std::make_unique<Impl>(at, std::move(parts), std::move(logger))) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

Server::~Server() {
  {
    std::unique_lock lock(impl_->mutex);
    impl_->stopping = true;
    impl_->stop.notify_all();
    // cpp-httplib forgets a stop() that comes just before its loop begins.
    do {
      if (impl_->server) impl_->server->end();
    } while (!impl_->stop.wait_for(lock, kStopAgain, [this] { return impl_->ended; }));
  }
  impl_->thread.join();
}

int Server::port() const noexcept { return impl_->port; }

}  // namespace turnstile::admin
