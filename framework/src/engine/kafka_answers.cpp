#include "engine/kafka_answers.hpp"

namespace turnstile::detail {

KafkaAnswers::KafkaAnswers(ports::BrokerConsumer& consumer, std::vector<TopicPartition> partitions,
                           std::chrono::milliseconds wait)
    : consumer_(consumer), partitions_(std::move(partitions)), wait_(wait) {
  for (std::size_t i = 0; i < partitions_.size(); ++i) places_[partitions_[i]] = i;
}

const std::optional<ports::GroupOffset>& KafkaAnswers::committed(const TopicPartition& of) {
  if (committed_.empty() && !refusal_) {
    try {
      committed_ = consumer_.committed(partitions_, wait_);
    } catch (const BrokerError&) {
      refusal_ = std::current_exception();
    }
  }
  if (refusal_) std::rethrow_exception(refusal_);
  return committed_.at(place(of));
}

const std::optional<std::pair<Offset, Offset>>& KafkaAnswers::bounds(const TopicPartition& of) {
  if (bounds_.empty()) bounds_ = consumer_.bounds(partitions_, wait_);
  return bounds_.at(place(of));
}

const std::optional<Offset>& KafkaAnswers::log_end(const TopicPartition& of) {
  if (log_ends_.empty()) log_ends_ = consumer_.log_ends(partitions_, wait_);
  return log_ends_.at(place(of));
}

std::size_t KafkaAnswers::place(const TopicPartition& of) const { return places_.at(of); }

}  // namespace turnstile::detail
