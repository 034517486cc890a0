#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "client.hpp"
#include "turnstile/ports/broker.hpp"

namespace turnstile::kafka {

/// A producer whose records have no time limit: while it waits for a broker, it must not give up a record and send the
/// next.
class KafkaSender final : public ports::BrokerSender, private ClientEvents {
 public:
  KafkaSender(Settings settings, std::shared_ptr<spdlog::logger> logger);
  ~KafkaSender() override;
  std::vector<Fate> send(std::span<const OwnedMessage> records) override;
  void cancel() noexcept override;

 private:
  void on_delivered(const rd_kafka_message_t& record) noexcept override;
  void reopen();
  Fate fate_of(rd_kafka_resp_err_t code, const std::string& topic) const;

  const Settings settings_;
  const std::shared_ptr<spdlog::logger> logger_;
  std::mutex mutex_;  ///< protects client_, which cancel() reads
  std::shared_ptr<Client> client_;
  std::atomic<bool> cancelled_{false};
  // Of the current send():
  std::span<const OwnedMessage> records_;
  std::vector<Fate> fates_;
  std::size_t owed_ = 0;  ///< delivery reports that have not arrived yet
};

}  // namespace turnstile::kafka
