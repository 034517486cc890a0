#pragma once
// Senders for producers. They add ids or numbers to messages, so that consumers can detect duplicates.
//
//   auto broker = turnstile::kafka::open_broker(settings, logger);
//   turnstile::StampingSender sender{broker->open_sender()};  // an id in each message: transactional(), leased()
//
//   auto store = turnstile::postgres::open_store({.url = url});
//   // numbers: for numbered()
//   turnstile::NumberedSender sender{*broker, store->producers(), {.name = "shop"}};
//
//   for (const auto& fate : sender.send(messages)) …

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "turnstile/ports/broker.hpp"
#include "turnstile/ports/producers.hpp"

namespace spdlog {
class logger;
}

namespace turnstile::detail {
class PeriodicThread;
}

namespace turnstile {

/// Stamps a message with an explicit session and number. For programs that manage their own sessions. `acked`: see
/// Request.
void stamp_request(OwnedMessage& message, const ports::ProducerSession& session, std::int64_t number,
                   std::int64_t acked = 0);
/// Whether a message has the number of a request.
bool is_numbered(const OwnedMessage& message);

/// Gives each message without an id a new one (new_message_id()) in a header. To be able to retry a send, stamp the
/// message first, and send the stamped message each time.
class StampingSender final : public ports::BrokerSender {
 public:
  /// Sends through `inner`, which must not be null. `header` is the name of the header for the id.
  explicit StampingSender(std::unique_ptr<ports::BrokerSender> inner, std::string header = "message-id")
      : inner_(std::move(inner)), header_(std::move(header)) {}

  /// Gives the message an id if it has none.
  void stamp(OwnedMessage& message) const;
  std::vector<Fate> send(std::span<const OwnedMessage> messages) override;
  void cancel() noexcept override { inner_->cancel(); }

 private:
  std::unique_ptr<ports::BrokerSender> inner_;
  const std::string header_;
};

/// The producer's part of mode numbered. It opens a session, numbers and signs what it sends,
/// reports the highest number that it will never resend, and keeps the session alive. If the session expires, it opens
/// a new one.
///
/// Numbers count separately for each topic. A message without a key is assigned a partition, so that a retry goes to
/// the same partition. Thread-safe, except send(): only one thread may call it at a time.
class NumberedSender final : public ports::BrokerSender {
 public:
  /// When a number is acknowledged: it will not be sent again, and its response is not needed any more.
  enum class Acknowledge : std::uint8_t {
    delivered,  ///< when the broker has the message
    by_hand,    ///< when the program calls acknowledge(), after it has the response
  };
  /// The options of a NumberedSender.
  struct Options {
    std::string name;                                  ///< for people: in the table `producer`
    std::chrono::milliseconds expiry{300'000};         ///< see ProducerTerms
    Acknowledge acknowledge = Acknowledge::delivered;  ///< when a number is acknowledged
    std::shared_ptr<spdlog::logger> logger{};          ///< null: a logger to stderr
  };
  /// A message with its number. You can send it repeatedly.
  struct Stamped {
    OwnedMessage message;     ///< the message, with the headers of the stamp
    MessageId session;        ///< the session of its number
    std::int64_t number = 0;  ///< counted for its topic in this session
  };

  /// `broker` must outlive the sender. Throws StoreUnavailable if no session can be opened, and whatever `broker`
  /// throws.
  NumberedSender(ports::Broker& broker, std::shared_ptr<ports::Producers> producers, Options options);
  ~NumberedSender() override;
  NumberedSender(const NumberedSender&) = delete;
  NumberedSender& operator=(const NumberedSender&) = delete;

  /// Numbers a message, so that you can retry it: the stamped message takes effect once, however often it is sent.
  /// Throws BrokerError for a topic that does not exist.
  Stamped stamp(OwnedMessage message);
  /// Numbers the messages that are not stamped. You can send a stamped message again while its fate is unknown, also
  /// after the broker refused it: it is `unknown`, and not `refused`, if an earlier send may have stored it, or if it is
  /// of another session. acknowledge() gives it up.
  /// A refused message is not stored, with one exception: its partition's leader appended it, did not get it to the other
  /// replicas, and lost its role to one that has it and refuses it by a setting that was changed meanwhile. You cannot send
  /// it again with its stamp: later messages acknowledge its number, so it would be refused again. Send it without its
  /// stamp.
  std::vector<Fate> send(std::span<const OwnedMessage> messages) override;
  /// For Acknowledge::by_hand, and for a message that you give up: declares that this number will not be sent again. A
  /// number of an earlier session is ignored.
  void acknowledge(const std::string& topic, const MessageId& session, std::int64_t number);
  /// Acknowledges a stamped message.
  void acknowledge(const Stamped& one) { acknowledge(one.message.topic, one.session, one.number); }
  void cancel() noexcept override { sender_->cancel(); }
  /// The session of the next numbers.
  [[nodiscard]] MessageId session() const;

 private:
  /// The numbers that were sent to a topic.
  struct Sent {
    std::int64_t last = 0;
    std::int64_t acked = 0;                          ///< this number and all before it
    std::map<std::int64_t, std::int64_t> closed{};   ///< ranges above `acked` that are closed: first and last number
    std::map<std::int64_t, std::int64_t> refused{};  ///< ranges of numbers that no broker took: first and last number
    std::map<std::int64_t, std::int64_t> perhaps_sent{};  ///< ranges of numbers that a broker may have
  };
  void open_session();
  std::int32_t partitions_of(const std::string& topic);
  void close(const std::string& topic, std::int64_t number);
  [[nodiscard]] bool was_refused(const Stamped& one) const;
  [[nodiscard]] bool is_perhaps_sent(const std::string& topic, const Stamped& one) const;
  [[nodiscard]] std::chrono::milliseconds until_heartbeat() const;
  void try_heartbeat();
  void heartbeat();

  ports::Broker& broker_;
  const std::shared_ptr<ports::Producers> producers_;
  const Options options_;
  const std::shared_ptr<spdlog::logger> logger_;
  const std::unique_ptr<ports::BrokerSender> sender_;
  mutable std::mutex mutex_;
  ports::ProducerSession session_;
  std::map<std::string, Sent> topics_;
  std::map<std::string, std::int32_t> partitions_;
  bool failing_ = false;  ///< used only by the thread: the last heartbeat could not reach the store
  const std::unique_ptr<detail::PeriodicThread> thread_;
};

}  // namespace turnstile
