#include "tests/support/tcp_proxy.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <stdexcept>

namespace turnstile::test {

namespace {

/// How soon a thread notices a command.
constexpr int kTick_ms = 10;

int connect_to(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return -1;
  int connected = -1;
  for (const addrinfo* at = found; at && connected < 0; at = at->ai_next) {
    const int candidate = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    if (candidate >= 0 && connect(candidate, at->ai_addr, at->ai_addrlen) == 0) connected = candidate;
    else if (candidate >= 0) close(candidate);
  }
  freeaddrinfo(found);
  return connected;
}

bool send_all(int to, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = send(to, bytes, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

}  // namespace

struct TcpProxy::Pair {
  int client = -1;
  int server = -1;
  int born = 0;
  bool drop_answer = false;
  std::thread thread;
};

TcpProxy::TcpProxy(std::string host, int port) : host_(std::move(host)), server_port_(port) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (listener_ < 0 || bind(listener_, generic, size) != 0 || listen(listener_, 64) != 0 ||
      getsockname(listener_, generic, &size) != 0) {
    throw std::runtime_error("the proxy cannot listen on 127.0.0.1");
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_loop(); });
}

TcpProxy::~TcpProxy() {
  stopping_ = true;
  acceptor_.join();
  for (const auto& pair : pairs_) pair->thread.join();
  close(listener_);
}

void TcpProxy::drop_next_answer() { next_ = Next::drop_answer; }
void TcpProxy::drop_next_request() { next_ = Next::drop_request; }
void TcpProxy::stall(bool stalled) { stalled_ = stalled; }
void TcpProxy::cut(bool refuse) {
  refusing_ = refuse;
  ++cuts_;
}

void TcpProxy::accept_loop() {
  while (!stopping_) {
    pollfd ready{listener_, POLLIN, 0};
    if (poll(&ready, 1, kTick_ms) <= 0) continue;
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    ++accepted_;
    if (refusing_) {
      close(client);
      continue;
    }
    auto& pair = pairs_.emplace_back(std::make_unique<Pair>());
    pair->client = client;
    pair->born = cuts_;
    pair->thread = std::thread([this, raw = pair.get()] { serve(*raw); });
  }
}

void TcpProxy::serve(Pair& pair) {
  pair.server = connect_to(host_, server_port_);
  bool open = pair.server >= 0;
  while (open && !stopping_ && pair.born == cuts_) {
    std::array<pollfd, 2> ready{{{pair.client, POLLIN, 0}, {pair.server, POLLIN, 0}}};
    if (stalled_) {
      poll(nullptr, 0, kTick_ms);
      continue;
    }
    if (poll(ready.data(), ready.size(), kTick_ms) <= 0) continue;
    if (ready[0].revents != 0) open = pass(pair, pair.client, pair.server, true);
    if (open && ready[1].revents != 0) open = pass(pair, pair.server, pair.client, false);
  }
  close(pair.client);
  if (pair.server >= 0) close(pair.server);
}

bool TcpProxy::pass(Pair& pair, int from, int to, bool to_server) {
  std::array<char, 65536> buffer;
  const ssize_t got = recv(from, buffer.data(), buffer.size(), 0);
  if (got <= 0) return false;
  if (to_server) {
    const Next next = next_.exchange(Next::forward);
    if (next == Next::drop_request) return false;
    if (next == Next::drop_answer) pair.drop_answer = true;
  } else if (pair.drop_answer) {
    return false;
  }
  return send_all(to, buffer.data(), static_cast<std::size_t>(got));
}

}  // namespace turnstile::test
