#include "topics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace turnstile::kafka {
namespace {

using std::chrono::milliseconds;

/// Of how many new topics a sender asks one by one. Of more, librdkafka asks in one request within a second. A broker that
/// creates topics on request creates those of one request together, and 300 single ones for longer than
/// topic.metadata.propagation.max.ms (measured), after which librdkafka refuses their records.
constexpr std::size_t kMostAsked = 4;

using Entries = std::map<std::string, std::string, std::less<>>;

/// A topic's own settings. If there are none, `why` is the reason and what to do. It is empty for librdkafka's mock
/// broker.
struct TopicEntries {
  Entries entries;
  std::string why;
};

/// The reason why the brokers returned no settings of the topic, and what to do.
std::string why_not_returned(const Client& client, const std::string& topic, rd_kafka_resp_err_t code) {
  if (code != RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
    return fmt::format("DescribeConfigs of topic {} failed: {}", topic, rd_kafka_err2str(code));
  return fmt::format(
      "this user may not read the topic's settings. Grant it DescribeConfigs (kafka-acls.sh --bootstrap-server {} --add "
      "--allow-principal User:… --operation DescribeConfigs --topic {})",
      client.where().broker, topic);
}

TopicEntries entries_of(const Client& client, const std::string& topic, rd_kafka_event_t* event) {
  TopicEntries found;
  std::size_t resources = 0;
  const auto** resource =
      rd_kafka_DescribeConfigs_result_resources(rd_kafka_event_DescribeConfigs_result(event), &resources);
  for (std::size_t i = 0; i < resources; ++i) {
    if (const auto code = rd_kafka_ConfigResource_error(resource[i])) {
      found.why = why_not_returned(client, topic, code);
      continue;
    }
    std::size_t count = 0;
    const auto** entry = rd_kafka_ConfigResource_configs(resource[i], &count);
    for (std::size_t e = 0; e < count; ++e)
      if (const char* value = rd_kafka_ConfigEntry_value(entry[e]))
        found.entries.emplace(rd_kafka_ConfigEntry_name(entry[e]), value);
  }
  return found;
}

// A negative value means forever.
std::optional<milliseconds> time_in(const Entries& entries, const std::string& key) {
  const auto found = entries.find(key);
  if (found == entries.end()) return std::nullopt;
  std::int64_t value = 0;
  const auto& text = found->second;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{}) return std::nullopt;
  return value < 0 ? milliseconds::max() : milliseconds{value};
}

// With compaction and without deletion, the last record of each key stays forever.
std::optional<milliseconds> retention_in(const Entries& entries) {
  const auto policy = entries.find("cleanup.policy");
  if (policy != entries.end() && policy->second.find("delete") == std::string::npos) return milliseconds::max();
  return time_in(entries, "retention.ms");
}

// It names no topic, so that the request creates none. The answer contains the cluster's id: a request for the id alone
// takes librdkafka 2.0.2 a second.
rd_kafka_resp_err_t ask_for_brokers(const Client& client, milliseconds timeout) {
  const rd_kafka_metadata_t* raw = nullptr;
  const auto code = rd_kafka_metadata(client.handle(), 0, nullptr, &raw, ms(timeout));
  const Metadata metadata{raw};
  return code;
}

// librdkafka's mock broker creates a topic when a request names it, and never answers DescribeConfigs
// (hazard: mock-broker).
bool is_mock(const Client& client) { return is_mock(client, milliseconds{0}); }

}  // namespace

bool is_mock(const Client& client, milliseconds timeout) {
  if (timeout.count() > 0) ask_for_brokers(client, timeout);
  const std::unique_ptr<char, decltype(&std::free)> id{rd_kafka_clusterid(client.handle(), 0), &std::free};
  return id && std::string_view(id.get()).starts_with("mockCluster");
}

namespace {

Metadata ask(const Client& client, const std::string& topic, bool about_all, milliseconds timeout) {
  // With the topic handle the request concerns this topic alone.
  const Topic handle{about_all ? nullptr : rd_kafka_topic_new(client.handle(), topic.c_str(), nullptr)};
  if (!about_all && !handle) throw broker_error(rd_kafka_last_error(), "", client.where(topic));
  const rd_kafka_metadata_t* raw = nullptr;
  const auto code = rd_kafka_metadata(client.handle(), about_all ? 1 : 0, handle.get(), &raw, ms(timeout));
  Metadata metadata{raw};
  if (code) throw client.no_answer(code, "requesting metadata", topic);
  return metadata;
}

TopicEntries settings_of(const Client& client, const std::string& topic, milliseconds timeout) {
  if (is_mock(client)) return {};
  auto* handle = client.handle();
  const Queue queue{rd_kafka_queue_new(handle)};
  const AdminOptions options{rd_kafka_AdminOptions_new(handle, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS)};
  rd_kafka_AdminOptions_set_request_timeout(options.get(), ms(timeout), nullptr, 0);
  const ConfigResource resource{rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic.c_str())};
  auto* asked = resource.get();
  rd_kafka_DescribeConfigs(handle, &asked, 1, options.get(), queue.get());
  const Event event{rd_kafka_queue_poll(queue.get(), ms(timeout + milliseconds{500}))};
  if (!event || rd_kafka_event_type(event.get()) != RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT)
    return {{}, why_not_returned(client, topic, RD_KAFKA_RESP_ERR__TIMED_OUT)};
  if (const auto code = rd_kafka_event_error(event.get())) return {{}, why_not_returned(client, topic, code)};
  return entries_of(client, topic, event.get());
}

}  // namespace

void wait_for_answer(const Client& client, milliseconds timeout, const std::string& topic) {
  if (!ask_for_brokers(client, timeout) || client.has_been_up()) return;
  client.hear_failures();
  throw client.no_answer(RD_KAFKA_RESP_ERR__TIMED_OUT, "requesting metadata", topic);
}

TopicShape shape(const Client& client, const std::string& topic, milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  wait_for_answer(client, timeout, topic);
  const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
  const auto metadata = ask(client, topic, is_mock(client), left);
  TopicShape shape{.brokers = metadata->broker_cnt};
  for (int i = 0; i < metadata->topic_cnt; ++i) {
    const auto& found = metadata->topics[i];
    if (topic != found.topic) continue;
    if (found.err == RD_KAFKA_RESP_ERR_NO_ERROR || found.err == RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE) {
      shape.partitions = found.partition_cnt;
      if (found.partition_cnt > 0) shape.replicas = found.partitions[0].replica_cnt;
    } else if (found.err != RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) {
      throw broker_error(found.err, "", client.where(topic));
    }
  }
  return shape;
}

std::optional<std::int32_t> partition_count(const Client& client, const std::string& topic, milliseconds timeout) {
  const auto partitions = shape(client, topic, timeout).partitions;
  return partitions > 0 ? std::optional(partitions) : std::nullopt;
}

std::vector<std::int32_t> leaders_of(const Client& client, const std::string& topic, milliseconds timeout) {
  const auto metadata = ask(client, topic, is_mock(client), timeout);
  std::vector<std::int32_t> leaders;
  for (int i = 0; i < metadata->topic_cnt; ++i) {
    const auto& found = metadata->topics[i];
    if (topic != found.topic) continue;
    leaders.assign(static_cast<std::size_t>(found.partition_cnt), kNoLeader);
    for (int p = 0; p < found.partition_cnt; ++p) {
      const auto& partition = found.partitions[p];
      if (partition.id >= 0 && partition.id < found.partition_cnt)
        leaders[static_cast<std::size_t>(partition.id)] = partition.leader;
    }
  }
  return leaders;
}

bool look_again(const Client& client, const std::string& topic) noexcept try {
  // Any answer about the topic updates the metadata of this client's producer.
  (void)ask(client, topic, false, milliseconds{2'000});
  return true;
} catch (...) {
  return false;
}

void ask_before_first_records(Client& client, const std::set<std::string>& topics) noexcept try {
  std::vector<std::string_view> fresh;
  for (const std::string& topic : topics) {
    if (ports::is_topic_name(topic) && client.is_first_use(topic)) fresh.push_back(topic);
  }
  if (fresh.size() > kMostAsked) return;
  for (const std::string_view topic : fresh) (void)ask(client, std::string(topic), false, milliseconds{1'000});
} catch (...) {  // librdkafka waits for the topic itself
}

bool is_remembered(rd_kafka_resp_err_t refusal) noexcept {
  return refusal == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC || refusal == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
}

std::optional<bool> exists_now(const Client& client, const std::string& topic, milliseconds timeout) noexcept try {
  return partition_count(client, topic, timeout).has_value();
} catch (...) {
  return std::nullopt;
}

bool topic_exists(const Client& client, const std::string& topic) noexcept {
  return exists_now(client, topic, milliseconds{1'000}).value_or(true);
}

std::optional<std::string> topic_setting(const Client& client, const std::string& topic, const std::string& key,
                                         milliseconds timeout) {
  const auto entries = settings_of(client, topic, timeout).entries;
  const auto found = entries.find(key);
  return found == entries.end() ? std::nullopt : std::optional(found->second);
}

Keeping keeping(const Client& client, const std::string& topic, milliseconds timeout) {
  auto [entries, why] = settings_of(client, topic, timeout);
  Keeping keeping{.retention = retention_in(entries), .segment = time_in(entries, "segment.ms"), .why = std::move(why)};
  if (!keeping.retention && keeping.why.empty() && !entries.empty())
    keeping.why = fmt::format("the brokers report no retention.ms of topic {}", topic);
  return keeping;
}

}  // namespace turnstile::kafka
