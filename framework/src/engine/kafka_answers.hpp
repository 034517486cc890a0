#pragma once
// What Kafka tells of several partitions.

#include <chrono>
#include <exception>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "turnstile/error.hpp"
#include "turnstile/ports/broker.hpp"

namespace turnstile::detail {

/// Asks Kafka about all its partitions at once, when it is first asked about one of them: each answer can wait behind a
/// fetch (100 ms). Everything that an answer must include, such as the offsets of a previous owner, must be over by
/// then. Not thread-safe.
class KafkaAnswers {
 public:
  /// `consumer` must outlive it. It waits up to `wait` for the group's offsets, and as long for the bounds.
  KafkaAnswers(ports::BrokerConsumer& consumer, std::vector<TopicPartition> partitions, std::chrono::milliseconds wait);

  /// The group's offset; absent if there is none. Throws BrokerError.
  [[nodiscard]] const std::optional<ports::GroupOffset>& committed(const TopicPartition& of);
  /// The first offset, and the offset after the last record that a consumer can read now. Absent if Kafka does not tell.
  [[nodiscard]] const std::optional<std::pair<Offset, Offset>>& bounds(const TopicPartition& of);
  /// The offset after the last record, also of an open transaction: BrokerConsumer::log_ends(). Absent as above.
  [[nodiscard]] const std::optional<Offset>& log_end(const TopicPartition& of);

 private:
  [[nodiscard]] std::size_t place(const TopicPartition& of) const;

  ports::BrokerConsumer& consumer_;
  const std::vector<TopicPartition> partitions_;
  const std::chrono::milliseconds wait_;
  std::map<TopicPartition, std::size_t> places_;
  std::vector<std::optional<ports::GroupOffset>> committed_;      ///< empty before the question
  std::exception_ptr refusal_;                                    ///< why there are no offsets of the group
  std::vector<std::optional<std::pair<Offset, Offset>>> bounds_;  ///< empty before the question
  std::vector<std::optional<Offset>> log_ends_;                   ///< empty before the question
};

}  // namespace turnstile::detail
