// The programs of tests/chaos/run.
//
//   chaos load BROKERS TOPIC RATE
//     creates the topics TOPIC (6 partitions) and TOPIC.dlq, then publishes RATE messages in a second until SIGTERM:
//     ids 0, 1, 2, …, every tenth twice. Prints "ready" once the topics exist. At the end it waits for the last
//     acknowledgement and prints {"records": …, "distinct": …}.
//   chaos consume CONFIG TOPIC SCHEMA WORK_MS JOURNAL [elsewhere | poison | poison-forgiven | service:FILE]
//     a consumer whose effect is a row. It writes "ID OFFSET" to JOURNAL before each run. `elsewhere`: the known-bad
//     build, whose effects are in another transaction, so that a kill separates them from the inbox row. `poison`: the
//     process aborts at the message with id 501. `poison-forgiven`: the same in the known-bad build, which suspects no
//     message. `service:FILE`: while FILE exists, the messages of each fifth key fail.
//   chaos limited CONFIG TOPIC SCHEMA WORK_MS FOLDER
//     the same under a limit of the whole cluster. Its journal is that of tests/support/journal.hpp. Every 50th message
//     takes 20 times as long.
//   chaos operator BROKERS TOKEN_TOPIC LIMITER
//     a member of the domain. It sets the limit to each number that it reads, and prints whether it took effect.
//   chaos watch BROKERS TOKEN_TOPIC LIMITER
//     follows the token log until SIGTERM. It prints a line for each record: position, time (CLOCK_MONOTONIC, ns),
//     member, its pid, kind, outcome, and then the limit in effect, permits held by all, members.

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <iostream>
#include <map>
#include <mutex>
#include <pqxx/pqxx>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "tests/support/forwarding_store.hpp"
#include "tests/support/journal.hpp"
#include "tests/support/token_records.hpp"
#include "tokens/apply.hpp"
#include "turnstile/kafka/admin.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/kafka/limiters.hpp"
#include "turnstile/log.hpp"
#include "turnstile/ports/broker.hpp"
#include "turnstile/turnstile.hpp"

namespace {

using namespace turnstile;
using namespace std::chrono_literals;

std::atomic<bool> stop{false};

/// A broker may be unavailable for longer than a producer waits. A record that it stored without an acknowledgement is
/// published twice, which does no harm here.
void publish(ports::BrokerProducer& producer, const OwnedMessage& message) {
  for (;;) {
    try {
      producer.send(message);
      return;
    } catch (const BrokerError& error) {
      std::cerr << "again: " << error.what() << std::endl;
    }
  }
}

/// Each thread publishes at its share of the rate, and waits for the acknowledgement.
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
          publish(*producer, message);
          ++records;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::cout << "{\"records\": " << records << ", \"distinct\": " << next << "}" << std::endl;
  return 0;
}

/// Connections of the known-bad build, one for each concurrent thread.
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

/// The known-bad build: a new owner believes that the last owner has released the partition.
class ForgivingStore final : public test::ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  std::vector<ports::PartitionClaim> claim_partitions(const std::string& group,
                                                      std::span<const TopicPartition> partitions,
                                                      const ports::ClaimWait& wait) override {
    auto claims = ForwardingStore::claim_partitions(group, partitions, wait);
    for (auto& claim : claims) claim.is_clean = true;
    return claims;
  }
};

int consume(int argc, char** argv) {
  const Config config = Config::load(argv[2]);
  const std::string topic = argv[3];
  const std::string table = std::string(argv[4]) + ".effect";
  const std::chrono::milliseconds work(std::stol(argv[5]));
  const int journal = ::open(argv[6], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const std::string way = argc > 7 ? argv[7] : "";
  const bool broken = way == "elsewhere", poisoned = way.starts_with("poison");
  const std::string down = way.starts_with("service:") ? way.substr(8) : "";
  Elsewhere elsewhere(config.postgres->url.reveal());
  const std::string insert = "INSERT INTO " + table + " (id, pid, record_partition, record_offset, record_key) VALUES ";
  Backends backends = connect(config);
  if (way == "poison-forgiven") backends.store = std::make_shared<ForgivingStore>(backends.store);
  Consumer app(config, backends);
  app.topic(topic,
            [&](const Message& message, Context& context) {
              const std::string id(message.header("message-id").value_or("none"));
              if (poisoned && id == "501") std::abort();
              const std::string line = id + " " + std::to_string(message.offset()) + "\n";
              // A single write, so that lines are whole even if the process is killed.
              if (::write(journal, line.data(), line.size()) < 0)
                throw std::runtime_error("the journal cannot be written");
              std::this_thread::sleep_for(work);
              const std::string key(message.key().value_or(""));
              if (!down.empty() && std::stoi(key) % 5 == 0 && std::filesystem::exists(down))
                throw std::runtime_error("the service is down");
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

int limited(char** argv) {
  const Config config = Config::load(argv[2]);
  const std::string insert =
      "INSERT INTO " + std::string(argv[4]) +
      ".effect (id, pid, record_partition, record_offset, record_key) VALUES ($1, $2, $3, $4, $5)";
  const std::chrono::milliseconds work(std::stol(argv[5]));
  test::Journal journal(argv[6]);
  Backends backends = connect(config);
  backends.store = std::make_shared<test::JournalledStore>(backends.store, journal);
  Consumer app(config, backends);
  app.topic(argv[3],
            [&](const Message& message, Context& context) {
              const auto run = journal.start(message.partition(), context.fence()->epoch.value, message.offset());
              std::this_thread::sleep_for(message.offset() % 50 == 0 ? work * 20 : work);
              journal.end(run, context.stop_token().stop_requested());
              context.tx().exec(insert, std::string(message.header("message-id").value_or("none")), ::getpid(),
                                message.partition(), message.offset(), std::string(message.key().value_or("")));
            } | transactional() |
                retry(exponential{20ms, 5}) | dead_letter());
  app.run();
  return 0;
}

int operate(const std::string& brokers, const std::string& topic, const std::string& limiter) {
  const auto domain = kafka::open_limiters({{"bootstrap.servers", brokers}}, {.name = topic}, {.client = "operator"},
                                           make_logger({"info", "text"}));
  for (std::int64_t limit = 0; std::cin >> limit;)
    std::cout << limit << (domain->set_limit(limiter, limit, 20s) ? ": held" : ": not held") << std::endl;
  return 0;
}

int watch(const std::string& brokers, const std::string& topic, const std::string& limiter) {
  static constexpr std::array<std::string_view, 14> kKinds{"unknown", "joined",  "keep",    "acquire", "release",
                                                           "claimed", "revoked", "drained", "expire",  "limit",
                                                           "version", "divided", "opened",  "left"};
  static_assert(kKinds.size() == std::variant_size_v<decltype(tokens::Event::body)>);
  std::signal(SIGTERM, [](int) { stop = true; });
  tokens::State state;
  std::map<tokens::MemberId, std::uint32_t> pids;
  test::tail_token_topic(brokers, topic, [&](const test::LoggedEvent* record) {
    if (record == nullptr) return !stop;
    const auto& event = record->event;
    if (const auto* joined = std::get_if<tokens::Joined>(&event.body)) pids[event.member] = joined->pid;
    const auto effects = tokens::apply(state, record->position, event);
    const auto entry = state.limiters.find(limiter);
    const bool known = entry != state.limiters.end();
    std::cout << record->position << ' ' << record->created_ns << ' ' << event.member << ' ' << pids[event.member]
              << ' ' << kKinds.at(event.body.index()) << ' ' << to_text(effects.outcome) << ' '
              << (known ? entry->second.limit() : 0) << ' ' << (known ? entry->second.held() : 0) << ' '
              << state.members.size() << std::endl;
    return !stop;
  });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  try {
    if (verb == "load" && argc == 5) return load(argv[2], argv[3], std::stoi(argv[4]));
    if (verb == "consume" && argc >= 7) return consume(argc, argv);
    if (verb == "limited" && argc == 7) return limited(argv);
    if (verb == "operator" && argc == 5) return operate(argv[2], argv[3], argv[4]);
    if (verb == "watch" && argc == 5) return watch(argv[2], argv[3], argv[4]);
  } catch (const std::exception& e) {
    std::cerr << "chaos " << verb << ": " << e.what() << '\n';
    return 1;
  }
  std::cerr << "usage: at the top of tests/chaos/chaos_main.cpp\n";
  return 2;
}
