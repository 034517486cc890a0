// The part of the consumer that runs inside librdkafka's rebalance callback.

#include <fmt/format.h>

#include <cstring>

#include "consumer.hpp"
#include "partition_list.hpp"
#include "turnstile/log.hpp"

namespace turnstile::kafka {
namespace {

bool is_cooperative(rd_kafka_t* handle) {
  const char* protocol = rd_kafka_rebalance_protocol(handle);
  return protocol && std::strcmp(protocol, "COOPERATIVE") == 0;
}

}  // namespace

void KafkaConsumer::on_rebalance(rd_kafka_resp_err_t code, rd_kafka_topic_partition_list_t* list) noexcept {
  try {
    if (code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) return assign(list);
    if (code == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS) return revoke(list);
    log_error(client_->logger(), Code::rebalance_failed,
              explain(code, "", client_->where()) + " The rebalance failed; waiting for the next.");
    revoke(list);
  } catch (...) {
    fail(std::current_exception());
    // librdkafka waits forever for the answer of this callback, so it must give one: no partitions.
    assigned_.clear();
    rd_kafka_assign(client_->handle(), nullptr);
  }
}

void KafkaConsumer::assign(rd_kafka_topic_partition_list_t* list) {
  joined_ = true;
  last_rebalance_ = SteadyClock::now();
  const auto partitions = partitions_of(list);
  const auto starts = listener_->on_assigned(partitions);
  for (auto& element : elements(list)) {
    const TopicPartition at{element.topic, element.partition};
    for (const auto& start : starts)
      if (start.at == at) element.offset = start.offset;
    separate_queue(at);
  }
  tell_librdkafka(list, true);
}

// It must run before the partition is fetched, so that no record gets into the main queue.
void KafkaConsumer::separate_queue(const TopicPartition& at) {
  Queue queue{rd_kafka_queue_get_partition(client_->handle(), at.topic.c_str(), at.partition)};
  if (!queue)
    throw BrokerError(
        Code::librdkafka_message,
        fmt::format("kafka: {}[{}]: librdkafka returned no queue for the partition", at.topic, at.partition));
  rd_kafka_queue_forward(queue.get(), nullptr);
  arrivals_->event().listen_to(queue.get());
  assigned_[at] = Assigned{std::move(queue), std::nullopt};
}

void KafkaConsumer::revoke(rd_kafka_topic_partition_list_t* list) {
  const auto partitions = partitions_of(list);
  last_rebalance_ = SteadyClock::now();
  const bool lost = rd_kafka_assignment_lost(client_->handle()) != 0;
  std::exception_ptr failure;
  try {
    listener_->on_revoked(partitions, lost);
  } catch (...) {
    failure = std::current_exception();
  }
  for (const auto& at : partitions) {
    const auto found = assigned_.find(at);
    if (found == assigned_.end()) continue;
    WakeUpEvent::stop_listening_to(found->second.queue.get());
    assigned_.erase(found);
  }
  tell_librdkafka(list, false);
  if (failure) std::rethrow_exception(failure);
}

void KafkaConsumer::tell_librdkafka(rd_kafka_topic_partition_list_t* list, bool add) {
  auto* handle = client_->handle();
  if (is_cooperative(handle)) {
    const KafkaError error{add ? rd_kafka_incremental_assign(handle, list)
                               : rd_kafka_incremental_unassign(handle, list)};
    if (error)
      throw broker_error(rd_kafka_error_code(error.get()), rd_kafka_error_string(error.get()), client_->where());
  } else if (const auto code = rd_kafka_assign(handle, add ? list : nullptr)) {
    throw broker_error(code, add ? "assigning" : "unassigning", client_->where());
  }
}

}  // namespace turnstile::kafka
