#pragma once
// Where messages go that will not be run: dead letter topic, acknowledged, then the `dead` row. The offset comes last,
// so a crash in between repeats a step and loses nothing.

#include <memory>
#include <string>
#include <string_view>

#include "config/topic_plan.hpp"
#include "delivery/owned_partition.hpp"
#include "turnstile/ports/broker.hpp"
#include "turnstile/ports/inbox.hpp"

namespace turnstile {

/// Why, in the words that the `dead` table and the headers use.
struct DeadLetter {
  DeadReason reason{};
  std::string error;
  int attempts = 0;
};

/// The record as it goes to the dead letter topic: payload, key and headers as they were, and headers that say why.
OwnedMessage dead_letter_record(const Message& message, const TopicPlan& plan, const DeadLetter& letter);

class DeadLetters {
 public:
  /// Either may be null: no dead letter topic anywhere, no database.
  DeadLetters(std::shared_ptr<BrokerProducer> producer, std::shared_ptr<InboxStore> store)
      : producer_(std::move(producer)), store_(std::move(store)) {}

  /// True when there is somewhere to put a message of this topic.
  [[nodiscard]] bool possible(const TopicPlan& plan, const OwnedPartition& place) const noexcept {
    return plan.dead_letter.has_value() || keeps_rows(place);
  }
  /// False in mode none, and without a store: then the table `dead` has no row of its dead letters, and only the dead letter topic has it.
  [[nodiscard]] bool keeps_rows(const OwnedPartition& place) const noexcept { return store_ && place.fence; }
  /// Which records of a partition that was just claimed are dead already and must not run when they are read again, from this offset on.
  /// Those that killed their process would kill the next one. Where the offset is the id, it is all of them: such a record could take
  /// effect, and its dead letter would take effect under another offset. Throws as the store does.
  void find(OwnedPartition& place, const TopicPlan& plan, HandlerId handler, Offset first) const;
  enum class Kept : std::uint8_t {
    sent,        ///< to the dead letter topic, and a row is kept where there is a store
    parked,      ///< a row is kept
    went_round,  ///< the same although there is a dead letter topic: it has been a dead letter too often
    before,      ///< its row was there: this record became a dead letter when it ran earlier
  };
  /// Throws BrokerError, Fenced, StoreUnavailable, SqlError: then the message must not be settled.
  Kept keep(const Message& message, const std::optional<MessageId>& id, const OwnedPartition& place,
            const TopicPlan& plan, HandlerId handler, const DeadLetter& letter);

 private:
  std::shared_ptr<BrokerProducer> producer_;
  std::shared_ptr<InboxStore> store_;
};

}  // namespace turnstile
