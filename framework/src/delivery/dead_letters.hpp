#pragma once
// Where messages go that will not run. First the dead letter topic acknowledges the record, then the row in `dead` is
// written. The offset is committed last, so a crash in between repeats a step and loses nothing.

#include <memory>
#include <string>
#include <string_view>

#include "config/topic_plan.hpp"
#include "delivery/owned_partition.hpp"
#include "turnstile/ports/broker.hpp"
#include "turnstile/ports/dead_letters.hpp"

namespace turnstile {

/// Why a message will not run, as the table `dead` and the headers record it.
struct DeadLetter {
  DeadReason reason{};
  std::string error;
  int attempts = 0;
};

/// The record for the dead letter topic: unchanged payload, key and headers, with headers that tell why.
OwnedMessage dead_letter_record(const Message& message, const TopicPlan& plan, const DeadLetter& letter);

class DeadLetters {
 public:
  /// Either may be null: without any dead letter topic, or without a database.
  DeadLetters(std::shared_ptr<BrokerProducer> producer, std::shared_ptr<DeadLetterStore> store)
      : producer_(std::move(producer)), store_(std::move(store)) {}

  /// True if a dead letter of this topic can be stored.
  [[nodiscard]] bool possible(const TopicPlan& plan, const OwnedPartition& place) const noexcept {
    return plan.dead_letter.has_value() || keeps_rows(place);
  }
  /// False in mode at_least_once, and without a store. Then the dead letter is only in the dead letter topic, and the table
  /// `dead` has no row of it.
  [[nodiscard]] bool keeps_rows(const OwnedPartition& place) const noexcept { return store_ && place.fence; }
  /// Finds records of a newly claimed partition, from this offset on, that are dead letters already and must not run
  /// when they are read again. These are the records that killed their process, because they would kill the next one.
  /// If the offset is the id, these are all dead letters. Such a record could take effect, and so could its dead
  /// letter, under another offset. Throws what the store throws.
  void find(OwnedPartition& place, const TopicPlan& plan, HandlerId handler, Offset first) const;
  enum class Kept : std::uint8_t {
    sent,    ///< sent to the dead letter topic; a row is stored if there is a store
    parked,  ///< only a row is stored
    /// Only a row is stored, although there is a dead letter topic: the message was a dead letter too often.
    went_round,
    before,  ///< it had a row: this record was dead-lettered in an earlier run
  };
  /// Throws BrokerError, Fenced, StoreUnavailable, SqlError. After an exception the message must not be settled.
  Kept keep(const Message& message, const std::optional<MessageId>& id, const OwnedPartition& place,
            const TopicPlan& plan, HandlerId handler, const DeadLetter& letter);

 private:
  std::shared_ptr<BrokerProducer> producer_;
  std::shared_ptr<DeadLetterStore> store_;
};

}  // namespace turnstile
