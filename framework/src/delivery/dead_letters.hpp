#pragma once
// Stores messages that will not run. First the dead letter topic acknowledges the record, then the row in table `dead`
// is written. The offset is committed last, so a crash in between repeats a step and loses nothing.

#include <memory>
#include <string>
#include <string_view>

#include "config/topic_plan.hpp"
#include "delivery/owned_partition.hpp"
#include "turnstile/ports/broker.hpp"
#include "turnstile/ports/dead_letters.hpp"

namespace turnstile::detail {

/// Why a message will not run, as the table `dead` and the headers record it.
struct DeadLetter {
  DeadReason reason{};
  std::string error;
  int attempts = 0;
};

/// The record for the dead letter topic. Key and payload are unchanged. Headers with the prefix `turnstile-` give the
/// reason, and replace earlier headers with this prefix. Other headers stay.
OwnedMessage dead_letter_record(const Message& message, const TopicPlan& plan, const DeadLetter& letter);

class DeadLetters {
 public:
  /// `producer`: null if no topic has a dead letter topic. `store`: null without a database.
  DeadLetters(std::shared_ptr<ports::BrokerProducer> producer, std::shared_ptr<ports::DeadLetterStore> store)
      : producer_(std::move(producer)), store_(std::move(store)) {}

  /// True if a dead letter of this topic can be stored.
  [[nodiscard]] bool possible(const TopicPlan& plan, const OwnedPartition& place) const noexcept {
    return plan.dead_letter.has_value() || keeps_rows(place);
  }
  /// Whether a dead letter gets a row in the table `dead`. False in mode at_least_once, and without a store: the dead
  /// letter is then only in the dead letter topic.
  [[nodiscard]] bool keeps_rows(const OwnedPartition& place) const noexcept { return store_ && place.fence; }
  /// Finds the records of a newly claimed partition, from offset `first` on, that are dead letters already and must not
  /// run again. They are the records that killed their process, because they would kill the next process too. If the
  /// offset is the id, they are all dead letters: a replayed dead letter has a new offset, so the old record could take
  /// effect as well. Throws what the store throws.
  void find(OwnedPartition& place, const TopicPlan& plan, HandlerId handler, Offset first) const;
  /// Whether this record was dead-lettered in an earlier run. Throws what the store throws.
  [[nodiscard]] bool is_kept(const Message& message, const OwnedPartition& place, HandlerId handler) const;
  enum class Kept : std::uint8_t {
    sent,    ///< sent to the dead letter topic; a row is stored if there is a store
    parked,  ///< only a row is stored
    /// Only a row is stored, although there is a dead letter topic: the message has been a dead letter too often.
    went_round,
    before,  ///< by an earlier run: see is_kept()
  };
  /// `back`: the record came back for this stored retry, which ends. Throws BrokerError, Fenced, StoreUnavailable,
  /// StoreBusy and SqlError. After an exception the message must not be settled.
  Kept keep(const Message& message, const std::optional<MessageId>& id, const OwnedPartition& place,
            const TopicPlan& plan, HandlerId handler, const DeadLetter& letter,
            const std::optional<ports::RetryRef>& back = {});

 private:
  std::shared_ptr<ports::BrokerProducer> producer_;
  std::shared_ptr<ports::DeadLetterStore> store_;
};

}  // namespace turnstile::detail
