// A program without any Kafka handler that uses tokens, for tests that kill it from outside.
//
//   token_user BROKERS TOPIC LIMITER LIMIT LEASE_MS THREADS WORK_MS JOURNAL
//
// Each thread asks for a token, works and returns the token, again and again, until SIGTERM.

#include <atomic>
#include <csignal>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/journal.hpp"
#include "turnstile/kafka/limiters.hpp"
#include "turnstile/log.hpp"
#include "turnstile/token_service.hpp"

namespace {

using namespace turnstile;
using namespace std::chrono_literals;

std::atomic<bool> stop{false};

void work(TokenService& tokens, const std::string& limiter, std::chrono::milliseconds time, test::Journal& journal) {
  while (!stop) {
    const auto answer = tokens.request(limiter, 1, Priority::normal, 500ms);
    const auto* granted = std::get_if<Granted>(&answer);
    if (granted == nullptr) continue;
    const auto run = journal.start(-1, 0, 0);
    std::this_thread::sleep_for(time);  // the work
    journal.end(run, granted->lost.stop_requested());
    tokens.release(granted->token);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 9) return 2;
  std::signal(SIGTERM, [](int) { stop = true; });
  try {
    test::Journal journal(argv[8]);
    TokenService tokens{
        kafka::open_limiters({{"bootstrap.servers", argv[1]}}, {.name = argv[2]},
                             {.client = "token_user", .lease = std::chrono::milliseconds(std::stol(argv[5]))},
                             make_logger({"info", "text"}))};
    tokens.limit(argv[3], std::stol(argv[4]));
    std::vector<std::jthread> threads;
    for (int i = std::stoi(argv[6]); i > 0; --i) {
      threads.emplace_back([&] { work(tokens, argv[3], std::chrono::milliseconds(std::stol(argv[7])), journal); });
    }
    threads.clear();
  } catch (const std::exception& e) {
    std::cerr << "token_user: " << e.what() << '\n';
    return 1;
  }
  return 0;
}
