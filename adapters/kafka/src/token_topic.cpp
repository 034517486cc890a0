#include "token_topic.hpp"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <map>

#include "client.hpp"
#include "topics.hpp"
#include "turnstile/error.hpp"
#include "turnstile/kafka/admin.hpp"
#include "turnstile/log.hpp"

namespace turnstile::kafka {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kWait{10'000};
constexpr milliseconds kPatience{5'000};  // how long a person at the command line waits
constexpr std::int32_t kEnoughReplicas = 3;
// No record may be deleted by time: a domain that rested for longer would lose its log. Members delete the records that
// a snapshot covers.
constexpr const char* kRetentionMs = "-1";
// The largest snapshot: 1,000 members with 20 limiters and 65,536 partitions have 4 MB.
constexpr const char* kMostBytes = "16777216";
// Kafka never compacts the segment that it writes to: this many bytes of old snapshots stay, or this long.
constexpr const char* kSnapshotSegmentBytes = "33554432";
constexpr const char* kSnapshotSegmentMs = "600000";

class Topics {
 public:
  Topics(const Settings& settings, const TokenTopic& topic, std::shared_ptr<spdlog::logger> logger)
      : settings_(settings),
        brokers_(setting(settings, "bootstrap.servers")),
        client_(Client::open(Role::inspector, settings, std::move(logger))) {
    const auto known = shape(*client_, topic.name, kWait);
    replicas_ = topic.replication > 0 ? topic.replication : std::clamp(known.brokers, 1, kEnoughReplicas);
  }

  /// `needed`: how many partitions it may have besides 1.
  void ensure(const std::string& name, const std::string& policy, std::int32_t needed) {
    auto found = shape(*client_, name, kWait);
    if (found.partitions == 0) {
      create(name, policy);
      found = shape(*client_, name, kWait);
    }
    // Only a log that can be divided has more partitions, and then its snapshots have as many.
    if (found.partitions != 1 && found.partitions != needed) {
      throw BrokerError(
          Code::token_log_misconfigured,
          fmt::format(
              "topic {} has {} partitions, but a token log is one sequence of events, so it must have exactly 1 (turnstile limits divide adds more). Stop all members, "
              "then run: {} && {}",
              name, found.partitions, delete_command(name), create_command(name, policy)));
    }
    if (found.replicas < replicas_) {
      throw BrokerError(
          Code::token_log_misconfigured,
          fmt::format(
              "topic {} has {} replicas, fewer than the required {}: the loss of a broker could lose the record "
              "of permits. Stop all members, then run: {} && {}",
              name, found.replicas, replicas_, delete_command(name), create_command(name, policy)));
    }
    const auto is = topic_setting(*client_, name, "cleanup.policy", kWait);
    if (is && *is != policy) {
      throw BrokerError(
          Code::token_log_misconfigured,
          fmt::format(
              "topic {} has cleanup.policy={}, which {}; it must be {}. Run: kafka-configs.sh --bootstrap-server {} --alter --entity-type "
              "topics --entity-name {} --add-config cleanup.policy={}",
              name, *is, policy == "delete" ? "removes records from the middle of the log" : "keeps too many snapshots",
              policy, brokers_, name, policy));
    }
    advise(name, policy);
  }

  /// 0: there is no such topic.
  [[nodiscard]] std::int32_t partitions(const std::string& name) const {
    return shape(*client_, name, kWait).partitions;
  }

 private:
  void create(const std::string& name, const std::string& policy) {
    const NewTopic topic{.name = name, .partitions = 1, .replication = replicas_, .settings = wanted(policy)};
    try {
      create_topic(settings_, topic);
    } catch (const BrokerError& error) {
      throw BrokerError(
          error.code(),
          fmt::format("topic {}, which cluster-wide limits need, does not exist and could not be created: {}. "
                      "Ask an administrator to run: {}",
                      name, error.what(), create_command(name, policy)));
    }
  }
  static std::map<std::string, std::string> wanted(const std::string& policy) {
    if (policy == "delete") return {{"cleanup.policy", policy}, {"retention.ms", kRetentionMs}};
    return {{"cleanup.policy", policy},
            {"max.message.bytes", kMostBytes},
            {"segment.bytes", kSnapshotSegmentBytes},
            {"segment.ms", kSnapshotSegmentMs}};
  }
  std::string create_command(const std::string& name, const std::string& policy) const {
    std::string command =
        fmt::format("kafka-topics.sh --bootstrap-server {} --create --topic {} --partitions 1 --replication-factor {}",
                    brokers_, name, replicas_);
    for (const auto& [key, value] : wanted(policy)) command += fmt::format(" --config {}={}", key, value);
    return command;
  }
  /// Settings that are wrong, but that a domain survives for a while.
  void advise(const std::string& name, const std::string& policy) {
    for (const auto& [key, value] : wanted(policy)) {
      const auto is = topic_setting(*client_, name, key, kWait);
      if (!is || *is == value) continue;
      log_warning(
          client_->logger(), Code::token_log_misconfigured,
          fmt::format("topic {} has {}={}; it should be {}{}: kafka-configs.sh --bootstrap-server {} --alter "
                      "--entity-type topics --entity-name {} --add-config {}={}",
                      name, key, *is, value,
                      policy == "delete" ? ", or a domain that is stopped for longer than that cannot start again" : "",
                      brokers_, name, key, value));
    }
  }
  std::string delete_command(const std::string& name) const {
    return fmt::format("kafka-topics.sh --bootstrap-server {} --delete --topic {}", brokers_, name);
  }

  const Settings& settings_;
  const std::string brokers_;
  const std::shared_ptr<Client> client_;
  std::int32_t replicas_ = 1;
};

}  // namespace

std::string snapshot_topic(const std::string& topic) { return topic + ".snapshots"; }

bool token_topic_exists(const Settings& settings, const std::string& topic, std::shared_ptr<spdlog::logger> logger) {
  const auto client = Client::open(Role::inspector, settings, std::move(logger));
  const auto found = shape(*client, topic, kPatience);
  if (found.partitions > 1 && !is_mock(*client, kPatience) &&
      shape(*client, snapshot_topic(topic), kPatience).partitions < found.partitions) {
    throw ConfigError({fmt::format(
        "topic {} at {} has {} partitions, so it is not a token log, which has exactly 1, or as many as its topic for snapshots; name another topic",
        topic, setting(settings, "bootstrap.servers"), found.partitions)});
  }
  return found.partitions > 0;
}

void must_have_part(const Settings& settings, const std::string& topic, std::uint32_t part,
                    std::shared_ptr<spdlog::logger> logger) {
  const auto client = Client::open(Role::inspector, settings, std::move(logger));
  for (const std::string& name : {topic, snapshot_topic(topic)}) {
    const auto found = shape(*client, name, kWait);
    if (found.partitions > static_cast<std::int32_t>(part)) continue;
    throw BrokerError(
        Code::token_log_misconfigured,
        fmt::format(
            "the token log {} is divided into parts, but topic {} at {} has only {} partitions, and part {} is "
            "needed. If the topic was just extended, try again; otherwise stop all members of the domain, delete "
            "both topics, and start the members again",
            topic, name, setting(settings, "bootstrap.servers"), found.partitions, part));
  }
}

void ensure_token_topics(const Settings& settings, const TokenTopic& topic, std::shared_ptr<spdlog::logger> logger) {
  // librdkafka's mock creates a topic when a request for metadata names it, with several partitions. The log is the first
  // partition. Debian 13's librdkafka does not create it for a reader of its offsets.
  Settings creating = settings;
  creating["allow.auto.create.topics"] = "true";
  if (const auto client = Client::open(Role::inspector, creating, logger); is_mock(*client, kWait)) {
    (void)look_again(*client, topic.name);
    return;
  }
  Topics topics(settings, topic, std::move(logger));
  const std::int32_t log = topics.partitions(topic.name), snapshots = topics.partitions(snapshot_topic(topic.name));
  topics.ensure(topic.name, "delete", snapshots);
  topics.ensure(snapshot_topic(topic.name), "compact", std::max(log, snapshots));
}

void extend_token_topics(const Settings& settings, const std::string& topic, std::uint32_t parts,
                         std::chrono::milliseconds timeout) {
  const auto wanted = static_cast<std::int32_t>(parts);
  const auto client = Client::open(Role::inspector, settings, nullptr);
  for (const std::string& name : {snapshot_topic(topic), topic}) {
    if (const auto found = shape(*client, name, kWait); found.partitions > wanted) {
      throw BrokerError(
          Code::token_log_misconfigured,
          fmt::format("topic {} at {} has {} partitions already, more than {}; divide the log into {} parts", name,
                      setting(settings, "bootstrap.servers"), found.partitions, wanted, found.partitions));
    }
    extend_topic(settings, name, wanted, timeout);
  }
}

}  // namespace turnstile::kafka
