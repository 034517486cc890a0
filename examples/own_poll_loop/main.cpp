// Your own poll loop over librdkafka, with Turnstile's decorators. The loop polls and commits, and PollLoop ensures
// that each message takes effect once. For programs that have such a loop already and want to keep it.
//
//   own_poll_loop BROKERS POSTGRES_URL TOPIC

#include <librdkafka/rdkafka.h>

#include <csignal>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <turnstile/kafka/message.hpp>
#include <turnstile/turnstile.hpp>

using namespace turnstile;
using namespace std::chrono_literals;

namespace {

volatile std::sig_atomic_t stopping = 0;

/// While this object lives, SIGINT and SIGTERM end the loop, even if it waits for a permit or for the next attempt. It
/// must be destroyed before the PollLoop.
class StopAtSignal {
 public:
  explicit StopAtSignal(PollLoop& loop) {
    loop_ = &loop;
    set([](int) {
      stopping = 1;
      loop_->stop();
    });
  }
  ~StopAtSignal() { set(SIG_DFL); }
  StopAtSignal(const StopAtSignal&) = delete;
  StopAtSignal& operator=(const StopAtSignal&) = delete;

 private:
  static void set(void (*handler)(int)) {
    std::signal(SIGINT, handler);
    std::signal(SIGTERM, handler);
  }
  static inline PollLoop* loop_ = nullptr;
};

void book(const Message& message, Context& ctx) { ctx.defer("INSERT INTO booking (what) VALUES ($1)", message.text()); }

/// Revoked partitions must be claimed anew when they come back: revoked() tells the PollLoop.
void on_rebalance(rd_kafka_t* kafka, rd_kafka_resp_err_t error, rd_kafka_topic_partition_list_t* partitions,
                  void* opaque) {
  if (error == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
    rd_kafka_assign(kafka, partitions);
    return;
  }
  auto& loop = *static_cast<PollLoop*>(opaque);
  for (int i = 0; i < partitions->cnt; ++i) {
    loop.revoked({partitions->elems[i].topic, partitions->elems[i].partition});
  }
  rd_kafka_assign(kafka, nullptr);
}

using Kafka = std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)>;
using Record = std::unique_ptr<rd_kafka_message_t, decltype(&rd_kafka_message_destroy)>;
using Topics = std::unique_ptr<rd_kafka_topic_partition_list_t, decltype(&rd_kafka_topic_partition_list_destroy)>;

Kafka subscribe(const std::string& brokers, const std::string& topic, PollLoop& loop) {
  char error[512];
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  // auto.offset.reset: with librdkafka's "latest", a seek to an offset that retention has deleted would skip unread
  // messages.
  const char* settings[][2] = {{"bootstrap.servers", brokers.c_str()},
                               {"group.id", "own-poll-loop"},
                               {"auto.offset.reset", "earliest"},
                               {"enable.auto.commit", "false"},
                               {"isolation.level", "read_committed"}};
  for (const auto& [name, value] : settings) {
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != RD_KAFKA_CONF_OK) throw std::runtime_error(error);
  }
  rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
  rd_kafka_conf_set_opaque(conf, &loop);
  Kafka kafka{rd_kafka_new(RD_KAFKA_CONSUMER, conf, error, sizeof error), rd_kafka_destroy};
  if (!kafka) throw std::runtime_error(error);
  rd_kafka_poll_set_consumer(kafka.get());

  const Topics topics{rd_kafka_topic_partition_list_new(1), rd_kafka_topic_partition_list_destroy};
  rd_kafka_topic_partition_list_add(topics.get(), topic.c_str(), RD_KAFKA_PARTITION_UA);
  if (const auto code = rd_kafka_subscribe(kafka.get(), topics.get()); code != RD_KAFKA_RESP_ERR_NO_ERROR) {
    throw std::runtime_error(rd_kafka_err2str(code));
  }
  return kafka;
}

/// Reads messages again that were lost or dropped. If Kafka has revoked the partition, the seek does nothing.
void read_again(rd_kafka_t* kafka, PollLoop& loop, const TopicPartitionOffset& from) {
  const Topics where{rd_kafka_topic_partition_list_new(1), rd_kafka_topic_partition_list_destroy};
  rd_kafka_topic_partition_list_add(where.get(), from.at.topic.c_str(), from.at.partition)->offset = from.offset;
  const std::unique_ptr<rd_kafka_error_t, decltype(&rd_kafka_error_destroy)> error{
      rd_kafka_seek_partitions(kafka, where.get(), 10'000), rd_kafka_error_destroy};
  if (error) throw std::runtime_error(rd_kafka_error_string(error.get()));
  loop.revoked(from.at);
}

/// Runs the message to its end; only then may its offset be committed. False: another member owns it now, or it comes
/// again.
bool settle(rd_kafka_t* kafka, PollLoop& loop, const rd_kafka_message_t* record) {
  while (true) {
    try {
      loop.handle(kafka::view(record));
      return true;
    } catch (const Fenced&) {
      // Another member claimed the partition. If Kafka has not revoked it, this message must come again.
      const Message fenced = kafka::view(record);
      read_again(kafka, loop, {{std::string(fenced.topic()), fenced.partition()}, fenced.offset()});
      return false;
    } catch (const Stopped&) {
      return false;
    } catch (const ReadAgain& error) {
      std::cerr << error.what() << '\n';
      read_again(kafka, loop, error.from);
      return false;
    } catch (const StoreUnavailable& error) {
      // PostgreSQL is unavailable: nothing was decided, so the message must be handled again. The loop simply waits
      // here. A loop that waits for longer than max.poll.interval.ms (5 minutes) loses its partitions, which does no
      // harm.
      if (stopping != 0) return false;
      std::cerr << error.what() << "; once more in a second\n";
      std::this_thread::sleep_for(1s);
    }
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) {
    std::cerr << "usage: own_poll_loop BROKERS POSTGRES_URL TOPIC\n";
    return 2;
  }
  Config config;
  config.kafka = {{"bootstrap.servers", argv[1]}, {"group.id", "own-poll-loop"}};
  config.postgres.emplace().url = Secret(argv[2]);
  PollLoop loop{config};
  loop.topic(argv[3], book | transactional() | limit(4) | retry(exponential{100ms, 5}) | dead_letter());

  const StopAtSignal stop_at_signal(loop);
  const Kafka kafka = subscribe(argv[1], argv[3], loop);
  while (stopping == 0) {
    const Record record{rd_kafka_consumer_poll(kafka.get(), 200), rd_kafka_message_destroy};
    if (!record) continue;
    if (record->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
      std::cerr << "Kafka: " << rd_kafka_message_errstr(record.get()) << '\n';
      continue;
    }
    if (!settle(kafka.get(), loop, record.get())) continue;
    const Message settled = kafka::view(record.get());
    if (loop.may_commit({{std::string(settled.topic()), settled.partition()}, settled.offset() + 1})) {
      rd_kafka_commit_message(kafka.get(), record.get(), 1);
    }
  }
  rd_kafka_consumer_close(kafka.get());
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
