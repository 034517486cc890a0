#pragma once
// Context: the functions that a handler may call while it runs. Each run of a handler has its own Context. Use it only
// on the handler's thread.

#include <optional>
#include <span>
#include <stop_token>
#include <string_view>

#include "turnstile/message.hpp"
#include "turnstile/trace.hpp"
#include "turnstile/transaction.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

/// Takes what a handler replies and publishes. It stores them in the transaction of the effect, and they are sent after
/// the commit. The runtime implements it.
class Outgoing {
 public:
  virtual ~Outgoing() = default;
  /// Stores the response of a message, and sends it. If `to` is null, the handler has only one message.
  virtual void reply(const Message* to, std::string_view body) = 0;
  /// Publishes a message in the transaction of the effect.
  virtual void publish(const OwnedMessage& message) = 0;
};

/// The functions that a handler may call while it runs.
class Context {
 public:
  /// The fields that the runtime fills in.
  struct Fields {
    Transaction* tx = nullptr;              ///< null in mode at_least_once
    Outgoing* outgoing = nullptr;           ///< null in mode at_least_once
    std::stop_token stop{};                 ///< see stop_token()
    int attempt = 1;                        ///< see attempt()
    std::optional<Fence> fence{};           ///< see fence()
    std::optional<MessageId> message_id{};  ///< see idempotency_key()
    std::span<const MessageId> ids{};       ///< see ids()
    std::string_view handler{};             ///< see handler()
    Mode mode = Mode::at_least_once;        ///< the topic's mode
    std::int64_t claim_fence = 0;           ///< see claim_fence()
    const Message* message = nullptr;       ///< see trace(); null in a span handler
    const TraceContext* trace = nullptr;    ///< see trace(); null if no tracer records the message's trace
  };
  /// The runtime and tests construct it.
  explicit Context(Fields fields) : fields_(std::move(fields)) {}

  /// The transaction that also holds the inbox row. Throws std::logic_error if the topic's mode runs handlers outside
  /// of a transaction.
  [[nodiscard]] Transaction& tx() const;
  /// Short for tx().defer(…).
  template <class... P>
  void defer(std::string_view sql, const P&... params) const {
    tx().defer(sql, params...);
  }
  /// Replies to the message. The bytes are stored with the message's id, and a duplicate gets them too (`duplicates =
  /// "replay"`).
  /// If the message requests a reply (docs/guide/replies-and-outbox.md), the bytes are sent after the commit. Call it
  /// at most once for each message.
  /// Throws ResponseTooLarge above the topic's max_response. Throws std::logic_error for a second reply, in mode
  /// at_least_once, and in a span handler.
  void reply(std::string_view body) const;
  /// Replies to one message of a span handler.
  void reply(const Message& to, std::string_view body) const;
  /// Publishes a message with the effect: both happen or neither does, even if the process dies. A relay sends the
  /// message after the commit, at least once. Messages with the same key keep their order.
  /// The message's id is sent in the header message-id. If the message has this header already, its value is the id and
  /// is sent unchanged. Otherwise the message gets a new id. A consumer that deduplicates by this header treats two
  /// messages with the same id as one message.
  /// With `not_before` the message is scheduled: it is stored with the effect, and sent at that time or later, by
  /// the clocks of this process and of PostgreSQL. Messages of one key are sent in the order of their times. `turnstile outbox scheduled` lists
  /// them, and `turnstile outbox cancel` removes one.
  /// The fields `partition`, `offset` and `timestamp` are ignored.
  /// Throws std::logic_error in mode at_least_once, for a topic name that Kafka does not allow, for a header message-id
  /// that is empty or appears twice, and for a time after the year 9999.
  void publish(const OwnedMessage& message) const;
  /// Set when the handler should stop. The reasons: the partition was revoked, the handler's timeout has passed, or the
  /// process is shutting down and its drain time is over. A long handler should check it.
  [[nodiscard]] const std::stop_token& stop_token() const noexcept { return fields_.stop; }
  /// The number of this attempt, from 1. It counts the failures of the message itself: those in this process, those
  /// that are stored with a durable retry, and the processes that died while they ran only this message. It does not
  /// count runs that were rolled back because another message of the batch failed.
  [[nodiscard]] int attempt() const noexcept { return fields_.attempt; }
  /// The ownership under which this handler runs. Pass it to outside systems so that they can reject an older owner.
  /// Absent if there is no database. An epoch can repeat after the database has lost its last transactions, for example
  /// in a failover.
  [[nodiscard]] std::optional<Fence> fence() const noexcept { return fields_.fence; }
  /// Mode leased: how often the message was claimed, from 1. It only grows, unless the database loses its last
  /// transactions. Pass it to outside systems with idempotency_key(), so that they can reject a late call. 0 in other
  /// modes and in a span handler.
  [[nodiscard]] std::int64_t claim_fence() const noexcept { return fields_.claim_fence; }
  /// A key for outside systems that deduplicate. It is the same for every run of the message.
  /// In mode leased the key is derived from the handler's name and the message's id, so two handlers of the same
  /// message have different keys. In the other modes it is the id by which the inbox identifies the message.
  /// Absent in mode at_least_once, and in a span handler (use the ids of the single messages).
  [[nodiscard]] std::optional<MessageId> idempotency_key() const noexcept { return fields_.message_id; }
  /// The ids by which the inbox knows the messages of this run, in their order; see Message::id(). In a span handler
  /// they can be an argument at once: `ctx.tx().exec("INSERT … SELECT * FROM unnest($1, $2)", ctx.ids(), amounts)`.
  /// Empty in a mode without ids. Valid while the handler runs.
  [[nodiscard]] std::span<const MessageId> ids() const noexcept { return fields_.ids; }
  /// The trace context to pass on in calls to other services: that of the message, as its sender has set it. If a tracer
  /// records the trace, it is the span of this handler. Replies and published messages get it by themselves, unless they
  /// have a header traceparent of their own. Absent if the message has none, and in a span handler: there
  /// trace_of(message) reads it.
  [[nodiscard]] std::optional<TraceContext> trace() const;
  /// The name of the handler: the scope of its ids.
  [[nodiscard]] std::string_view handler() const noexcept { return fields_.handler; }

 private:
  Fields fields_;
};

}  // namespace turnstile
