#pragma once
// A cpp-httplib server in this process, on a free port of 127.0.0.1, and a client that sends bytes unchanged.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

namespace turnstile::test {

/// Sends a request on a connection of its own. Without a response the status is 0.
inline httplib::Response send(int port, const std::string& method, const std::string& target,
                              const httplib::Headers& headers, const std::string& body,
                              const std::string& content_type = "text/plain") {
  httplib::Client client("127.0.0.1", port);
  client.set_read_timeout(60);
  httplib::Request request;
  request.method = method;
  request.path = target;
  request.headers = headers;
  if (!content_type.empty()) request.set_header("Content-Type", content_type);
  request.body = body;
  const auto result = client.send(request);
  httplib::Response none;
  none.status = 0;
  return result ? *result : none;
}

/// cpp-httplib lets only five connections wait to be accepted. The kernel answers further ones with SYN cookies, and
/// resets some of them. Their clients get no response, although the tested code is correct.
class PatientServer : public httplib::Server {
 public:
  bool let_more_wait() { return ::listen(svr_sock_, SOMAXCONN) == 0; }
};

/// Set its handlers, then call start(). The destructor stops it.
class HttpServer {
 public:
  HttpServer() { [[maybe_unused]] static const bool made = make_tables(); }
  ~HttpServer() {
    server.stop();
    if (thread_.joinable()) thread_.join();
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  void start() {
    port_ = server.bind_to_any_port("127.0.0.1");
    if (port_ <= 0) throw std::runtime_error("no free port on 127.0.0.1");
    if (!server.let_more_wait()) throw std::runtime_error("cannot listen on 127.0.0.1:" + std::to_string(port_));
    thread_ = std::thread([this] { server.listen_after_bind(); });
    while (!server.is_running()) std::this_thread::yield();
  }
  [[nodiscard]] int port() const noexcept { return port_; }

  PatientServer server;

 private:
  struct First {};
  explicit HttpServer(First) {}
  /// Lets cpp-httplib create its lazy tables before it has several threads. It protects them with its own guards, which
  /// the thread sanitizer does not see.
  static bool make_tables() {
    HttpServer first(First{});
    first.start();
    return send(first.port(), "POST", "/", {}, "x").status == 404;
  }

  int port_ = 0;
  std::thread thread_;
};

/// Sends the bytes unchanged, and returns everything until the server closes the connection.
inline std::string send_bytes(int port, std::string_view bytes) {
  const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    while (!bytes.empty()) {
      const auto sent = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) break;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    char part[4096];
    for (ssize_t got; (got = ::recv(connection, part, sizeof part, 0)) > 0;)
      answer.append(part, static_cast<std::size_t>(got));
  }
  ::close(connection);
  return answer;
}

}  // namespace turnstile::test
