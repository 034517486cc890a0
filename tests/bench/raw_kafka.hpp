#pragma once
// The best that librdkafka's C API gives to a consumer: partition queues, polled in batches (hazard: partition-queues). Taken after
// `assign` in the rebalance callback, given back in it before unassigning.

#include <librdkafka/rdkafka.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace bench {

using Settings = std::vector<std::pair<std::string, std::string>>;

/// A configuration; ends the program with librdkafka's words when it refuses a setting.
rd_kafka_conf_t* make_conf(const Settings& settings);
/// "a=b,c=d" as it stands on a command line.
Settings parse_settings(const std::string& text);

/// Creates the topic; one that exists already ends the program.
void create_topic(rd_kafka_t* rk, const std::string& topic, int partitions);
void remove_topic(rd_kafka_t* rk, const std::string& topic);

/// How many records all partitions of the topic hold.
std::int64_t messages_in(const std::string& brokers, const std::string& topic);

struct Span {
  std::int64_t low = 0;
  std::int64_t high = 0;
};

/// A group of one consumer over one topic. poll() and the rebalance callback belong to one thread; each partition's
/// queue to the one worker that reads it. Workers must have stopped before the destructor, which closes the consumer.
class PartitionReader {
 public:
  PartitionReader(const std::string& brokers, const std::string& topic, const std::string& group,
                  const Settings& more = {});
  ~PartitionReader();
  PartitionReader(const PartitionReader&) = delete;
  PartitionReader& operator=(const PartitionReader&) = delete;

  /// Polls until all partitions of the topic are there; 30 s at most.
  void wait_for_partitions();
  /// Serves rebalances, commits and errors. To be called while workers run.
  void poll(int timeout_ms);

  [[nodiscard]] int partitions() const { return static_cast<int>(spans_.size()); }
  [[nodiscard]] rd_kafka_queue_t* queue(int partition) const { return queues_.at(partition); }
  [[nodiscard]] Span span(int partition) const { return spans_.at(static_cast<std::size_t>(partition)); }
  [[nodiscard]] std::int64_t messages() const;
  /// Everything below `next` of the partition is settled; the next automatic commit takes it. From any thread.
  void store(int partition, std::int64_t next) const;
  /// Commits what was stored and waits for the broker's answer.
  void commit() const;
  [[nodiscard]] rd_kafka_t* handle() const { return rk_; }

 private:
  static void on_rebalance(rd_kafka_t*, rd_kafka_resp_err_t, rd_kafka_topic_partition_list_t*, void*);
  void take(const rd_kafka_topic_partition_list_t* list);
  void give_back();

  rd_kafka_t* rk_ = nullptr;
  std::string topic_;
  std::map<int, rd_kafka_queue_t*> queues_;
  std::vector<Span> spans_;
};

/// The text of a header; empty when there is none.
std::string_view header(const rd_kafka_message_t& message, const char* name);

}  // namespace bench
