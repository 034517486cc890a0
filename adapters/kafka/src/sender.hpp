#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client.hpp"
#include "turnstile/ports/broker.hpp"

namespace turnstile::kafka {

/// A producer that keeps the order of each partition, also if the broker refuses records. Its records have no time limit:
/// while it waits for a broker, it must not give up a record and send the next.
class KafkaSender final : public ports::BrokerSender, private ClientEvents {
 public:
  KafkaSender(Settings settings, std::shared_ptr<spdlog::logger> logger);
  ~KafkaSender() override;
  std::vector<Fate> send(std::span<const OwnedMessage> records) override;
  void cancel() noexcept override;

 private:
  void on_delivered(const rd_kafka_message_t& record) noexcept override;
  void reopen();
  [[nodiscard]] bool is_broken() const;
  [[nodiscard]] std::pair<std::vector<std::size_t>, std::vector<std::size_t>> split_off_first_records() const;
  bool deliver(std::span<const std::size_t> which);
  std::size_t hand_over_some(std::span<const std::size_t> which);
  void wait_for_reports();
  void purge() noexcept;
  Fate fate_of(rd_kafka_resp_err_t code, const std::string& topic) const;

  const Settings settings_;
  const std::shared_ptr<spdlog::logger> logger_;
  std::mutex mutex_;  ///< protects client_, which cancel() reads
  std::shared_ptr<Client> client_;
  std::atomic<bool> cancelled_{false};
  std::size_t batch_bytes_ = 0;         ///< of a batch; see deliver()
  std::set<std::string> known_topics_;  ///< to which this producer has sent
  // Of the current send():
  std::span<const OwnedMessage> records_;
  std::vector<Fate> fates_;
  std::set<std::string> asked_about_;  ///< missing topics whose metadata was requested again
  std::size_t owed_ = 0;               ///< delivery reports that have not arrived yet
  std::vector<std::size_t> refused_;   ///< refused by the broker, of the records that were handed over last
};

}  // namespace turnstile::kafka
