#include "tests/support/token_topic.hpp"

#include <chrono>
#include <memory>
#include <stdexcept>

#include "tests/support/world.hpp"

namespace turnstile::test {

namespace {

constexpr int kWait_ms = 20'000;

using TopicPtr = std::unique_ptr<rd_kafka_topic_t, decltype(&rd_kafka_topic_destroy)>;

}  // namespace

namespace {

std::pair<std::int64_t, std::int64_t> bounds(const std::string& topic) {
  std::int64_t low = 0, high = 0;
  const auto asking = plain_client(RD_KAFKA_CONSUMER, kafka_servers());
  const auto code = rd_kafka_query_watermark_offsets(asking.get(), topic.c_str(), 0, &low, &high, kWait_ms);
  if (code) throw std::runtime_error(topic + ": " + rd_kafka_err2str(code));
  return {low, high};
}

}  // namespace

std::int64_t end_of_topic(const std::string& topic) { return bounds(topic).second; }

std::vector<LoggedEvent> read_token_topic(const std::string& topic) {
  const auto [low, high] = bounds(topic);
  std::vector<LoggedEvent> records;
  if (low == high) return records;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kWait_ms);
  tail_token_topic(kafka_servers(), topic, [&, end = high](const LoggedEvent* record) {
    if (record != nullptr) records.push_back(*record);
    return (records.empty() || records.back().position + 1 < end) && std::chrono::steady_clock::now() < deadline;
  });
  return records;
}

tokens::State replay(const std::vector<LoggedEvent>& records) {
  tokens::State state;
  for (const auto& record : records) tokens::apply(state, record.position, record.event);
  return state;
}

void append_to_topic(const std::string& topic, const std::vector<std::string>& records, const std::string& key) {
  const auto producer = plain_client(RD_KAFKA_PRODUCER, kafka_servers());
  const TopicPtr handle{rd_kafka_topic_new(producer.get(), topic.c_str(), nullptr), &rd_kafka_topic_destroy};
  for (const auto& record : records) {
    const int refused = rd_kafka_produce(handle.get(), 0, RD_KAFKA_MSG_F_COPY, const_cast<char*>(record.data()),
                                         record.size(), key.empty() ? nullptr : key.data(), key.size(), nullptr);
    if (refused != 0) throw std::runtime_error(topic + ": " + rd_kafka_err2str(rd_kafka_last_error()));
  }
  if (rd_kafka_flush(producer.get(), kWait_ms)) throw std::runtime_error(topic + ": not acknowledged");
}

void delete_topic(const std::string& topic) {
  const auto admin = plain_client(RD_KAFKA_PRODUCER, kafka_servers());
  const std::unique_ptr<rd_kafka_queue_t, decltype(&rd_kafka_queue_destroy)> answers{rd_kafka_queue_new(admin.get()),
                                                                                     &rd_kafka_queue_destroy};
  rd_kafka_DeleteTopic_t* doomed = rd_kafka_DeleteTopic_new(topic.c_str());
  rd_kafka_DeleteTopics(admin.get(), &doomed, 1, nullptr, answers.get());
  rd_kafka_DeleteTopic_destroy(doomed);
  const std::unique_ptr<rd_kafka_event_t, decltype(&rd_kafka_event_destroy)> answer{
      rd_kafka_queue_poll(answers.get(), kWait_ms), &rd_kafka_event_destroy};
  if (!answer || rd_kafka_event_error(answer.get())) throw std::runtime_error(topic + ": could not be deleted");
}

}  // namespace turnstile::test
