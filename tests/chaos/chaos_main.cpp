// The two programs of tests/chaos/run.
//
//   chaos load BROKERS TOPIC RATE
//     makes the topics TOPIC (6 partitions) and TOPIC.dlq, then publishes RATE messages a second until SIGTERM: ids 0, 1, 2, …, every
//     tenth a second time. Prints "ready" once the topics are there. Then waits for the last acknowledgement and prints {"records": …, "distinct": …}.
//   chaos consume CONFIG TOPIC SCHEMA WORK_MS JOURNAL [elsewhere]
//     a consumer whose effect is one row; it writes "ID OFFSET" to JOURNAL before each run. `elsewhere`: the known-bad build, which
//     makes its effects in a transaction of its own, so that a kill separates them from the inbox row.

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <deque>
#include <iostream>
#include <mutex>
#include <pqxx/pqxx>
#include <string>
#include <thread>
#include <vector>

#include "turnstile/kafka/admin.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/ports/broker.hpp"
#include "turnstile/turnstile.hpp"

namespace {

using namespace turnstile;
using namespace std::chrono_literals;

std::atomic<bool> stop{false};

/// Each thread publishes and waits for the acknowledgement, at its share of the rate.
int load(const std::string& brokers, const std::string& topic, int rate) {
  const kafka::Settings settings{{"bootstrap.servers", brokers}};
  kafka::create_topic(settings, {topic, 6, -1, {}});
  kafka::create_topic(settings, {topic + ".dlq", 1, -1, {}});
  std::signal(SIGTERM, [](int) { stop = true; });
  const auto producer = kafka::open_broker(settings, nullptr)->open_producer();
  std::cout << "ready" << std::endl;
  constexpr int kThreads = 16;
  std::atomic<std::int64_t> next{0}, records{0};
  std::vector<std::thread> threads;
  const auto began = std::chrono::steady_clock::now();
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        const std::int64_t number = next++;
        std::this_thread::sleep_until(began + number * 1'000'000us / rate);
        OwnedMessage message;
        message.topic = topic;
        message.partition = -1;
        message.key = std::to_string(number % 500);
        message.payload = "payload";
        message.headers = {{"message-id", std::to_string(number)}};
        for (int copies = number % 10 == 0 ? 2 : 1; copies > 0; --copies) {
          producer->send(message);
          ++records;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::cout << "{\"records\": " << records << ", \"distinct\": " << next << "}" << std::endl;
  return 0;
}

/// Connections of the known-bad build, one for each thread that asks at once.
class Elsewhere {
 public:
  explicit Elsewhere(std::string url) : url_(std::move(url)) {}
  void exec(const std::string& sql) {
    std::unique_ptr<pqxx::connection> connection;
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        connection = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (!connection) connection = std::make_unique<pqxx::connection>(url_);
    pqxx::work work(*connection);
    work.exec(sql);
    work.commit();
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(connection));
  }

 private:
  const std::string url_;
  std::mutex mutex_;
  std::deque<std::unique_ptr<pqxx::connection>> idle_;
};

int consume(int argc, char** argv) {
  const Config config = Config::load(argv[2]);
  const std::string topic = argv[3];
  const std::string table = std::string(argv[4]) + ".effect";
  const std::chrono::milliseconds work(std::stol(argv[5]));
  const int journal = ::open(argv[6], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const bool broken = argc > 7 && std::string(argv[7]) == "elsewhere";
  Elsewhere elsewhere(config.postgres->url.reveal());
  const std::string insert = "INSERT INTO " + table + " (id, pid, record_partition, record_offset, record_key) VALUES ";
  Consumer app(config);
  app.topic(topic,
            [&](const Message& message, Context& context) {
              const std::string id(message.header("message-id").value_or("none"));
              const std::string line = id + " " + std::to_string(message.offset()) + "\n";
              // One write: whole lines, also when the process is killed.
              if (::write(journal, line.data(), line.size()) < 0)
                throw std::runtime_error("the journal cannot be written");
              std::this_thread::sleep_for(work);
              const std::string key(message.key().value_or(""));
              if (broken) {
                elsewhere.exec(insert + "(" + id + ", " + std::to_string(::getpid()) + ", " +
                               std::to_string(message.partition()) + ", " + std::to_string(message.offset()) + ", " +
                               key + ")");
              } else {
                context.tx().exec(insert + "($1, $2, $3, $4, $5)", id, ::getpid(), message.partition(),
                                  message.offset(), key);
              }
            } | transactional() |
                retry(exponential{20ms, 5}) | dead_letter());
  app.run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  try {
    if (verb == "load" && argc == 5) return load(argv[2], argv[3], std::stoi(argv[4]));
    if (verb == "consume" && argc >= 7) return consume(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << "chaos " << verb << ": " << e.what() << '\n';
    return 1;
  }
  std::cerr << "usage: at the top of tests/chaos/chaos_main.cpp\n";
  return 2;
}
