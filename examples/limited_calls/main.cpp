// Calls a service that can take four calls at once. Start any number of copies: together they keep that limit.
//
//   limited_calls BROKERS [SECONDS]

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <thread>
#include <turnstile/kafka/limiters.hpp>
#include <turnstile/log.hpp>
#include <turnstile/token_service.hpp>
#include <vector>

using namespace turnstile;
using namespace std::chrono_literals;

namespace {

/// Stands for the service. It counts its callers itself, in memory that all copies of this program share.
struct Service {
  std::atomic<int> calls, most;

  void call(const std::stop_token& lost) {
    const int now = ++calls;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    for (int i = 0; i < 10 && !lost.stop_requested(); ++i) std::this_thread::sleep_for(1ms);
    --calls;
  }
};

Service& open_service() {
  const auto path = std::filesystem::temp_directory_path() / "limited_calls.service";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
  if (file < 0 || ::ftruncate(file, sizeof(Service)) != 0) throw std::system_error(errno, std::generic_category());
  void* memory = ::mmap(nullptr, sizeof(Service), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category());
  return *static_cast<Service*>(memory);  // a new file is all zeros
}

void call_again_and_again(const std::stop_token& end, TokenService& tokens, Service& service, std::atomic<int>& made) {
  while (!end.stop_requested()) {
    const auto answer = tokens.request("psp", 1, Priority::normal, 1s);
    if (const auto* granted = std::get_if<Granted>(&answer)) {
      service.call(granted->lost);  // stop when it is set: the token is lost
      tokens.release(granted->token);
      ++made;
    } else if (const auto* refused = std::get_if<Refused>(&answer)) {
      std::cerr << refused->text << '\n';
      return;
    }  // else TimedOut: other copies had all permits
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::cerr << "usage: limited_calls BROKERS [SECONDS]\n";
    return 2;
  }
  Service& service = open_service();
  TokenService tokens{kafka::open_limiters({{"bootstrap.servers", argv[1]}}, {.name = "limited_calls.tokens"},
                                           {.client = "limited_calls"}, make_logger({.level = "warn"}))};
  tokens.limit("psp", 4);

  std::atomic<int> made{0};
  std::vector<std::jthread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&](const std::stop_token& end) { call_again_and_again(end, tokens, service, made); });
  }
  for (int seconds = argc > 2 ? std::atoi(argv[2]) : 10; seconds > 0; --seconds) {
    std::this_thread::sleep_for(1s);
    std::cout << made.exchange(0)
              << " calls by this copy in the last second; most at once, by all copies: " << service.most << std::endl;
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
