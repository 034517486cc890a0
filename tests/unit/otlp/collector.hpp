#pragma once
// A collector in this process, which decodes what it gets, and servers that misbehave.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <otlp.pb.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/captured_log.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/http_server.hpp"
#include "turnstile/otlp/tracer.hpp"

namespace turnstile::otlp::test {

using namespace std::chrono_literals;
using turnstile::test::eventually;

/// Thread-safe.
class Collector {
 public:
  using Answer = std::function<void(const httplib::Request&, httplib::Response&)>;
  explicit Collector(Answer answer = {}) : answer_(std::move(answer)) {
    http_.server.Post(".*", [this](const httplib::Request& request, httplib::Response& response) {
      keep(request);
      if (answer_) answer_(request, response);
      else response.set_content("", "application/x-protobuf");
    });
    http_.start();
  }
  [[nodiscard]] int port() const noexcept { return http_.port(); }
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port()); }

  [[nodiscard]] std::vector<httplib::Request> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  /// Of all requests.
  [[nodiscard]] std::vector<wire::Span> spans() const {
    const std::lock_guard lock(mutex_);
    return spans_;
  }
  [[nodiscard]] std::map<std::string, std::string> resource() const {
    const std::lock_guard lock(mutex_);
    return resource_;
  }

 private:
  void keep(const httplib::Request& request) {
    wire::ExportTraceServiceRequest message;
    const bool is_message = message.ParseFromString(request.body);
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
    if (!is_message) return;
    for (const auto& all : message.resource_spans()) {
      for (const auto& pair : all.resource().attributes()) resource_[pair.key()] = pair.value().string_value();
      for (const auto& scope : all.scope_spans())
        spans_.insert(spans_.end(), scope.spans().begin(), scope.spans().end());
    }
  }

  const Answer answer_;
  mutable std::mutex mutex_;
  std::vector<httplib::Request> requests_;
  std::vector<wire::Span> spans_;
  std::map<std::string, std::string> resource_;
  turnstile::test::HttpServer http_;
};

/// Accepts connections, one at a time, and hands each to `serve`, which must end soon after `is_over`.
class RawServer {
 public:
  using Serve = std::function<void(int connection, const std::atomic<bool>& is_over)>;
  explicit RawServer(Serve serve) : serve_(std::move(serve)), listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 16) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw std::runtime_error("no free port on 127.0.0.1");
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      for (int connection; (connection = ::accept(listener_, nullptr, nullptr)) >= 0;) {
        ++accepted_;
        serve_(connection, is_over_);
        ::close(connection);
      }
    });
  }
  ~RawServer() {
    is_over_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] int accepted() const noexcept { return accepted_; }

 private:
  const Serve serve_;
  const int listener_;
  int port_ = 0;
  std::atomic<bool> is_over_{false};
  std::atomic<int> accepted_{0};
  std::thread thread_;
};

class OtlpTest : public ::testing::Test {
 protected:
  /// Sends each span at once, and gives up at once.
  static Tuning quick() {
    Tuning tuning;
    tuning.batch_spans = 1;
    tuning.request_timeout = 20s;
    tuning.first_retry = 1ms;
    tuning.longest_retry = 2ms;
    return tuning;
  }
  void start(const std::string& url, const Tuning& tuning, TracingSettings settings = {}) {
    settings.endpoint = url;
    auto logger = std::make_shared<spdlog::logger>("otlp", log.sink());
    tracer =
        std::make_unique<OtlpTracer>(settings, Resource{"billing", "billing@host1:7", "billing-group"}, logger, tuning);
  }
  static SpanReport report(SpanReport::Step step = SpanReport::Step::handler) {
    static const TraceContext context = *parse_traceparent("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01");
    SpanReport span{.step = step, .context = context, .parent = {1, 2, 3, 4, 5, 6, 7, 8}};
    span.start = std::chrono::system_clock::time_point(1'700'000'000s);
    span.took = 1'500us;
    span.topic = "payments";
    span.partition = 3;
    span.offset = 1'042;
    span.handler = "charge";
    return span;
  }
  [[nodiscard]] SpanCounts counts() const { return *tracer->counts(); }

  turnstile::test::CapturedLog log;
  std::unique_ptr<OtlpTracer> tracer;
};

}  // namespace turnstile::otlp::test
