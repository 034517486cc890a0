#pragma once
// The fastest consumer with librdkafka's C API: partition queues, polled in batches (hazard: partition-queues). They
// are taken after `assign` in the rebalance callback, and released in it before unassigning.

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

/// A configuration. Ends the program with librdkafka's message if it refuses a setting.
rd_kafka_conf_t* make_conf(const Settings& settings);
/// "a=b,c=d", as on a command line.
Settings parse_settings(const std::string& text);

/// Creates the topic. Ends the program if it exists already.
void create_topic(rd_kafka_t* rk, const std::string& topic, int partitions);
void remove_topic(rd_kafka_t* rk, const std::string& topic);

/// How many records all partitions of the topic contain.
std::int64_t messages_in(const std::string& brokers, const std::string& topic);

struct Span {
  std::int64_t low = 0;
  std::int64_t high = 0;
};

/// A group of one consumer for one topic. One thread calls poll() and runs the rebalance callback. One worker reads
/// each partition's queue. Workers must have stopped before the destructor, which closes the consumer.
class PartitionReader {
 public:
  PartitionReader(const std::string& brokers, const std::string& topic, const std::string& group,
                  const Settings& more = {});
  ~PartitionReader();
  PartitionReader(const PartitionReader&) = delete;
  PartitionReader& operator=(const PartitionReader&) = delete;

  /// Polls until all partitions of the topic are assigned, for up to 30 s.
  void wait_for_partitions();
  /// Serves rebalances, commits and errors. Call it while workers run.
  void poll(int timeout_ms);

  [[nodiscard]] int partitions() const { return static_cast<int>(spans_.size()); }
  [[nodiscard]] rd_kafka_queue_t* queue(int partition) const { return queues_.at(partition); }
  [[nodiscard]] Span span(int partition) const { return spans_.at(static_cast<std::size_t>(partition)); }
  [[nodiscard]] std::int64_t messages() const;
  /// Everything below `next` of the partition is settled, and the next automatic commit includes it. Any thread may
  /// call it.
  void store(int partition, std::int64_t next) const;
  /// Commits the stored offsets, and waits for the broker's answer.
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

/// The text of a header. Empty if there is none.
std::string_view header(const rd_kafka_message_t& message, const char* name);

}  // namespace bench
