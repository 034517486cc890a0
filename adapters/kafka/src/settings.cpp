#include "settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "turnstile/error.hpp"

namespace turnstile::kafka {
namespace {

constexpr int kCooperativeSince = 0x020a0000;  // hazard: cooperative-rebalance

struct Default {
  const char* key;
  const char* value;
  int since = 0;  ///< the first librdkafka version that knows the key
};

// For every client:
// reconnect.backoff.max.ms: librdkafka's 10 s would be added to every restart of a broker.
// log.connection.close: temporary failures also reach the error callback, which logs each change of state once.
constexpr std::array kForAll{
    Default{"client.id", "turnstile"},           Default{"log.connection.close", "false"},
    Default{"reconnect.backoff.max.ms", "2000"}, Default{"socket.keepalive.enable", "true"},
    Default{"socket.nagle.disable", "true"},
};

// partition.assignment.strategy: eager (hazard: cooperative-rebalance), and the same for every version, because a group
// with different ones breaks.
// auto.offset.reset: a group without offsets must not skip records.
// queued.*: for each partition. A prefetched record of 100 bytes takes about 0.44 kB (measured on 2.0.2).
// heartbeat.interval.ms: a member learns from the answer to a heartbeat that another one wants to join, and until then the
// newcomer waits. librdkafka's default is 3 s. A heartbeat is a request of 100 bytes.
// fetch.wait.max.ms: a broker gets one fetch at a time, and a partition whose queue was full waits for it.
constexpr std::array kForConsumers{
    Default{"group.id", "turnstile"},
    Default{"partition.assignment.strategy", "range"},
    Default{"auto.offset.reset", "earliest"},
    Default{"isolation.level", "read_committed"},
    Default{"queued.min.messages", "10000"},
    Default{"queued.max.messages.kbytes", "16384"},
    Default{"heartbeat.interval.ms", "1000"},
    Default{"fetch.wait.max.ms", "100"},
    Default{"fetch.queue.backoff.ms", "5", 0x02020000},
};

// delivery.timeout.ms: a dead letter that no broker accepts must stop its partition within a time that a person can
// wait.
// message.max.bytes: the default of brokers (librdkafka: 1,000,000), because a dead letter is a little larger than its
// record.
// partitioner: that of the Java clients, so that a key's dead letters are in the same partition as records of other
// producers.
// topic.metadata.propagation.max.ms: how long an unknown topic is treated as a topic that is being created.
constexpr std::array kForProducers{
    Default{"enable.idempotence", "true"},   Default{"linger.ms", "0"},
    Default{"message.max.bytes", "1048576"}, Default{"partitioner", "murmur2_random"},
    Default{"delivery.timeout.ms", "30000"}, Default{"topic.metadata.propagation.max.ms", "5000"},
};

std::span<const Default> defaults_of(Role role) {
  if (role == Role::consumer) return kForConsumers;
  if (role == Role::producer) return kForProducers;
  return {};
}

bool is_secret(std::string_view key) {
  for (const char* part : {"password", "secret", ".pem", "oauthbearer.config"})
    if (key.find(part) != std::string_view::npos) return true;
  return false;
}

std::string hide(std::string text, const std::string& key, const std::string& value) {
  if (!is_secret(key) || value.empty()) return text;
  for (auto at = text.find(value); at != std::string::npos; at = text.find(value, at + 3))
    text.replace(at, value.size(), "***");
  return text;
}

using Problems = std::vector<KafkaProblem>;

/// Without aliases, because librdkafka does not list them.
std::vector<std::string> names_of(rd_kafka_conf_t* conf) {
  std::vector<std::string> names;
  std::size_t count = 0;
  const char** dump = rd_kafka_conf_dump(conf, &count);
  for (std::size_t i = 0; i + 1 < count; i += 2) names.emplace_back(dump[i]);
  rd_kafka_conf_dump_free(dump, count);
  return names;
}

void set(rd_kafka_conf_t* conf, const std::string& key, const std::string& value, Problems& problems) {
  std::array<char, 512> why{};
  const auto answer = rd_kafka_conf_set(conf, key.c_str(), value.c_str(), why.data(), why.size());
  if (answer == RD_KAFKA_CONF_OK) return;
  KafkaProblem problem{key, fmt::format("{} (librdkafka {}; its CONFIGURATION.md lists the settings)",
                                        hide(why.data(), key, value), rd_kafka_version_str())};
  if (answer == RD_KAFKA_CONF_UNKNOWN) problem.known = names_of(conf);
  problems.push_back(std::move(problem));
}

/// For settings from code, which have no line number.
std::vector<std::string> texts(const Problems& problems) {
  std::vector<std::string> lines;
  for (const auto& problem : problems) lines.push_back(fmt::format("kafka.\"{}\": {}", problem.key, problem.why));
  return lines;
}

bool has_value(const Settings& settings, const std::string& key, std::initializer_list<std::string_view> values) {
  const auto at = settings.find(key);
  return at != settings.end() && std::find(values.begin(), values.end(), at->second) != values.end();
}

void check_guarantees(const Settings& s, Problems& problems) {
  for (const char* key : {"enable.auto.commit", "enable.auto.offset.store"})
    if (has_value(s, key, {"true", "t", "1"}))
      problems.push_back(
          {key,
           "must be false: Turnstile commits an offset only after the effects of all messages below it are permanent. "
           "Remove the setting"});
  for (const char* key : {"acks", "request.required.acks"})
    if (s.contains(key) && !has_value(s, key, {"all", "-1"}))
      problems.push_back(
          {key, "must be all: a dead letter counts as written when every in-sync replica has it. Remove the setting"});
  if (rd_kafka_version() >= kCooperativeSince) return;
  if (has_value(s, "partition.assignment.strategy", {"cooperative-sticky"}))
    problems.push_back({"partition.assignment.strategy",
                        fmt::format("cooperative-sticky loses assignments in librdkafka {} (fixed in 2.10); use "
                                    "range or roundrobin",
                                    rd_kafka_version_str())});
  if (has_value(s, "group.protocol", {"consumer", "CONSUMER"}))
    problems.push_back({"group.protocol", fmt::format("consumer needs librdkafka 2.10, but this is {}; use classic",
                                                      rd_kafka_version_str())});
}

/// Empty: librdkafka has no such setting.
std::string value_of(const Conf& conf, const std::string& key) {
  std::array<char, 512> value{};
  auto size = value.size();
  if (rd_kafka_conf_get(conf.get(), key.c_str(), value.data(), &size) != RD_KAFKA_CONF_OK) return {};
  return value.data();
}

bool applies(const Default& d, const Settings& s) {
  if (rd_kafka_version() < d.since || s.contains(d.key)) return false;
  // The consumer protocol of KIP-848 assigns partitions on the broker, and refuses the client's assignor and interval.
  if (d.key == std::string_view("partition.assignment.strategy") || d.key == std::string_view("heartbeat.interval.ms"))
    return !has_value(s, "group.protocol", {"consumer", "CONSUMER"});
  // An alias of the same setting.
  if (std::string_view(d.key) == "linger.ms") return !s.contains("queue.buffering.max.ms");
  if (std::string_view(d.key) == "delivery.timeout.ms") return !s.contains("message.timeout.ms");
  return true;
}

}  // namespace

std::string setting(const Settings& settings, const std::string& key, const std::string& otherwise) {
  const auto at = settings.find(key);
  return at == settings.end() ? otherwise : at->second;
}

std::string effective(const Settings& settings, const std::string& key) {
  return value_of(make_conf(Role::consumer, settings), key);
}

Conf make_conf(Role role, const Settings& settings, std::vector<KafkaProblem>& problems) {
  Conf conf{rd_kafka_conf_new()};
  for (const auto& d : kForAll)
    if (applies(d, settings)) set(conf.get(), d.key, d.value, problems);
  for (const auto& d : defaults_of(role))
    if (applies(d, settings)) set(conf.get(), d.key, d.value, problems);
  for (const auto& [key, value] : settings) set(conf.get(), key, value, problems);
  if (role == Role::consumer) {
    set(conf.get(), "enable.auto.commit", "false", problems);
    set(conf.get(), "enable.auto.offset.store", "false", problems);
  } else if (role == Role::producer) {
    set(conf.get(), "acks", "all", problems);
  }
  return conf;
}

Conf make_conf(Role role, const Settings& settings) {
  Problems problems;
  Conf conf = make_conf(role, settings, problems);
  if (!problems.empty()) throw ConfigError(texts(problems));
  return conf;
}

namespace {

/// A record that is larger than the queue waits in librdkafka for room that never comes, and nothing is logged.
void check_queue(const Settings& settings, Problems& problems) {
  if (!settings.contains("queue.buffering.max.kbytes")) return;
  Problems others;
  const Conf conf = make_conf(Role::producer, settings, others);
  const std::int64_t largest = std::stoll(value_of(conf, "message.max.bytes"));
  const std::int64_t room = std::stoll(value_of(conf, "queue.buffering.max.kbytes"));
  if (room * 1'024 >= largest) return;
  problems.push_back(
      {"queue.buffering.max.kbytes",
       fmt::format("is {}, so the queue has no room for the largest record ({} bytes, message.max.bytes), "
                   "which would never be sent. Set it to {} or more, or lower message.max.bytes",
                   room, largest, (largest + 1'023) / 1'024)});
}

}  // namespace

std::vector<KafkaProblem> check_settings(const Settings& settings) {
  Problems problems;
  check_guarantees(settings, problems);
  check_queue(settings, problems);
  make_conf(Role::consumer, settings, problems);
  return problems;
}

void check(const Settings& settings) {
  Problems problems = check_settings(settings);
  if (setting(settings, "bootstrap.servers").empty() && setting(settings, "metadata.broker.list").empty())
    problems.push_back(
        {"bootstrap.servers", "is missing; list the brokers to connect to first, such as \"localhost:9092\""});
  if (!problems.empty()) throw ConfigError(texts(problems));
}

}  // namespace turnstile::kafka
