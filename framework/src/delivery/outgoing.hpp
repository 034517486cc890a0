#pragma once
// What handlers send: replies and messages. In a transaction they go out with it; under a lease they are kept until the
// handler's end is recorded; without the store they have no place.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "delivery/unit.hpp"
#include "turnstile/context.hpp"

namespace turnstile {

/// The reply to a message, with its id; nothing where the message asks for none.
std::optional<std::pair<OwnedMessage, MessageId>> reply_record(const Unit& unit, const UnitItem& item,
                                                               std::string_view body);
/// Puts the reply into the outbox, in the session's open transaction. False: the message asks for none.
bool send_reply(const Unit& unit, const UnitItem& item, std::string_view body);
/// Answers those of the items that are duplicates as the first ones were answered, in the session's open transaction. How many replies it has put into the outbox.
std::size_t answer_duplicates(const Unit& unit, const Items& items);

/// For a handler in a transaction.
class TransactionOutgoing final : public Outgoing {
 public:
  /// `items`: what the handler is called with. `only`: whom a reply is to that names no message; null: it must name one.
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

  /// `items`: what the handler is called with.
  BufferedOutgoing(const Unit& unit, const Items& items) : unit_(unit), items_(items), of_(items.size()) {}
  void reply(const Message* to, std::string_view body) override;
  void publish(const OwnedMessage& message) override;
  /// Of the k-th item.
  OfItem take(std::size_t k) { return std::move(of_[k]); }

 private:
  const Unit& unit_;
  const Items& items_;
  std::vector<OfItem> of_;
};

/// For a handler that runs while the store is unavailable: it waits for the store after all.
class NoStoreOutgoing final : public Outgoing {
 public:
  void reply(const Message* to, std::string_view body) override;
  void publish(const OwnedMessage& message) override;
};

}  // namespace turnstile
