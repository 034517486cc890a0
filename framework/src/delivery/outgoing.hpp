#pragma once
// The replies and messages that handlers send. In a transaction they are committed with it. Under a lease they are kept
// until the handler's result is recorded. Without the store they are refused.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "delivery/unit.hpp"
#include "turnstile/context.hpp"

namespace turnstile::detail {

/// The reply to a message, with its id. Absent: the message gets no reply.
std::optional<std::pair<OwnedMessage, MessageId>> reply_record(const Unit& unit, const UnitItem& item,
                                                               std::string_view body);
/// Puts the reply into the outbox, in the session's open transaction. False: the message gets no reply.
bool send_reply(const Unit& unit, const UnitItem& item, std::string_view body);
/// Sends the stored response again for each item that is a duplicate, in the session's open transaction. Returns the
/// number of replies that it put into the outbox. `first`: the place of the first item in the transaction.
std::size_t answer_duplicates(const Unit& unit, const Items& items, std::size_t first = 0);

/// For a handler in a transaction.
class TransactionOutgoing final : public Outgoing {
 public:
  /// `items`: the messages of the handler's call. `only`: the message of each reply that names no message. Null: each
  /// reply must name its message.
  TransactionOutgoing(const Unit& unit, std::span<UnitItem* const> items, UnitItem* only)
      : unit_(unit), items_(items), only_(only) {}
  void reply(const Message* to, std::string_view body) override;
  void publish(const OwnedMessage& message) override;
  [[nodiscard]] std::size_t published() const noexcept { return published_; }

 private:
  const Unit& unit_;
  const std::span<UnitItem* const> items_;
  UnitItem* const only_;
  std::size_t published_ = 0;
};

/// For a handler under a lease.
class BufferedOutgoing final : public Outgoing {
 public:
  struct OfItem {
    std::optional<std::string> response;
    std::vector<std::pair<OwnedMessage, MessageId>> messages;
  };

  /// `items`: the messages of the handler's call.
  BufferedOutgoing(const Unit& unit, const Items& items) : unit_(unit), items_(items), of_(items.size()) {}
  void reply(const Message* to, std::string_view body) override;
  void publish(const OwnedMessage& message) override;
  /// Moves out what was sent for the k-th item. Messages that are no replies are with the first item.
  OfItem take(std::size_t k) { return std::move(of_[k]); }

 private:
  const Unit& unit_;
  const Items& items_;
  std::vector<OfItem> of_;
};

/// For a handler that runs while the store is unavailable. Its replies and messages throw StoreUnavailable, so its
/// message waits for the store.
class NoStoreOutgoing final : public Outgoing {
 public:
  void reply(const Message* to, std::string_view body) override;
  void publish(const OwnedMessage& message) override;
};

}  // namespace turnstile::detail
