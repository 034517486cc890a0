#pragma once
// The token log in Kafka, or a part of it. A plain consumer of one partition reads it, without a group. An idempotent producer without
// linger writes it. It is replaced after any error, so that a late retry of an old producer finds its epoch over.

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "client.hpp"
#include "turnstile/ports/token_log.hpp"
#include "wake_up_event.hpp"

namespace turnstile::kafka {

/// A reader seldom or never writes, and waits for the log's end.
enum class LogUse { member, reader };

class KafkaTokenLog final : public ports::TokenLog, private ClientEvents {
 public:
  /// `part`: the partition of the topic, and of the topic for snapshots.
  KafkaTokenLog(const Settings& settings, std::string topic, std::uint32_t part, LogUse use,
                std::shared_ptr<spdlog::logger> logger);
  ~KafkaTokenLog() override;

  std::optional<Snapshot> snapshot(std::int64_t before = kNewest) override;
  std::uint32_t snapshot_parts() override;
  std::optional<Snapshot> snapshot_of(std::uint32_t part) override;
  std::int64_t begin() override;
  std::int64_t end() override;
  [[nodiscard]] std::optional<std::int64_t> known_end() const override;
  void seek(std::int64_t position) override;
  std::vector<Record> read(std::chrono::milliseconds timeout) override;
  void append(std::string bytes) override;
  bool failed() override;
  [[nodiscard]] std::string why_failed() const override { return why_failed_; }
  void save(std::int64_t position, std::string snapshot) override;
  [[nodiscard]] std::int64_t saved() const override { return saved_; }
  void trim(std::int64_t below) override;
  void wake() noexcept override { wake_up_->wake(); }
  void flush(std::chrono::milliseconds timeout) override;
  [[nodiscard]] std::string name() const override;

 private:
  void on_delivered(const rd_kafka_message_t& record) noexcept override;
  void start(std::int64_t position);
  void stop();
  void take(const rd_kafka_message_t& record, std::vector<Record>& into);
  [[nodiscard]] std::optional<Snapshot> newest_snapshot(std::int32_t partition, std::int64_t before) const;
  [[nodiscard]] std::optional<Snapshot> last_snapshot(const TopicPartition& at, std::int64_t from,
                                                      std::int64_t before) const;
  void look_at_error(const rd_kafka_message_t& record);
  void look_where_it_begins();
  void unreadable(const rd_kafka_message_t& record);
  void tell_unreadable(const rd_kafka_message_t& record) const;
  [[nodiscard]] std::string what_to_do(std::string_view of_a_member) const;
  void look_whether_it_is_gone();
  [[nodiscard]] TokenLogBroken gone() const;
  [[nodiscard]] TokenLogTrimmed trimmed(std::int64_t low) const;
  [[nodiscard]] std::int64_t ask_for(std::int64_t edge, const TopicPartition& at,
                                     std::chrono::milliseconds patience) const;
  void not_written(rd_kafka_resp_err_t code);
  void not_saved(std::int64_t position, rd_kafka_resp_err_t code) noexcept;
  void produce(const std::string& topic, const std::string& key, std::string_view bytes, std::int64_t snapshot_of);
  void fill(std::int64_t up_to, std::vector<Record>& into);
  void open_producer();
  void end_elsewhere(std::shared_ptr<Client> client);

  Settings settings_;
  const std::string topic_;
  const std::int32_t partition_;
  const LogUse use_;
  std::shared_ptr<spdlog::logger> logger_;
  const std::shared_ptr<WakeUpEvent> wake_up_;
  std::shared_ptr<Client> consumer_;
  std::shared_ptr<Client> producer_;       ///< null until a reader writes
  std::vector<std::future<void>> ending_;  ///< of earlier producers; the destructor waits for them
  Topic reading_;
  Queue queue_;
  std::int64_t next_ = -1;  ///< position of the next record
  std::vector<rd_kafka_message_t*> scratch_;
  /// Reads again from next_: records before the next arriving record may be missing.
  bool reads_again_ = false;
  std::chrono::steady_clock::time_point read_again_at_{};  ///< when to read again
  /// Since when a record is unreadable. The epoch of the clock: all records were readable.
  std::chrono::steady_clock::time_point unreadable_since_{};
  bool found_damaged_ = false;  ///< the unreadable record: its bytes are damaged
  bool failed_ = false;
  bool out_of_range_ = false;  ///< next_ does not exist
  bool may_be_gone_ = false;   ///< a writer got such an error
  /// When the brokers first reported the topic missing. The epoch of the clock: they did not.
  std::chrono::steady_clock::time_point gone_since_{};
  std::chrono::steady_clock::time_point ask_again_{};
  rd_kafka_resp_err_t told_not_saved_ = RD_KAFKA_RESP_ERR_NO_ERROR;
  std::string why_failed_;
  std::int64_t saved_ = -1;
};

}  // namespace turnstile::kafka
