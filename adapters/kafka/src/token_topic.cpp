#include "token_topic.hpp"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <map>
#include <thread>

#include "client.hpp"
#include "token_topic_shape.hpp"
#include "topics.hpp"
#include "turnstile/error.hpp"
#include "turnstile/kafka/admin.hpp"
#include "turnstile/log.hpp"

namespace turnstile::kafka {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kWait{10'000};
constexpr milliseconds kPatience{5'000};  // how long a person at the command line waits
/// How long brokers may know more of one topic than of another.
constexpr milliseconds kSettled{1'000}, kLookAgain{100};
// No record may be deleted by time: a domain that rested for longer would lose its log. Members delete the records that
// a snapshot covers.
constexpr const char* kRetentionMs = "-1";
// Brokers stamp the records. They refuse those that a member stamped, if its clock is an hour ahead
// (message.timestamp.after.max.ms).
constexpr const char* kTimestamps = "LogAppendTime";
// The largest snapshot: 1,000 members with 20 limiters and 65,536 partitions have 4 MB.
constexpr const char* kMostBytes = "16777216";
// Kafka never compacts the segment that it writes to: this many bytes of old snapshots stay, or this long.
constexpr const char* kSnapshotSegmentBytes = "33554432";
constexpr const char* kSnapshotSegmentMs = "600000";

std::string count(std::int32_t partitions) {
  return fmt::format("{} partition{}", partitions, partitions == 1 ? "" : "s");
}

class Topics {
 public:
  Topics(const Settings& settings, const TokenTopic& topic, std::shared_ptr<spdlog::logger> logger)
      : settings_(settings),
        brokers_(setting(settings, "bootstrap.servers")),
        client_(Client::open(Role::inspector, settings, std::move(logger))),
        rule_(topic.replication),
        new_replicas_(rule_.of_new_topic(shape(*client_, topic.name, kWait).brokers)) {}

  /// A log can have any number of partitions if its topic for snapshots has more than 1 too. limits divide adds them to the
  /// snapshots first, so this asks for the log first.
  void must_be_a_log(const std::string& log) const {
    const std::int32_t parts = partitions(log);
    if (parts <= 1) return;
    const std::string snapshots = snapshot_topic(log);
    std::int32_t kept = partitions(snapshots);
    for (const auto end = std::chrono::steady_clock::now() + kSettled;
         kept <= 1 && std::chrono::steady_clock::now() < end; kept = partitions(snapshots))
      std::this_thread::sleep_for(kLookAgain);
    if (kept > 1) return;
    throw BrokerError(
        Code::token_log_misconfigured,
        kept == 1
            ? fmt::format(
                  "topic {} has {}, but its topic for snapshots, {}, has {}. If the log was divided, repeat "
                  "turnstile limits divide, with the number of parts that it was divided into. If partitions were "
                  "added by hand, run: turnstile limits divide {}. Otherwise name another topic",
                  log, count(parts), snapshots, count(kept), parts)
            : fmt::format(
                  "topic {} has {}, so it is not a token log: its topic for snapshots, {}, does not exist. Name "
                  "another topic; if the one for snapshots was deleted, run: {}",
                  log, count(parts), snapshots, create_command(snapshots, "compact", parts)));
  }

  void ensure(const std::string& name, const std::string& policy) {
    bool created = false;
    const auto found = existing_or_created(
        name, [&] { return shape(*client_, name, kWait); }, [&] { created = create(name, policy); }, kWait);
    if (const auto warning = rule_.check(name, found, created, brokers_))
      log_warning(client_->logger(), Code::token_log_misconfigured, *warning);
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

 private:
  /// 0: there is no such topic.
  [[nodiscard]] std::int32_t partitions(const std::string& name) const {
    return shape(*client_, name, kWait).partitions;
  }
  /// False: another process has created it.
  bool create(const std::string& name, const std::string& policy) {
    const NewTopic topic{.name = name, .partitions = 1, .replication = new_replicas_, .settings = wanted(policy)};
    try {
      return create_topic(settings_, topic);
    } catch (const BrokerError& error) {
      throw BrokerError(
          error.code(),
          fmt::format("topic {}, which cluster-wide limits need, does not exist and could not be created: {}. "
                      "Ask an administrator to run: {}",
                      name, error.what(), create_command(name, policy)));
    }
  }
  static std::map<std::string, std::string> wanted(const std::string& policy) {
    if (policy == "delete") {
      return {{"cleanup.policy", policy}, {"retention.ms", kRetentionMs}, {"message.timestamp.type", kTimestamps}};
    }
    return {{"cleanup.policy", policy},
            {"message.timestamp.type", kTimestamps},
            {"max.message.bytes", kMostBytes},
            {"segment.bytes", kSnapshotSegmentBytes},
            {"segment.ms", kSnapshotSegmentMs}};
  }
  std::string create_command(const std::string& name, const std::string& policy, std::int32_t partitions = 1) const {
    std::string command =
        fmt::format("kafka-topics.sh --bootstrap-server {} --create --topic {} --partitions {} --replication-factor {}",
                    brokers_, name, partitions, new_replicas_);
    for (const auto& [key, value] : wanted(policy)) command += fmt::format(" --config {}={}", key, value);
    return command;
  }
  /// What happens without the setting.
  static std::string_view without(std::string_view key) {
    if (key == "retention.ms") return ", or a domain that is stopped for longer than that cannot start again";
    if (key == "message.timestamp.type") return ", or a member whose clock is an hour ahead cannot write";
    return "";
  }
  /// Settings that are wrong, but that a domain survives for a while.
  void advise(const std::string& name, const std::string& policy) {
    for (const auto& [key, value] : wanted(policy)) {
      const auto is = topic_setting(*client_, name, key, kWait);
      if (!is || *is == value) continue;
      log_warning(client_->logger(), Code::token_log_misconfigured,
                  fmt::format("topic {} has {}={}; it should be {}{}: kafka-configs.sh --bootstrap-server {} --alter "
                              "--entity-type topics --entity-name {} --add-config {}={}",
                              name, key, *is, value, without(key), brokers_, name, key, value));
    }
  }

  const Settings& settings_;
  const std::string brokers_;
  const std::shared_ptr<Client> client_;
  const ReplicaRule rule_;
  const std::int32_t new_replicas_;
};

}  // namespace

std::string snapshot_topic(const std::string& topic) { return topic + ".snapshots"; }

bool token_topic_exists(const Settings& settings, const std::string& topic, std::shared_ptr<spdlog::logger> logger) {
  const auto client = Client::open(Role::inspector, settings, std::move(logger));
  const auto found = shape(*client, topic, kPatience);
  if (found.partitions > 1 && !is_mock(*client, kPatience) &&
      shape(*client, snapshot_topic(topic), kPatience).partitions == 0) {
    throw ConfigError({fmt::format(
        "topic {} at {} has {} partitions, so it is not a token log: its topic for snapshots, {}, does not exist; name another topic",
        topic, setting(settings, "bootstrap.servers"), found.partitions, snapshot_topic(topic))});
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
            "the token log {} is divided into parts, but topic {} at {} has only {}, and part {} is needed. Repeat "
            "turnstile limits divide, with the number of parts that the log has",
            topic, name, setting(settings, "bootstrap.servers"), count(found.partitions), part));
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
  topics.must_be_a_log(topic.name);
  topics.ensure(topic.name, "delete");
  topics.ensure(snapshot_topic(topic.name), "compact");
}

void extend_token_topics(const Settings& settings, const std::string& topic, std::uint32_t parts,
                         std::chrono::milliseconds timeout) {
  const std::string snapshots = snapshot_topic(topic), brokers = setting(settings, "bootstrap.servers");
  for (const std::string& name : {snapshots, topic}) {
    try {
      extend_topic(settings, name, static_cast<std::int32_t>(parts), timeout);
    } catch (const BrokerError& error) {
      if (error.code() != Code::kafka_permission_denied) throw;
      throw BrokerError(
          error.code(),
          fmt::format(
              "topic {} at {} has fewer than {} partitions, and this user may not add any. Grant it Alter on "
              "both topics of the token log: kafka-acls.sh --bootstrap-server {} --add --allow-principal User:… "
              "--operation Alter --topic {} --topic {}",
              name, brokers, parts, brokers, topic, snapshots));
    }
  }
}

}  // namespace turnstile::kafka
