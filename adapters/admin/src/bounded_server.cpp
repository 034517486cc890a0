#include "turnstile/admin/bounded_server.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace turnstile::admin {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// If some connections wait. A request is there at once, and an answer may have a slow network.
constexpr std::chrono::milliseconds kReadTime{200}, kWriteTime{1'000};
/// If more wait, each of them shortens the time for a request that is not there yet.
constexpr std::int64_t kMany = 16;
/// How many wait until they are accepted; the kernel's own bound is usually 4,096.
constexpr int kBacklog = 512;
constexpr std::string_view kEndOfHead = "\r\n\r\n";
/// Of the request line and the headers. cpp-httplib stores all of them.
constexpr std::size_t kHeadBytes = 16 * 1024;
/// How soon a connection sees that others wait.
constexpr auto kLook = 20ms;

/// The answer to a header Range could be thousands of times longer than the text that was asked for. HTTP allows a server
/// to answer with everything.
void ignore_ranges(httplib::Request& request) { request.ranges.clear(); }

/// Without SO_REUSEPORT, which cpp-httplib sets: two processes would share the port, and each get some of the requests.
void socket_options(socket_t socket) {
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
}

/// void, or bool in later versions of cpp-httplib.
using Enqueued = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));

}  // namespace

/// The threads. They take the connection that came last.
class BoundedServer::Newest final : public httplib::TaskQueue {
 public:
  Newest(std::size_t threads, std::atomic<std::size_t>& waiting) : waiting_(waiting) {
    for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }

  Enqueued enqueue(std::function<void()> serve) override {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(serve));
    waiting_ = jobs_.size();
    come_.notify_one();
    return Enqueued(true);
  }

  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    come_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

 private:
  void work() {
    for (std::unique_lock lock(mutex_);;) {
      come_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const auto serve = std::move(jobs_.back());
      jobs_.pop_back();
      waiting_ = jobs_.size();
      lock.unlock();
      serve();
      lock.lock();
    }
  }

  std::atomic<std::size_t>& waiting_;
  std::mutex mutex_;
  std::condition_variable come_;
  std::deque<std::function<void()>> jobs_;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

class BoundedServer::Connection final : public httplib::Stream {
 public:
  Connection(const BoundedServer& server, socket_t socket) : server_(server), socket_(socket) {}

  [[nodiscard]] bool is_readable() const override { return from_ < to_ || wait(POLLIN); }
  [[nodiscard]] bool is_writable() const override { return wait(POLLOUT); }

  ssize_t read(char* to, size_t size) override {
    if (from_ == to_) {
      const std::size_t most = has_head() ? server_.bounds_.bytes : kHeadBytes;
      if (bytes_ >= most || !wait(POLLIN)) return -1;
      const ssize_t got = ::recv(socket_, buffer_.data(), std::min(buffer_.size(), most - bytes_), 0);
      if (got <= 0) return got;
      from_ = 0;
      to_ = static_cast<std::size_t>(got);
      bytes_ += to_;
      look_for_end_of_head();
    }
    const std::size_t taken = std::min(size, to_ - from_);
    std::copy_n(buffer_.data() + from_, taken, to);
    from_ += taken;
    return static_cast<ssize_t>(taken);
  }
  ssize_t write(const char* from, size_t size) override {
    if (!wait(POLLOUT)) return -1;
    return ::send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override { none(ip, port); }
  void get_local_ip_and_port(std::string& ip, int& port) const override { none(ip, port); }
  [[nodiscard]] socket_t socket() const override { return socket_; }

 private:
  [[nodiscard]] bool has_head() const { return matched_ == kEndOfHead.size(); }
  void look_for_end_of_head() {
    for (std::size_t i = 0; i < to_ && !has_head(); ++i) {
      if (buffer_[i] == kEndOfHead[matched_]) ++matched_;
      else matched_ = buffer_[i] == kEndOfHead[0] ? 1 : 0;
    }
  }
  /// Nothing here asks for addresses.
  static void none(std::string& ip, int& port) {
    ip.clear();
    port = 0;
  }

  [[nodiscard]] bool wait(short event) const {
    pollfd at{socket_, event, 0};
    for (;;) {
      if (server_.cut_) return false;
      const auto age = Clock::now() - since_;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(server_.patience(event == POLLIN) - age);
      const auto time = std::clamp<std::chrono::milliseconds>(left, 0ms, kLook);
      if (::poll(&at, 1, static_cast<int>(time.count())) > 0) return age < server_.bounds_.time;
      if (left <= 0ms) return false;
    }
  }

  const BoundedServer& server_;
  const socket_t socket_;
  const Clock::time_point since_ = Clock::now();
  std::array<char, 4096> buffer_{};
  std::size_t from_ = 0, to_ = 0;  ///< what was received and not read
  std::size_t bytes_ = 0;          ///< received
  std::size_t matched_ = 0;        ///< bytes of kEndOfHead that were received last
};

BoundedServer::BoundedServer(const Bounds& bounds) : bounds_(bounds) {
  new_task_queue = [this] { return new Newest(bounds_.threads, waiting_); };
  set_socket_options(socket_options);
}

int BoundedServer::bind(const std::string& host, int port) {
  if (port == 0) port = std::max(bind_to_any_port(host), 0);
  else if (!bind_to_port(host, port)) port = 0;
  // cpp-httplib lets five connections wait until they are accepted. The kernel drops others, and their clients try again
  // after 1, 3 and 7 s.
  if (port != 0) static_cast<void>(::listen(svr_sock_, kBacklog));
  return port;
}

std::chrono::milliseconds BoundedServer::patience(bool reads) const noexcept {
  const auto waiting = static_cast<std::int64_t>(waiting_.load());
  if (waiting == 0) return bounds_.time;
  if (waiting <= kMany) return reads ? kReadTime : kWriteTime;
  return reads ? kReadTime * kMany / waiting : kReadTime;
}

bool BoundedServer::process_and_close_socket(socket_t socket) {
  bool served = false;
  {
    Connection connection(*this, socket);
    bool closed = false;
    served = [&](auto& server) {  // a template, so that only one of the calls must compile
      if constexpr (requires { server.process_request(connection, true, closed, ignore_ranges); })
        return server.process_request(connection, true, closed, ignore_ranges);
      else  // later versions: with the addresses of both sides, which no answer needs
        return server.process_request(connection, "", 0, "", 0, true, closed, ignore_ranges);
    }(*this);
  }
  // If unread bytes remained, the client could lose the answer.
  ::shutdown(socket, SHUT_WR);
  std::array<char, 4096> rest;
  for (int i = 0; i < 16 && ::recv(socket, rest.data(), rest.size(), MSG_DONTWAIT) > 0; ++i) {
  }
  ::close(socket);
  return served;
}

}  // namespace turnstile::admin
