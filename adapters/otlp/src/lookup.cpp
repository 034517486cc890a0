#include "lookup.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>

#include "quiet_thread.hpp"

namespace turnstile::otlp {

struct Lookup::Answer {
  std::mutex mutex;  ///< protects the following members
  std::condition_variable came;
  bool is_here = false;
  std::string why;
  std::vector<std::string> addresses;
};

namespace {

// The stop may come while this thread waits.
constexpr std::chrono::milliseconds kLookAgain{50};

bool is_address(const std::string& host) {
  in6_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 || ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

/// May take as long as the system's resolver likes.
std::vector<std::string> look_up(const std::string& host, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    why = "the host's name cannot be resolved: " + std::string(::gai_strerror(error));
    return {};
  }
  std::vector<std::string> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(one->ai_addr, one->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
      continue;
    if (std::find(addresses.begin(), addresses.end(), text.data()) == addresses.end())
      addresses.emplace_back(text.data());
  }
  ::freeaddrinfo(found);
  if (addresses.empty()) why = "the host has no address";
  return addresses;
}

}  // namespace

std::vector<std::string> Lookup::addresses(const Deadline& deadline, std::string& why) {
  if (is_address(host_)) return {host_};
  if (!pending_) {
    const auto begun = std::make_shared<Answer>();
    quiet_thread([host = host_, answer = begun] {
      std::string trouble;
      std::vector<std::string> found;
      try {
        found = look_up(host, trouble);
      } catch (...) {  // no memory
      }
      const std::lock_guard lock(answer->mutex);
      answer->addresses = std::move(found);
      answer->why = std::move(trouble);
      answer->is_here = true;
      answer->came.notify_all();
    }).detach();
    pending_ = begun;
  }
  {
    std::unique_lock lock(pending_->mutex);
    while (!pending_->is_here && std::chrono::steady_clock::now() < deadline.current())
      pending_->came.wait_for(lock, kLookAgain);
    if (!pending_->is_here) {
      why = "no answer to the lookup of the host's name in time";
      return {};
    }
    why = pending_->why;
  }
  const auto answer = std::exchange(pending_, nullptr);
  return std::move(answer->addresses);
}

}  // namespace turnstile::otlp
