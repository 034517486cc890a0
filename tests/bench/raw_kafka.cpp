#include "tests/bench/raw_kafka.hpp"

#include "tests/bench/bench_common.hpp"

namespace bench {

rd_kafka_conf_t* make_conf(const Settings& settings) {
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  char why[512];
  for (const auto& [name, value] : settings) {
    if (rd_kafka_conf_set(conf, name.c_str(), value.c_str(), why, sizeof why) != RD_KAFKA_CONF_OK) die(why);
  }
  return conf;
}

Settings parse_settings(const std::string& text) {
  Settings out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, end - at);
    const std::size_t equals = one.find('=');
    if (equals == std::string::npos) die("expected name=value, got " + one);
    out.emplace_back(one.substr(0, equals), one.substr(equals + 1));
    at = end + 1;
  }
  return out;
}

namespace {

/// Waits for the answer to an admin request, and checks each topic's result.
template <class Results>
void finish_admin(rd_kafka_queue_t* answers, const std::string& topic, Results results_of) {
  rd_kafka_event_t* event = rd_kafka_queue_poll(answers, 30'000);
  if (event == nullptr) die("topic " + topic + ": no answer from the broker within 30 s");
  if (rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR_NO_ERROR) die(rd_kafka_event_error_string(event));
  std::size_t count = 0;
  const rd_kafka_topic_result_t** results = results_of(event, &count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto error = rd_kafka_topic_result_error(results[i]);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) die("topic " + topic + ": " + rd_kafka_err2str(error));
  }
  rd_kafka_event_destroy(event);
  rd_kafka_queue_destroy(answers);
}

std::vector<Span> spans_of(rd_kafka_t* rk, const std::string& name) {
  rd_kafka_topic_t* topic = rd_kafka_topic_new(rk, name.c_str(), nullptr);
  const rd_kafka_metadata_t* metadata = nullptr;
  if (const auto error = rd_kafka_metadata(rk, 0, topic, &metadata, 30'000); error != RD_KAFKA_RESP_ERR_NO_ERROR) {
    die("metadata of " + name + ": " + rd_kafka_err2str(error));
  }
  if (metadata->topic_cnt != 1 || metadata->topics[0].partition_cnt == 0) die("no such topic: " + name);
  std::vector<Span> spans(static_cast<std::size_t>(metadata->topics[0].partition_cnt));
  for (std::size_t p = 0; p < spans.size(); ++p) {
    const auto error =
        rd_kafka_query_watermark_offsets(rk, name.c_str(), static_cast<int>(p), &spans[p].low, &spans[p].high, 30'000);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) die("offsets of " + name + ": " + rd_kafka_err2str(error));
  }
  rd_kafka_metadata_destroy(metadata);
  rd_kafka_topic_destroy(topic);
  return spans;
}

std::int64_t sum_of(const std::vector<Span>& spans) {
  std::int64_t sum = 0;
  for (const Span& span : spans) sum += span.high - span.low;
  return sum;
}

}  // namespace

std::int64_t messages_in(const std::string& brokers, const std::string& topic) {
  char why[512];
  rd_kafka_t* rk = rd_kafka_new(RD_KAFKA_PRODUCER, make_conf({{"bootstrap.servers", brokers}}), why, sizeof why);
  if (rk == nullptr) die(why);
  const std::int64_t sum = sum_of(spans_of(rk, topic));
  rd_kafka_destroy(rk);
  return sum;
}

void create_topic(rd_kafka_t* rk, const std::string& topic, int partitions) {
  char why[512];
  rd_kafka_NewTopic_t* wanted = rd_kafka_NewTopic_new(topic.c_str(), partitions, 1, why, sizeof why);
  if (wanted == nullptr) die(why);
  rd_kafka_queue_t* answers = rd_kafka_queue_new(rk);
  rd_kafka_CreateTopics(rk, &wanted, 1, nullptr, answers);
  finish_admin(answers, topic, [](rd_kafka_event_t* event, std::size_t* count) {
    return rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), count);
  });
  rd_kafka_NewTopic_destroy(wanted);
}

void remove_topic(rd_kafka_t* rk, const std::string& topic) {
  rd_kafka_DeleteTopic_t* unwanted = rd_kafka_DeleteTopic_new(topic.c_str());
  rd_kafka_queue_t* answers = rd_kafka_queue_new(rk);
  rd_kafka_DeleteTopics(rk, &unwanted, 1, nullptr, answers);
  finish_admin(answers, topic, [](rd_kafka_event_t* event, std::size_t* count) {
    return rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event), count);
  });
  rd_kafka_DeleteTopic_destroy(unwanted);
}

PartitionReader::PartitionReader(const std::string& brokers, const std::string& topic, const std::string& group,
                                 const Settings& more)
    : topic_(topic) {
  Settings settings{{"bootstrap.servers", brokers},       {"group.id", group},
                    {"auto.offset.reset", "earliest"},    {"enable.auto.offset.store", "false"},
                    {"enable.auto.commit", "true"},       {"auto.commit.interval.ms", "1000"},
                    {"isolation.level", "read_committed"}};
  settings.insert(settings.end(), more.begin(), more.end());
  rd_kafka_conf_t* conf = make_conf(settings);
  rd_kafka_conf_set_opaque(conf, this);
  rd_kafka_conf_set_rebalance_cb(conf, &PartitionReader::on_rebalance);
  char why[512];
  rk_ = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
  if (rk_ == nullptr) die(why);
  rd_kafka_poll_set_consumer(rk_);
  spans_ = spans_of(rk_, topic);
  rd_kafka_topic_partition_list_t* topics = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(topics, topic.c_str(), RD_KAFKA_PARTITION_UA);
  if (const auto error = rd_kafka_subscribe(rk_, topics); error != RD_KAFKA_RESP_ERR_NO_ERROR)
    die(rd_kafka_err2str(error));
  rd_kafka_topic_partition_list_destroy(topics);
}

PartitionReader::~PartitionReader() {
  rd_kafka_consumer_close(rk_);
  rd_kafka_destroy(rk_);
}

void PartitionReader::on_rebalance(rd_kafka_t* rk, rd_kafka_resp_err_t error, rd_kafka_topic_partition_list_t* list,
                                   void* opaque) {
  auto* self = static_cast<PartitionReader*>(opaque);
  if (error == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
    rd_kafka_assign(rk, list);
    self->take(list);
  } else {
    self->give_back();
    rd_kafka_assign(rk, nullptr);
  }
}

void PartitionReader::take(const rd_kafka_topic_partition_list_t* list) {
  for (int i = 0; i < list->cnt; ++i) {
    rd_kafka_queue_t* queue = rd_kafka_queue_get_partition(rk_, list->elems[i].topic, list->elems[i].partition);
    if (queue == nullptr) die("no queue for a partition that was assigned");
    rd_kafka_queue_forward(queue, nullptr);
    queues_[list->elems[i].partition] = queue;
  }
}

void PartitionReader::give_back() {
  for (const auto& [partition, queue] : queues_) rd_kafka_queue_destroy(queue);
  queues_.clear();
}

void PartitionReader::wait_for_partitions() {
  const std::int64_t start_ns = now_ns();
  while (queues_.size() < spans_.size()) {
    if (seconds_since(start_ns) > 30) die("the group gave no partitions within 30 s");
    poll(1);  // it lasts for its full time, and the client fetches meanwhile, before the clock runs
  }
}

void PartitionReader::poll(int timeout_ms) {
  rd_kafka_message_t* message = rd_kafka_consumer_poll(rk_, timeout_ms);
  if (message == nullptr) return;
  if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) die("a message on the main queue: a partition queue leaks");
  die(std::string("the broker: ") + rd_kafka_message_errstr(message));
}

std::int64_t PartitionReader::messages() const { return sum_of(spans_); }

void PartitionReader::store(int partition, std::int64_t next) const {
  // A new list each time: librdkafka caches the partition inside the element (hazard: reused-list-element).
  rd_kafka_topic_partition_list_t* list = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(list, topic_.c_str(), partition)->offset = next;
  if (const auto error = rd_kafka_offsets_store(rk_, list); error != RD_KAFKA_RESP_ERR_NO_ERROR) {
    die(std::string("store offset: ") + rd_kafka_err2str(error));
  }
  rd_kafka_topic_partition_list_destroy(list);
}

void PartitionReader::commit() const {
  const auto error = rd_kafka_commit(rk_, nullptr, 0);
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR && error != RD_KAFKA_RESP_ERR__NO_OFFSET) {
    die(std::string("commit: ") + rd_kafka_err2str(error));
  }
}

std::string_view header(const rd_kafka_message_t& message, const char* name) {
  rd_kafka_headers_t* headers = nullptr;
  if (rd_kafka_message_headers(&message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR) return {};
  const void* value = nullptr;
  std::size_t size = 0;
  if (rd_kafka_header_get_last(headers, name, &value, &size) != RD_KAFKA_RESP_ERR_NO_ERROR) return {};
  return {static_cast<const char*>(value), size};
}

}  // namespace bench
