// The part of the consumer that runs inside librdkafka's rebalance callback.

#include <fmt/format.h>

#include <cstring>

#include "consumer.hpp"
#include "edges.hpp"
#include "partition_list.hpp"
#include "turnstile/log.hpp"

namespace turnstile::kafka {
namespace {

/// How long a rebalance waits for offsets at which partitions begin.
constexpr std::chrono::milliseconds kStartWait{2'000};

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
    separate_queue(at);
    for (const auto& start : starts) {
      if (start.at != at) continue;
      element.offset = start.offset;
      assigned_[at].next = start.offset;
    }
  }
  find_starts(list);
  tell_librdkafka(list, true);
}

/// librdkafka does not tell at which offset it begins to read. For a partition that the group has no offset of, it must
/// be known, although there may be no record: with auto.offset.reset = latest, a consumer that starts again would skip
/// what came meanwhile.
void KafkaConsumer::find_starts(rd_kafka_topic_partition_list_t* list) {
  std::vector<TopicPartition> unknown, unread;
  for (const auto& at : partitions_of(list)) {
    if (!assigned_[at].next) unknown.push_back(at);
  }
  if (unknown.empty()) return;
  std::vector<std::optional<ports::GroupOffset>> committed;
  try {
    committed = this->committed(unknown, kStartWait);
  } catch (const BrokerError&) {
    return;  // librdkafka asks again, until it is answered
  }
  for (std::size_t i = 0; i < unknown.size(); ++i) {
    if (committed[i]) assigned_[unknown[i]].next = committed[i]->offset;
    else unread.push_back(unknown[i]);
  }
  if (unread.empty() || !reset_to_) return;
  const auto edges = ask_for_edges(*client_, unread, *reset_to_, kStartWait);
  for (std::size_t i = 0; i < unread.size(); ++i) {
    auto* const element = rd_kafka_topic_partition_list_find(list, unread[i].topic.c_str(), unread[i].partition);
    if (edges[i].code || edges[i].offset < 0 || element == nullptr) continue;
    element->offset = edges[i].offset;
    assigned_[unread[i]].next = assigned_[unread[i]].read_up_to = edges[i].offset;
  }
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
