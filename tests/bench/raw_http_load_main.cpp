// Sends requests to either HTTP server. Each thread keeps its connection, and sends the next request after the
// response.
//  --port P --threads N --keys K --seconds S
// First it sends each key once, which is not counted; then random keys for S seconds. The client does as little as
// possible, so that the measurement shows the server.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/bench/bench_common.hpp"

namespace {

class Client {
 public:
  explicit Client(std::int64_t port) : connection_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int yes = 1;
    ::setsockopt(connection_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (::connect(connection_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      bench::die("cannot connect");
  }
  ~Client() { ::close(connection_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void charge(std::uint64_t key) {
    char request[256];
    const auto high = bench::scramble(key), low = bench::scramble(~key);
    const int size = std::snprintf(request, sizeof request,
                                   "POST /charge HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nIdempotency-Key: "
                                   "%08x-%04x-%04x-%04x-%012llx\r\nContent-Length: 8\r\n\r\n10 cents",
                                   static_cast<unsigned>(high >> 32), static_cast<unsigned>(high >> 16 & 0xffff),
                                   static_cast<unsigned>(high & 0xffff), static_cast<unsigned>(low >> 48),
                                   static_cast<unsigned long long>(low & 0xffffffffffff));
    if (::send(connection_, request, static_cast<std::size_t>(size), MSG_NOSIGNAL) != size) bench::die("cannot send");
    read_answer();
  }

 private:
  void read_answer() {
    std::size_t whole = std::string::npos;
    for (answer_.clear(); whole == std::string::npos || answer_.size() < whole;) {
      char part[4096];
      const auto got = ::recv(connection_, part, sizeof part, 0);
      if (got <= 0) bench::die("the server hung up: " + answer_);
      answer_.append(part, static_cast<std::size_t>(got));
      const auto head = answer_.find("\r\n\r\n");
      if (head == std::string::npos) continue;
      const auto length = answer_.find("Content-Length: ");
      if (length == std::string::npos || length > head) bench::die("an answer without Content-Length: " + answer_);
      whole = head + 4 + std::strtoull(answer_.c_str() + length + 16, nullptr, 10);
    }
    if (!answer_.starts_with("HTTP/1.1 200 ")) bench::die("not 200: " + answer_);
  }

  int connection_;
  std::string answer_;
};

}  // namespace

int main(int argc, char** argv) {
  bench::Args args(argc, argv);
  const std::string side = args.text("side");
  const std::int64_t port = args.number("port"), threads = args.number("threads", 4), keys = args.number("keys", 1'000);
  const double seconds = args.real("seconds", 5);
  args.done();

  {
    Client first(port);
    for (std::int64_t key = 0; key < keys; ++key) first.charge(static_cast<std::uint64_t>(key));
  }
  std::atomic<std::int64_t> requests{0};
  const std::int64_t start_ns = bench::now_ns();
  {
    std::vector<std::jthread> clients;
    for (std::int64_t thread = 0; thread < threads; ++thread) {
      clients.emplace_back([&, thread] {
        Client client(port);
        std::int64_t sent = 0;
        for (auto random = static_cast<std::uint64_t>(thread); bench::seconds_since(start_ns) < seconds; ++sent) {
          random = bench::scramble(random);
          client.charge(random % static_cast<std::uint64_t>(keys));
        }
        requests += sent;
      });
    }
  }
  const double took = bench::seconds_since(start_ns);
  bench::Report("http")
      .add("mode", side)
      .add("threads", threads)
      .add("keys", keys)
      .add("requests", requests.load())
      .add("rate", static_cast<double>(requests) / took)
      .print();
  return 0;
}
