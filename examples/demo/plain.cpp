#include "plain.hpp"

#include <libpq-fe.h>
#include <librdkafka/rdkafka.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <turnstile/config.hpp>
#include <vector>

#include "board.hpp"
#include "settings.hpp"

namespace demo {
namespace {

std::atomic<bool> ending{false};

using Record = std::unique_ptr<rd_kafka_message_t, decltype(&rd_kafka_message_destroy)>;

/// Between the polling thread and the handlers' threads.
class Queue {
 public:
  void push(Record record) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_.size() < kMost; });
    waiting_.push_back(std::move(record));
    changed_.notify_all();
  }
  /// Null: no more records will come.
  Record pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
    if (waiting_.empty()) return {nullptr, &rd_kafka_message_destroy};
    Record record = std::move(waiting_.front());
    waiting_.pop_front();
    changed_.notify_all();
    return record;
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  static constexpr std::size_t kMost = 200;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Record> waiting_;
  bool closed_ = false;
};

class Kafka {
 public:
  Kafka(const turnstile::Config& config, const std::string& topic) {
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", config.kafka.at("bootstrap.servers"));
    set(conf, "session.timeout.ms", config.kafka.at("session.timeout.ms"));
    set(conf, "heartbeat.interval.ms", config.kafka.at("heartbeat.interval.ms"));
    set(conf, "group.id", topic);
    set(conf, "partition.assignment.strategy", "range");
    set(conf, "auto.offset.reset", "earliest");
    set(conf, "enable.auto.offset.store", "false");  // by hand, after a message was handled
    set(conf, "auto.commit.interval.ms", "500");
    set(conf, "log_level", "2");
    std::array<char, 512> error{};
    handle_ = rd_kafka_new(RD_KAFKA_CONSUMER, conf, error.data(), error.size());
    if (handle_ == nullptr) throw std::runtime_error(error.data());
    rd_kafka_poll_set_consumer(handle_);
    const std::unique_ptr<rd_kafka_topic_partition_list_t, decltype(&rd_kafka_topic_partition_list_destroy)> topics{
        rd_kafka_topic_partition_list_new(1), &rd_kafka_topic_partition_list_destroy};
    rd_kafka_topic_partition_list_add(topics.get(), topic.c_str(), RD_KAFKA_PARTITION_UA);
    if (const auto code = rd_kafka_subscribe(handle_, topics.get())) throw std::runtime_error(rd_kafka_err2str(code));
  }
  ~Kafka() {
    rd_kafka_consumer_close(handle_);
    rd_kafka_destroy(handle_);
  }
  Kafka(const Kafka&) = delete;
  Kafka& operator=(const Kafka&) = delete;

  /// Null if there was none.
  [[nodiscard]] Record poll() const {
    constexpr int wait_ms = 50;
    Record record{rd_kafka_consumer_poll(handle_, wait_ms), &rd_kafka_message_destroy};
    if (record && record->err != RD_KAFKA_RESP_ERR_NO_ERROR) record.reset();
    return record;
  }
  /// A bit for each partition.
  [[nodiscard]] std::uint32_t assigned() const {
    rd_kafka_topic_partition_list_t* list = nullptr;
    if (rd_kafka_assignment(handle_, &list) != RD_KAFKA_RESP_ERR_NO_ERROR) return 0;
    std::uint32_t bits = 0;
    for (int i = 0; i < list->cnt; ++i) bits |= 1U << static_cast<unsigned>(list->elems[i].partition);
    rd_kafka_topic_partition_list_destroy(list);
    return bits;
  }

 private:
  static void set(rd_kafka_conf_t* conf, const char* key, const std::string& value) {
    std::array<char, 512> error{};
    if (rd_kafka_conf_set(conf, key, value.c_str(), error.data(), error.size()) != RD_KAFKA_CONF_OK)
      throw std::runtime_error(error.data());
  }
  rd_kafka_t* handle_ = nullptr;
};

class Database {
 public:
  explicit Database(const std::string& url) : handle_(PQconnectdb(url.c_str())) {
    if (PQstatus(handle_) != CONNECTION_OK) throw std::runtime_error(PQerrorMessage(handle_));
  }
  ~Database() { PQfinish(handle_); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  void charge(const std::string& id, const std::string& account, const std::string& consumer) const {
    const std::array<const char*, 3> values{id.c_str(), account.c_str(), consumer.c_str()};
    PGresult* result =
        PQexecParams(handle_, "INSERT INTO plain_charge (id, account, consumer) VALUES ($1, $2, $3::integer)", 3,
                     nullptr, values.data(), nullptr, nullptr, 0);
    const bool done = PQresultStatus(result) == PGRES_COMMAND_OK;
    const std::string why = PQresultErrorMessage(result);
    PQclear(result);
    if (!done) throw std::runtime_error(why);
  }

 private:
  PGconn* handle_;
};

std::string id_of(const rd_kafka_message_t& record) {
  rd_kafka_headers_t* headers = nullptr;
  const void* value = nullptr;
  std::size_t size = 0;
  if (rd_kafka_message_headers(&record, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR ||
      rd_kafka_header_get_last(headers, "message-id", &value, &size) != RD_KAFKA_RESP_ERR_NO_ERROR)
    throw std::runtime_error("a record has no header message-id");
  return {static_cast<const char*>(value), size};
}

void handle_all(Queue& queue, const Board& board, const ConsumerOptions& options, const std::string& url) {
  const int consumer = options.number;
  const Database database(url);
  while (const Record record = queue.pop()) {
    const std::string id = id_of(*record);
    board.handler_starts(consumer);
    std::this_thread::sleep_for(options.handler_time);
    database.charge(id, {static_cast<const char*>(record->key), record->key_len}, std::to_string(consumer));
    board.handler_stops(consumer);
    board.slot(consumer).done.fetch_add(1);
    rd_kafka_offset_store(record->rkt, record->partition, record->offset);
  }
}

}  // namespace

int consume_plain(const ConsumerOptions& options) try {
  std::signal(SIGTERM, [](int) { ending = true; });
  const Board board = Board::open(options.board);
  const turnstile::Config config = turnstile::Config::load(options.config);  // for the addresses only
  const Kafka kafka(config, options.topic);
  Queue queue;
  std::vector<std::thread> threads;
  for (int i = 0; i < kHandlerLimit; ++i) {
    threads.emplace_back([&] {
      try {
        handle_all(queue, board, options, config.postgres.value().url.reveal());
      } catch (const std::exception& error) {
        std::fprintf(stderr, "plain consumer %d: %s\n", options.number, error.what());
        std::_Exit(1);
      }
    });
  }
  while (!ending) {
    board.slot(options.number).assigned = kafka.assigned();
    Record record = kafka.poll();
    if (!record) continue;
    board.delivered(options.number, record->partition, record->offset);
    queue.push(std::move(record));
  }
  queue.close();
  for (auto& thread : threads) thread.join();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "plain consumer %d: %s\n", options.number, error.what());
  return 1;
}

}  // namespace demo
