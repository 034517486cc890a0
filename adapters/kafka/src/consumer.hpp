#pragma once
// One member of a consumer group, over per-partition queues (traps 19, 45): each partition's records wait in a queue of
// their own, taken when there is room for them; nothing is ever paused, and the main queue carries only rebalances and errors.

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "bell.hpp"
#include "client.hpp"
#include "fetcher_wakeup.hpp"
#include "turnstile/ports/broker.hpp"

namespace turnstile::kafka {

/// Owned and used by one thread, except wake(). Callbacks of librdkafka run on that thread too, inside poll() and close().
class KafkaConsumer final : public BrokerConsumer, private ClientEvents {
 public:
  KafkaConsumer(const Settings& settings, std::shared_ptr<spdlog::logger> logger);
  ~KafkaConsumer() override;

  void subscribe(const std::vector<std::string>& topics, AssignmentListener& listener) override;
  void poll(std::chrono::milliseconds timeout) override;
  std::unique_ptr<Block> take(const TopicPartition& from, std::size_t most) override;
  void wake() noexcept override { bell_->ring(); }
  std::vector<std::optional<Offset>> committed(std::span<const TopicPartition> of,
                                               std::chrono::milliseconds timeout) override;
  void commit(std::span<const TopicPartitionOffset> offsets, bool wait) override;
  void seek(const TopicPartitionOffset& to) override;
  std::optional<std::pair<Offset, Offset>> bounds(const TopicPartition& of, std::chrono::milliseconds timeout) override;
  void close() override;

 private:
  struct Assigned {
    Queue queue;
    /// A seek that librdkafka could not make yet; nothing is taken until it has.
    std::optional<Offset> seek_to;
    std::size_t bytes_since_wakeup = 0;
  };

  void on_rebalance(rd_kafka_resp_err_t code, rd_kafka_topic_partition_list_t* list) noexcept override;
  void on_committed(rd_kafka_resp_err_t code, const rd_kafka_topic_partition_list_t* list) noexcept override;
  void on_error(rd_kafka_resp_err_t code, const std::string& reason) noexcept override;

  void leave_group();
  void assign(rd_kafka_topic_partition_list_t* list);
  void revoke(rd_kafka_topic_partition_list_t* list);
  void tell_librdkafka(rd_kafka_topic_partition_list_t* list, bool add);
  void separate_queue(const TopicPartition& at);
  void serve();
  void serve_record(const rd_kafka_message_t& record);
  std::span<rd_kafka_message_t*> drain(rd_kafka_queue_t* queue, const TopicPartition& from, std::size_t most);
  std::size_t without_errors(std::span<rd_kafka_message_t*> fresh, const TopicPartition& from);
  void settle_seeks();
  bool try_seek(const TopicPartition& at, Offset to);
  void look_at_error(rd_kafka_resp_err_t code, const std::string& reason, const std::string& topic,
                     std::int32_t partition, Offset offset);
  /// Thrown by the next poll(): nothing may be thrown through librdkafka.
  void fail(std::exception_ptr why) noexcept;
  void fail_for_good(rd_kafka_resp_err_t code, const std::string& reason, const std::string& topic);

  std::shared_ptr<Bell> bell_;
  std::shared_ptr<Client> client_;
  FetcherWakeup wakeup_;
  Queue main_queue_;
  AssignmentListener* listener_ = nullptr;
  std::unordered_map<TopicPartition, Assigned> assigned_;
  std::vector<rd_kafka_message_t*> scratch_;
  std::exception_ptr failure_;
  std::string last_commit_error_;
  bool closed_ = false;
};

}  // namespace turnstile::kafka
