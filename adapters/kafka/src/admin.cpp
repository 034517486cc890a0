#include "turnstile/kafka/admin.hpp"

#include <algorithm>
#include <array>

#include "client.hpp"
#include "topics.hpp"

namespace turnstile::kafka {
namespace {

using std::chrono::milliseconds;

/// How long another program's partitions may be unknown to a broker.
constexpr milliseconds kOthers{3'000};

NewTopicHandle request_of(const NewTopic& topic, const Client& client) {
  std::array<char, 512> why{};
  NewTopicHandle request{
      rd_kafka_NewTopic_new(topic.name.c_str(), topic.partitions, topic.replication, why.data(), why.size())};
  if (!request) throw broker_error(RD_KAFKA_RESP_ERR__INVALID_ARG, why.data(), client.where(topic.name));
  for (const auto& [key, value] : topic.settings)
    rd_kafka_NewTopic_set_config(request.get(), key.c_str(), value.c_str());
  return request;
}

// Error code and text for the one topic of the request.
std::pair<rd_kafka_resp_err_t, std::string> answer_of(rd_kafka_event_t* event) {
  if (!event) return {RD_KAFKA_RESP_ERR__TIMED_OUT, ""};
  if (const auto code = rd_kafka_event_error(event)) return {code, rd_kafka_event_error_string(event)};
  std::size_t count = 0;
  const rd_kafka_topic_result_t** topics = nullptr;
  if (const auto* created = rd_kafka_event_CreateTopics_result(event))
    topics = rd_kafka_CreateTopics_result_topics(created, &count);
  else if (const auto* deleted = rd_kafka_event_DeleteTopics_result(event))
    topics = rd_kafka_DeleteTopics_result_topics(deleted, &count);
  else if (const auto* extended = rd_kafka_event_CreatePartitions_result(event))
    topics = rd_kafka_CreatePartitions_result_topics(extended, &count);
  if (count == 0) return {RD_KAFKA_RESP_ERR__FAIL, "the broker's response is empty"};
  const char* text = rd_kafka_topic_result_error_string(topics[0]);
  return {rd_kafka_topic_result_error(topics[0]), text ? text : ""};
}

// The controller has created the topic, and the brokers learn of it a little later. `partitions` is the least number to
// wait for.
void wait_until_known(const Client& client, const NewTopic& topic, std::int32_t partitions,
                      std::chrono::steady_clock::time_point end) {
  const Queue nothing{rd_kafka_queue_new(client.handle())};
  while (partition_count(client, topic.name, milliseconds{5'000}).value_or(0) < partitions) {
    if (std::chrono::steady_clock::now() >= end)
      throw broker_error(RD_KAFKA_RESP_ERR__TIMED_OUT, "created, but not known to the brokers yet",
                         client.where(topic.name));
    const Event none{rd_kafka_queue_poll(nothing.get(), 20)};
  }
}

}  // namespace

bool create_topic(const Settings& broker, const NewTopic& topic, milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  const auto client = Client::open(Role::inspector, broker, nullptr);
  auto* handle = client->handle();
  const Queue queue{rd_kafka_queue_new(handle)};
  const AdminOptions options{rd_kafka_AdminOptions_new(handle, RD_KAFKA_ADMIN_OP_CREATETOPICS)};
  rd_kafka_AdminOptions_set_request_timeout(options.get(), ms(timeout), nullptr, 0);
  const auto request = request_of(topic, *client);
  auto* asked = request.get();
  rd_kafka_CreateTopics(handle, &asked, 1, options.get(), queue.get());
  const Event event{rd_kafka_queue_poll(queue.get(), ms(timeout))};
  const auto [code, why] = answer_of(event.get());
  const bool was_there = code == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS;
  if (code && !was_there) {
    client->hear_failures();
    throw client->no_answer(code, why, topic.name);
  }
  // Another process may have created it a moment before, with any number of partitions.
  wait_until_known(*client, topic, was_there ? 1 : topic.partitions, end);
  return !was_there;
}

bool extend_topic(const Settings& broker, const std::string& name, std::int32_t partitions, milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  const auto client = Client::open(Role::inspector, broker, nullptr);
  if (partition_count(*client, name, timeout).value_or(0) >= partitions) return false;
  auto* handle = client->handle();
  const Queue queue{rd_kafka_queue_new(handle)};
  const AdminOptions options{rd_kafka_AdminOptions_new(handle, RD_KAFKA_ADMIN_OP_CREATEPARTITIONS)};
  rd_kafka_AdminOptions_set_request_timeout(options.get(), ms(timeout), nullptr, 0);
  std::array<char, 512> why{};
  const NewPartitionsHandle request{
      rd_kafka_NewPartitions_new(name.c_str(), static_cast<std::size_t>(partitions), why.data(), why.size())};
  if (!request) throw broker_error(RD_KAFKA_RESP_ERR__INVALID_ARG, why.data(), client->where(name));
  auto* asked = request.get();
  rd_kafka_CreatePartitions(handle, &asked, 1, options.get(), queue.get());
  const Event event{rd_kafka_queue_poll(queue.get(), ms(timeout))};
  const auto [code, text] = answer_of(event.get());
  if (code && code != RD_KAFKA_RESP_ERR_INVALID_PARTITIONS) {
    client->hear_failures();
    throw client->no_answer(code, text, name);
  }
  // The controller knows partitions that the asked broker did not know yet: another program has added them.
  const bool were_there = code != RD_KAFKA_RESP_ERR_NO_ERROR;
  try {
    wait_until_known(*client, {.name = name, .settings = {}}, partitions,
                     were_there ? std::min(end, std::chrono::steady_clock::now() + kOthers) : end);
  } catch (const BrokerError&) {
    if (!were_there || !partition_count(*client, name, timeout)) throw;
    throw broker_error(code, text + "; another program may be adding partitions at the same time, so try again",
                       client->where(name));
  }
  return !were_there;
}

bool delete_topic(const Settings& broker, const std::string& name, milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  const auto client = Client::open(Role::inspector, broker, nullptr);
  auto* handle = client->handle();
  const Queue queue{rd_kafka_queue_new(handle)};
  const AdminOptions options{rd_kafka_AdminOptions_new(handle, RD_KAFKA_ADMIN_OP_DELETETOPICS)};
  rd_kafka_AdminOptions_set_request_timeout(options.get(), ms(timeout), nullptr, 0);
  const DeleteTopicHandle request{rd_kafka_DeleteTopic_new(name.c_str())};
  auto* asked = request.get();
  rd_kafka_DeleteTopics(handle, &asked, 1, options.get(), queue.get());
  const Event event{rd_kafka_queue_poll(queue.get(), ms(timeout))};
  const auto [code, why] = answer_of(event.get());
  if (code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) return false;
  if (code) {
    client->hear_failures();
    throw client->no_answer(code, why, name);
  }
  const Queue nothing{rd_kafka_queue_new(handle)};
  while (partition_count(*client, name, milliseconds{5'000})) {
    if (std::chrono::steady_clock::now() >= end)
      throw broker_error(RD_KAFKA_RESP_ERR__TIMED_OUT, "deleted, but still known to the brokers", client->where(name));
    const Event none{rd_kafka_queue_poll(nothing.get(), 20)};
  }
  return true;
}

}  // namespace turnstile::kafka
