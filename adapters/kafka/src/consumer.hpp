#pragma once
// A member of a consumer group with a queue for each partition (hazard: paused-partition, partition-queues). Records
// wait in the queue of their partition until there is room for them. No partition is ever paused, and the main queue
// carries only rebalances and errors.

#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "arrivals.hpp"
#include "client.hpp"
#include "fetcher_wakeup.hpp"
#include "gap_reader.hpp"
#include "turnstile/ports/broker.hpp"
#include "wake_up_event.hpp"

namespace turnstile::kafka {

/// One thread at a time uses it, except wake(), wait() and ends(). librdkafka's callbacks run inside poll() and close().
class KafkaConsumer final : public ports::BrokerConsumer, private ClientEvents {
 public:
  KafkaConsumer(const Settings& settings, std::shared_ptr<spdlog::logger> logger);
  ~KafkaConsumer() override;

  void subscribe(const std::vector<std::string>& topics, ports::AssignmentListener& listener) override;
  void poll(std::chrono::milliseconds timeout) override;
  std::unique_ptr<ports::Block> take(const TopicPartition& from, std::size_t most) override;
  void wait(std::chrono::milliseconds timeout) override { await(timeout); }
  bool must_poll() override;
  std::shared_ptr<ports::Arrivals> arrivals() override { return arrivals_; }
  void wake() noexcept override { wake_up_->wake(); }
  std::vector<std::optional<ports::GroupOffset>> committed(std::span<const TopicPartition> of,
                                                           std::chrono::milliseconds timeout) override;
  void commit(std::span<const ports::OffsetCommit> offsets, bool wait) override;
  void seek(const TopicPartitionOffset& to) override;
  std::vector<std::optional<std::pair<Offset, Offset>>> bounds(std::span<const TopicPartition> of,
                                                               std::chrono::milliseconds timeout) override;
  void close() override;
  void hurry_when(std::function<bool()> hurry) override { hurry_ = std::move(hurry); }
  std::optional<Offset> read_up_to(const TopicPartition& of) override;
  std::vector<std::string> why_no_end(std::span<const TopicPartition> of, std::chrono::milliseconds timeout) override;
  std::vector<std::optional<Offset>> log_ends(std::span<const TopicPartition> of,
                                              std::chrono::milliseconds timeout) override;
  std::vector<std::optional<ports::PartitionEnd>> ends(std::span<const TopicPartition> of,
                                                       std::chrono::milliseconds timeout) override;

 private:
  using SteadyClock = std::chrono::steady_clock;
  struct Assigned {
    Queue queue;
    /// A seek that librdkafka has not accepted yet. No record is taken before it has.
    std::optional<Offset> seek_to;
    std::size_t bytes_since_wakeup = 0;
    std::optional<Offset> next{};        ///< the offset after the last record taken, or where reading begins
    std::optional<Offset> read_up_to{};  ///< where reading began, or the end of a gap
    std::optional<Offset> next_seen{};   ///< `next` at the last look_at_idle_partitions()
    int idle_looks = 0;                  ///< how many looks in a row saw no record come
    std::optional<Offset> quiet_end{};   ///< see is_read_up_to()
    std::optional<Offset> gap_asked{};   ///< the end of the partition when the last question about a gap was asked
    SteadyClock::time_point gap_asked_at{};
  };

  void on_rebalance(rd_kafka_resp_err_t code, rd_kafka_topic_partition_list_t* list) noexcept override;
  void on_committed(rd_kafka_resp_err_t code, const rd_kafka_topic_partition_list_t* list) noexcept override;
  void on_error(rd_kafka_resp_err_t code, const std::string& reason) noexcept override;

  void leave_group();
  /// Calls `step` until it returns true, for up to `most`. `step` waits for a moment each time. If it takes long, the
  /// log reports what it waits for. False: `step` did not return true in time.
  bool wait_for(const char* what, std::chrono::milliseconds most, const std::function<bool()>& step);
  void tell_of_commit(std::span<const TopicPartitionOffset> offsets, bool committed);
  void look_at_topics();
  void join_again_for_topics();
  [[nodiscard]] PartitionList subscription() const;
  void assign(rd_kafka_topic_partition_list_t* list);
  void find_starts(rd_kafka_topic_partition_list_t* list);
  void revoke(rd_kafka_topic_partition_list_t* list);
  void tell_librdkafka(rd_kafka_topic_partition_list_t* list, bool add);
  void separate_queue(const TopicPartition& at);
  bool await(std::chrono::milliseconds timeout);
  void serve();
  void serve_record(const rd_kafka_message_t& record);
  std::span<rd_kafka_message_t*> drain(rd_kafka_queue_t* queue, const TopicPartition& from, std::size_t most);
  std::size_t without_errors(std::span<rd_kafka_message_t*> fresh, const TopicPartition& from);
  void look_at_idle_partitions();
  bool look_at_idle(const TopicPartition& at, Assigned& assigned);
  void find_positions(const std::vector<TopicPartition>& unsure);
  bool is_read_up_to(const TopicPartition& at, Assigned& assigned, Offset end);
  void settle_seeks();
  bool try_seek(const TopicPartition& at, Offset to);
  void look_at_error(rd_kafka_resp_err_t code, const std::string& reason, const std::string& topic,
                     std::int32_t partition, Offset offset);
  /// The next poll() throws it: no exception may pass through librdkafka.
  void fail(std::exception_ptr why) noexcept;
  void fail_for_good(rd_kafka_resp_err_t code, const std::string& reason, const std::string& topic);

  std::shared_ptr<WakeUpEvent> wake_up_;     ///< set by the main queue
  std::shared_ptr<QueueArrivals> arrivals_;  ///< set by the queues of the partitions
  std::shared_ptr<Client> client_;
  FetcherWakeup wakeup_;
  const std::optional<std::int64_t> reset_to_;  ///< where a group without an offset begins to read
  GapReader gaps_;
  const Settings settings_;
  std::shared_ptr<Client> uncommitted_;  ///< for log_ends(): opened when it is needed first
  SteadyClock::time_point next_look_at_idle_{}, next_positions_{};
  Queue main_queue_;
  ports::AssignmentListener* listener_ = nullptr;
  std::unordered_map<TopicPartition, Assigned> assigned_;
  std::vector<rd_kafka_message_t*> scratch_;
  std::exception_ptr failure_;
  std::string last_commit_error_;
  std::vector<std::string> topics_;                          ///< subscribed
  std::set<std::string> missing_;                            ///< of them, those that were deleted
  std::map<std::string, SteadyClock::time_point> returned_;  ///< and those that exist again, since when
  SteadyClock::time_point last_rebalance_{};
  bool joined_ = false;        ///< the group has accepted this member, so the topics existed
  bool doubt_topics_ = false;  ///< the broker reported an unknown topic
  SteadyClock::time_point next_look_at_topics_{};
  std::function<bool()> hurry_;
  bool closed_ = false;
};

}  // namespace turnstile::kafka
