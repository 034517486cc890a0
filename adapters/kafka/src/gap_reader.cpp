#include "gap_reader.hpp"

#include <array>
#include <initializer_list>
#include <utility>

#include "records.hpp"

namespace turnstile::kafka {
namespace {

using std::chrono::seconds;

constexpr seconds kReadFor{10}, kOpenAgain{30};
/// Beginning and ending each takes librdkafka some microseconds, in which the consumer's thread does nothing else.
constexpr std::size_t kMostReadings = 64;

/// One record is enough to know that there is no gap. At the end of a partition, the broker answers after
/// fetch.wait.max.ms.
Settings reader_settings(Settings settings) {
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, const char*>>{{"enable.partition.eof", "true"},
                                                                  {"auto.offset.reset", "error"},
                                                                  {"allow.auto.create.topics", "false"},
                                                                  {"enable.auto.commit", "false"},
                                                                  {"fetch.wait.max.ms", "10"},
                                                                  {"queued.min.messages", "1"}})
    settings[key] = value;
  return settings;
}

}  // namespace

GapReader::~GapReader() {
  while (!readings_.empty()) end(readings_.begin());
}

bool GapReader::ask(const TopicPartition& at, Offset from) {
  if (readings_.size() >= kMostReadings || readings_.contains(at)) return false;
  if (!client_ && !open()) return false;
  Topic topic{rd_kafka_topic_new(client_->handle(), at.topic.c_str(), nullptr)};
  if (!topic || rd_kafka_consume_start_queue(topic.get(), at.partition, from, queue_.get()) != 0) return false;
  readings_.emplace(at, Reading{std::move(topic), from, Clock::now() + kReadFor});
  return true;
}

/// A consumer goes on without it, say where no thread can be started.
bool GapReader::open() {
  if (Clock::now() < open_again_) return false;
  try {
    client_ = Client::open(Role::consumer, reader_settings(settings_), nullptr);  // the consumer's own client logs
  } catch (const Error&) {
    open_again_ = Clock::now() + kOpenAgain;
    return false;
  }
  queue_.reset(rd_kafka_queue_new(client_->handle()));
  return true;
}

std::vector<Gap> GapReader::found() {
  std::vector<Gap> gaps;
  if (readings_.empty()) return gaps;
  client_->hear_failures();
  std::array<rd_kafka_message_t*, kMostReadings> scratch{};
  const auto count = rd_kafka_consume_batch_queue(queue_.get(), 0, scratch.data(), scratch.size());
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    const RecordPtr record{scratch[static_cast<std::size_t>(i)]};
    if (record->rkt == nullptr) continue;
    const auto reading = readings_.find({rd_kafka_topic_name(record->rkt), record->partition});
    if (reading == readings_.end()) continue;
    if (record->err == RD_KAFKA_RESP_ERR__PARTITION_EOF && record->offset > reading->second.from)
      gaps.push_back({reading->first, reading->second.from, record->offset});
    end(reading);
  }
  for (auto it = readings_.begin(); it != readings_.end();) {
    const auto reading = it++;
    if (Clock::now() >= reading->second.until) end(reading);
  }
  return gaps;
}

void GapReader::end(std::map<TopicPartition, Reading>::iterator reading) {
  rd_kafka_consume_stop(reading->second.topic.get(), reading->first.partition);
  readings_.erase(reading);
}

}  // namespace turnstile::kafka
