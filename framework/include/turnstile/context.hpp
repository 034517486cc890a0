#pragma once
// What a handler may ask while it runs. One Context per run of a handler; used on that thread only.

#include <optional>
#include <stop_token>
#include <string_view>

#include "turnstile/message.hpp"
#include "turnstile/transaction.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

/// Where a handler's words to the outside go: into the transaction of its effect, and out once that has committed. Implemented by
/// the runtime.
class Outgoing {
 public:
  virtual ~Outgoing() = default;
  /// Keeps the response of a message, and sends it. `to` null: the one message of the handler.
  virtual void reply(const Message* to, std::string_view body) = 0;
  /// Publishes a message with the effect.
  virtual void publish(const OwnedMessage& message) = 0;
};

/// What a handler may ask and do while it runs.
class Context {
 public:
  /// What the runtime fills in.
  struct Fields {
    Transaction* tx = nullptr;              ///< null where the mode is none
    Outgoing* outgoing = nullptr;           ///< null where the mode is none
    std::stop_token stop{};                 ///< see stop_token()
    int attempt = 1;                        ///< see attempt()
    std::optional<Fence> fence{};           ///< see fence()
    std::optional<MessageId> message_id{};  ///< see idempotency_key()
    std::string_view handler{};             ///< see handler()
    Mode mode = Mode::at_least_once;        ///< of the topic
    std::int64_t claim_fence = 0;           ///< see claim_fence()
  };
  /// By the runtime, and by tests.
  explicit Context(const Fields& fields) : fields_(fields) {}

  /// The transaction that also holds the inbox row. Throws std::logic_error where the topic's mode is another one.
  [[nodiscard]] Transaction& tx() const;
  /// Short for tx().defer(…).
  template <class... P>
  void defer(std::string_view sql, const P&... params) const {
    tx().defer(sql, params...);
  }
  /// Answers the message: the bytes are kept with its id, and are what a duplicate gets (duplicates = "replay"). When the message
  /// asks for a reply (docs/guide/replies-and-outbox.md), they are sent to it after the commit. Once for each message. Throws ResponseTooLarge
  /// above the topic's max_response, std::logic_error for a second reply, where the mode is none, and in a span handler.
  void reply(std::string_view body) const;
  /// The same for one of the messages of a span handler.
  void reply(const Message& to, std::string_view body) const;
  /// Publishes a message with the effect: both are there or none, also when the process dies. A relay sends it after the commit,
  /// at least once, with its id in the header message-id; messages of one key in their order. A header message-id that the message
  /// has already is its id, and is sent as it is: whoever deduplicates by it takes two messages with one id for one. Without that
  /// header the message gets a new id. `partition`, `offset` and `timestamp` are not looked at. Throws std::logic_error where the
  /// mode is none, for a topic that cannot exist, and for a header message-id that is empty or appears twice.
  void publish(const OwnedMessage& message) const;
  /// Set when the work has lost its reason: the partition was taken away, the handler's timeout has passed, or the
  /// process is stopping and its drain time is over. A long handler should look at it.
  [[nodiscard]] const std::stop_token& stop_token() const noexcept { return fields_.stop; }
  /// 1 and how often the message has failed by itself in this process, and how many processes have died while they ran only this
  /// message. Runs in a batch that was rolled back because of another message are not counted.
  [[nodiscard]] int attempt() const noexcept { return fields_.attempt; }
  /// The ownership under which this runs: hand it to outside systems so that they can refuse an older one. Absent where
  /// there is no database. Its epoch may come again after the database has lost its last transactions, as in a failover.
  [[nodiscard]] std::optional<Fence> fence() const noexcept { return fields_.fence; }
  /// Mode leased: how often the message was claimed, from 1; it only grows, unless the database loses its last transactions. Hand it to
  /// outside systems with the key below, so that they refuse one that comes late. 0 elsewhere, and for a span handler.
  [[nodiscard]] std::int64_t claim_fence() const noexcept { return fields_.claim_fence; }
  /// A key for outside systems that deduplicate themselves, the same for every run of the message. Mode leased: made of the handler's
  /// name and the message's id, so that two handlers of one message have two. Elsewhere the id under which the inbox knows the message.
  /// Absent in mode none, and for a span handler (ask each message).
  [[nodiscard]] std::optional<MessageId> idempotency_key() const noexcept { return fields_.message_id; }
  /// The name of the handler: the scope of its ids.
  [[nodiscard]] std::string_view handler() const noexcept { return fields_.handler; }

 private:
  Fields fields_;
};

}  // namespace turnstile
