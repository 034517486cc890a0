#pragma once
// What a producer wraps its sender with, so that its consumers can tell what comes twice.
//
//   auto broker = turnstile::kafka::open_broker(settings, logger);
//   turnstile::StampingSender sender{broker->open_sender()};            // an id in each message: for transactional() and leased()
//
//   auto store = turnstile::postgres::open_store({.url = url});
//   turnstile::NumberedSender sender{*broker, store->producers(), {.name = "shop"}};   // numbers: for numbered()
//
//   for (const auto& fate : sender.send(messages)) …

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "turnstile/ports/broker.hpp"
#include "turnstile/ports/producers.hpp"

namespace spdlog {
class logger;
}

namespace turnstile {

/// Numbers a message of a session by hand: for who keeps sessions and numbers himself. `acked`: see Request.
void stamp_request(OwnedMessage& message, const ProducerSession& session, std::int64_t number, std::int64_t acked = 0);
/// Whether a message bears the number of a request.
bool is_numbered(const OwnedMessage& message);

/// Gives each message that has none an id (new_message_id()) in a header. Whoever sends again what may have been sent before stamps it
/// first, and sends the stamped one each time.
class StampingSender final : public BrokerSender {
 public:
  /// Sends through `inner`, which must not be null; `header` is the name of the id's header.
  explicit StampingSender(std::unique_ptr<BrokerSender> inner, std::string header = "message-id")
      : inner_(std::move(inner)), header_(std::move(header)) {}

  /// Gives the message an id, unless it has one.
  void stamp(OwnedMessage& message) const;
  std::vector<Fate> send(std::span<const OwnedMessage> messages) override;
  void cancel() noexcept override { inner_->cancel(); }

 private:
  std::unique_ptr<BrokerSender> inner_;
  const std::string header_;
};

/// Does a producer's part of mode sequence with numbered requests: opens a session, numbers and signs what it sends, says up to where
/// nothing will be sent again, and keeps the session alive. When the session has expired all the same, it goes on with a new one.
///
/// Numbers count by topic. A message without a key is given a partition, so that it comes to the same one when it is sent again.
/// Thread-safe, but for send(): one caller at a time.
class NumberedSender final : public BrokerSender {
 public:
  /// When a number is reported as done with.
  enum class Acknowledge : std::uint8_t {
    delivered,  ///< what the broker has taken is not sent again, and nobody asks for its response
    by_hand,    ///< the program says so, when it has the response: acknowledge()
  };
  /// What a NumberedSender may be told.
  struct Options {
    std::string name;                                  ///< for people: in the table `producer`
    std::chrono::milliseconds expiry{300'000};         ///< see ProducerTerms
    Acknowledge acknowledge = Acknowledge::delivered;  ///< when a number is reported as done with
    std::shared_ptr<spdlog::logger> logger{};          ///< null: to stderr
  };
  /// A message with its number: send it as often as it takes.
  struct Stamped {
    OwnedMessage message;     ///< the message, with the headers of the stamp
    MessageId session;        ///< that it was numbered in
    std::int64_t number = 0;  ///< of its topic, in this session
  };

  /// `broker` must outlive it. Throws StoreUnavailable when no session can be opened, and what `broker` throws.
  NumberedSender(Broker& broker, std::shared_ptr<Producers> producers, Options options);
  ~NumberedSender() override;
  NumberedSender(const NumberedSender&) = delete;
  NumberedSender& operator=(const NumberedSender&) = delete;

  /// Numbers a message, for who may want to send it again: the stamped one takes effect once, however often it is sent. Throws
  /// BrokerError for a topic that does not exist.
  Stamped stamp(OwnedMessage message);
  /// Numbers what was not stamped. What is stamped and of unknown fate can be sent again. What was refused cannot, as later messages say
  /// that its number is done with: it is refused again; send the message without its stamp.
  std::vector<Fate> send(std::span<const OwnedMessage> messages) override;
  /// by_hand: this one will not be sent again. What was numbered in an earlier session is passed over.
  void acknowledge(const std::string& topic, const MessageId& session, std::int64_t number);
  /// The same for a stamped message.
  void acknowledge(const Stamped& one) { acknowledge(one.message.topic, one.session, one.number); }
  void cancel() noexcept override { sender_->cancel(); }
  /// The session in which it numbers now.
  [[nodiscard]] MessageId session() const;

 private:
  /// What was sent to one topic.
  struct Sent {
    std::int64_t last = 0;
    std::int64_t acked = 0;                          ///< it and all before it
    std::map<std::int64_t, std::int64_t> closed{};   ///< beyond that: from which up to which
    std::map<std::int64_t, std::int64_t> refused{};  ///< the same, of all numbers that arrived nowhere
  };
  void open_session();
  std::int32_t partitions_of(const std::string& topic);
  void close(const std::string& topic, std::int64_t number);
  [[nodiscard]] bool was_refused(const Stamped& one) const;
  void heartbeats();
  void heartbeat();

  Broker& broker_;
  const std::shared_ptr<Producers> producers_;
  const Options options_;
  const std::shared_ptr<spdlog::logger> logger_;
  const std::unique_ptr<BrokerSender> sender_;
  mutable std::mutex mutex_;
  ProducerSession session_;
  std::map<std::string, Sent> topics_;
  std::map<std::string, std::int32_t> partitions_;
  bool failing_ = false;  ///< the last heartbeat found no store
  bool stopping_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace turnstile
