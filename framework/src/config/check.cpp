#include "config/check.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "config/addresses.hpp"
#include "config/duration.hpp"
#include "config/settings_table.hpp"
#include "config/topic_plan.hpp"
#include "message/message_id.hpp"
#include "message/names.hpp"

namespace turnstile::detail {
namespace {

using std::chrono::milliseconds;
using Problems = std::vector<std::string>;

constexpr milliseconds kDefaultSessionTimeout{45'000};    // librdkafka's default, CONFIGURATION.md
constexpr milliseconds kDefaultMaxPollInterval{300'000};  // librdkafka's default, CONFIGURATION.md

/// A librdkafka setting in milliseconds. Absent: it is not set, or it is not a number, which librdkafka then refuses.
std::optional<milliseconds> kafka_ms(const Config& config, const std::string& key) {
  const auto found = config.kafka.find(key);
  if (found == config.kafka.end()) return std::nullopt;
  const std::string& text = found->second;
  milliseconds::rep number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return milliseconds(number);
}

std::string session_text(const Config& config) {
  const auto set = kafka_ms(config, "session.timeout.ms");
  return "Kafka's session timeout of " + to_text(set.value_or(kDefaultSessionTimeout)) +
         (set ? "" : " (librdkafka's default)") + "; shorten it, or raise kafka.\"session.timeout.ms\"";
}

std::optional<milliseconds> session_timeout(const Config& config) {
  // Without brokers in the settings, Turnstile opens no session: a poll loop's own Kafka client has its own settings.
  if (!config.kafka.contains("bootstrap.servers") && !config.kafka.contains("session.timeout.ms")) return std::nullopt;
  return kafka_ms(config, "session.timeout.ms").value_or(kDefaultSessionTimeout);
}

/// Collects the problems of one topic.
class TopicCheck {
 public:
  TopicCheck(const Config& config, const std::string& topic, const TopicSettings& settings, Problems& problems)
      : config_(config), topic_(topic), s_(settings), problems_(problems) {}

  void values() {
    if (auto problem = check_topic_name(topic_))
      problems_.push_back(config_.where("topics." + topic_) + ": " + *problem);
    if (s_.handler && s_.handler->empty()) add("handler", "must not be empty");
    if (s_.limiter && s_.limiter->empty()) add("limiter", "must not be empty");
    if (s_.limit && *s_.limit < 1) {
      add("limit",
          "is " + std::to_string(*s_.limit) + ", but must be at least 1: it is the largest number of running handlers");
    }
    if (s_.batch && *s_.batch < 1) add("batch", "is " + std::to_string(*s_.batch) + ", but must be at least 1 message");
    if (s_.stop_after_dead && *s_.stop_after_dead < 0)
      add("stop_after_dead", "is " + std::to_string(*s_.stop_after_dead) +
                                 ", but must be a number of dead letters, or 0 to never stop the partition");
    if (s_.keep_ids_for && s_.keep_ids_for->count() < 1) add("keep_ids_for", "must be at least 1s");
    if (s_.handler_timeout && s_.handler_timeout->count() < 1) add("handler_timeout", "must be at least 1ms");
    if (s_.lease && *s_.lease < kShortestClaimLease) {
      add("lease", "is " + to_text(*s_.lease) + ", but must be at least " + to_text(kShortestClaimLease) +
                       ": Turnstile must record a message's result before its lease ends");
    }
    if (s_.request_window && (*s_.request_window < kLeastRequestWindow || *s_.request_window > kMostRequestWindow)) {
      add("request_window", "is " + std::to_string(*s_.request_window) + ", but must be from " +
                                std::to_string(kLeastRequestWindow) + " to " + std::to_string(kMostRequestWindow));
    }
    if (s_.dead_letter && !s_.dead_letter->empty()) {
      if (auto problem = check_topic_name(*s_.dead_letter)) add("dead_letter", *problem);
    }
    message_id();
    retry();
  }

  void relations() {
    if (s_.mode && *s_.mode != Mode::at_least_once && !config_.postgres) {
      add("mode", std::string(word_of(*s_.mode)) +
                      " needs a database, but there is no [postgres]; set postgres.url (TURNSTILE_POSTGRES_URL), "
                      "or set the mode to at_least_once");
    }
    // PostgreSQL ends the transaction of a frozen owner after handler_timeout. Kafka names the partition's next owner
    // after the session timeout, and that owner waits for the end of the transaction. Without a transaction no owner
    // waits, and a handler may take hours, because polling continues beside it.
    const auto session = s_.mode && has_transaction(*s_.mode) ? session_timeout(config_) : std::nullopt;
    const auto timeout = s_.handler_timeout.value_or(*topic_defaults().handler_timeout);
    if (session && timeout >= *session) {
      add("handler_timeout",
          to_text(timeout) + (s_.handler_timeout ? "" : " (the default)") + " must be below " + session_text(config_));
    }
    if (s_.dead_letter == topic_) {
      add("dead_letter", "is the source topic itself, so failed messages would loop forever; choose another topic");
    }
  }

  /// Reports settings that this mode has no use for, or cannot support. Settings that are absent may still come from
  /// the program.
  void combinations() {
    const Mode mode = s_.mode.value_or(Mode::at_least_once);
    if (s_.duplicates == DuplicatePolicy::raise && mode == Mode::at_least_once)
      add("duplicates",
          "raise needs stored ids, but mode at_least_once stores none; set the mode to transactional or leased");
    if (s_.duplicates == DuplicatePolicy::replay && mode == Mode::at_least_once)
      add("duplicates",
          "replay needs stored responses, but mode at_least_once stores none; set the mode to transactional or leased");
    if (s_.reply_topics && mode == Mode::at_least_once)
      add("reply_topics",
          "needs stored responses, but mode at_least_once stores none; set the mode to transactional or leased");
    if (s_.fingerprint == true && mode == Mode::at_least_once) {
      add("fingerprint",
          "needs stored ids, but mode at_least_once stores none; set the mode to transactional or leased");
    }
    if (numbers_records(mode)) {
      const std::string counts = "mode " + std::string(word_of(mode)) + " counts records and stores no ids; remove ";
      if (s_.message_id)
        add("message_id", "names the source of ids, but " + counts + "message_id, or use transactional");
      if (s_.fingerprint == true)
        add("fingerprint", "needs stored ids, but " + counts + "fingerprint, or use transactional");
      if (s_.keep_ids_for) add("keep_ids_for", "is the retention of ids, but " + counts + "keep_ids_for");
      if (s_.order && *s_.order != Order::partition)
        add("order", "must be partition: mode " + std::string(word_of(mode)) +
                         " counts every record below a settled record as settled");
    }
    const DurableRetry durable = s_.retry ? s_.retry->durable.value_or(DurableRetry::off) : DurableRetry::off;
    if (durable != DurableRetry::off) {
      if (mode != Mode::transactional)
        add("retry.durable",
            "stores failed messages by their ids, in the transaction of the handler, but the mode is " +
                std::string(word_of(mode)) + "; set the mode to transactional, or remove retry.durable");
      if (s_.message_id == "offset")
        add("retry.durable",
            "sends a failed message again with the same id, but message_id is offset, which changes then; take the id "
            "from the message, or remove retry.durable");
      if (durable == DurableRetry::later_messages_wait && s_.order == Order::none)
        add("retry.durable",
            "wait keeps the order of each key, but order is none; set order to key, or retry.durable to pass");
    }
    if (s_.request_window && mode != Mode::numbered)
      add("request_window", "applies to mode numbered only; set the mode to numbered, or remove request_window");
    const auto of_leases = [&](const char* key, bool set) {
      if (set && mode != Mode::leased)
        add(key, std::string("applies to mode leased only; set the mode to leased, or remove ") + key);
    };
    of_leases("lease", s_.lease.has_value());
    of_leases("unknown", s_.unknown.has_value());
    of_leases("while_running", s_.while_running.has_value());
    of_leases("store_down", s_.store_down == StoreDownPolicy::run);
  }

  /// Reports settings that are missing after code and configuration were merged: no other source can set them.
  void merged(RunBy run_by) {
    if (s_.duplicates == DuplicatePolicy::raise && run_by == RunBy::consumer && !s_.dead_letter) {
      add("duplicates",
          "raise makes a dead letter of each duplicate, but the topic has no dead_letter; set dead_letter, or set "
          "duplicates to skip");
    }
    if (s_.duplicates == DuplicatePolicy::replay && !s_.reply_topics)
      add("duplicates", "replay needs a topic for its responses; set reply_topics");
    if (run_by == RunBy::poll_loop && s_.store_down == StoreDownPolicy::run)
      add("store_down",
          "run applies to a Consumer only; a PollLoop throws StoreUnavailable to its caller instead; remove store_down");
    if (s_.limiter && !s_.limit)
      add("limiter", "names '" + *s_.limiter + "', but the topic has no limit; set limit too");
  }

 private:
  void add(const std::string& key, const std::string& problem) {
    problems_.push_back(config_.where("topics." + topic_ + "." + key) + ": " + problem);
  }

  void message_id() {
    if (!s_.message_id) return;
    const auto source = IdSource::parse(*s_.message_id);
    if (const auto* why = std::get_if<std::string>(&source)) add("message_id", *why);
  }

  void retry() {
    if (!s_.retry) return;
    const RetryPolicy all = s_.retry->over(RetryPolicy{});
    if (all.attempts < 1) {
      add("retry.attempts",
          "is " + std::to_string(all.attempts) + ", but must be at least 1: the first run counts as an attempt");
    }
    if (all.first.count() < 1) add("retry.backoff", "must begin at 1ms or more");
    if (all.cap < all.first) {
      add("retry.backoff",
          "has a longest wait of " + to_text(all.cap) + ", which is below its first wait of " + to_text(all.first));
    }
    if (all.cap > kLongestRetryDelay) {
      add("retry.backoff",
          "has a longest wait of " + to_text(all.cap) + ", but the longest one is " + to_text(kLongestRetryDelay));
    }
  }

  const Config& config_;
  const std::string& topic_;
  const TopicSettings& s_;
  Problems& problems_;
};

void check_postgres(const Config& config, Problems& problems) {
  if (!config.postgres) return;
  // A url that is set and wrong has a message of its own.
  if (config.postgres->url.empty() && !config.lines.contains("postgres.url")) {
    problems.push_back(config.where("postgres") +
                       ": the database's url is missing; set url in [postgres], or TURNSTILE_POSTGRES_URL");
  }
  const auto session = session_timeout(config);
  if (session && config.postgres->lock_timeout >= *session) {
    problems.push_back(config.where("postgres.lock_timeout") + ": " + to_text(config.postgres->lock_timeout) +
                       " must be below " + session_text(config));
  }
}

void check_consumer(const Config& config, Problems& problems) {
  const auto interval = kafka_ms(config, "max.poll.interval.ms").value_or(kDefaultMaxPollInterval);
  if (config.consumer.drain_timeout < interval) return;
  problems.push_back(config.where("consumer.drain_timeout") + ": " + to_text(config.consumer.drain_timeout) +
                     " must be below kafka.\"max.poll.interval.ms\" (" + to_text(interval) +
                     "); otherwise the group removes this member while it drains");
}

void check_kafka(const Config& config, Problems& problems) {
  const auto servers = config.kafka.find("bootstrap.servers");
  if (servers == config.kafka.end()) return;
  if (auto problem = check_servers(servers->second)) {
    problems.push_back(config.where("kafka.bootstrap.servers") + ": " + *problem);
  }
}

/// Without [limits] topic, the token log's name is made from the group's name. Kafka allows group names that it does
/// not allow for topics.
std::optional<std::string> check_token_log(const Config& config) {
  if (config.limits.over != "cluster" || !config.limits.topic.empty()) return std::nullopt;
  const std::string log = config.group() + ".tokens";
  if (!check_topic_name(log + ".snapshots")) return std::nullopt;
  return config.where("kafka.group.id") + ": the token log would be topic '" + log +
         "', and its snapshots would be in topic '" + log +
         ".snapshots', but Kafka does not allow these names (1 to 249 letters, digits, '.', '_' and '-'); "
         "name the log with [limits] topic, or choose another group.id";
}

void check_reserve(const Config& config, Problems& problems) {
  const LimitsSettings& limits = config.limits;
  if (limits.reserve == 0) return;
  if (limits.reserve_for == 0) {
    problems.push_back(config.where("limits.reserve") +
                       ": needs limits.reserve_for: the number of processes for which each limit sets a reserve aside");
    return;
  }
  const std::int64_t aside = std::int64_t{limits.reserve} * limits.reserve_for;
  for (const auto& [topic, settings] : config.topics) {
    if (!settings.limit || *settings.limit > aside) continue;
    problems.push_back(config.where("topics." + topic + ".limit") + ": a limit of " + std::to_string(*settings.limit) +
                       " leaves nothing to share: limits.reserve times limits.reserve_for sets " +
                       std::to_string(aside) + " permits aside; raise the limit, or lower the reserve");
  }
}

void check_shared_limiters(const Config& config, Problems& problems) {
  std::map<std::string, std::string> first_topic;  // by limiter
  for (const auto& [topic, settings] : config.topics) {
    if (!settings.limit) continue;
    const std::string limiter = settings.limiter.value_or(topic);
    const auto [first, is_first] = first_topic.try_emplace(limiter, topic);
    if (is_first) continue;
    const auto known = *config.topics.at(first->second).limit;
    if (known == *settings.limit) continue;
    problems.push_back(config.where("topics." + topic + ".limit") + ": limiter '" + limiter + "' has a limit of " +
                       std::to_string(*settings.limit) + " here, but of " + std::to_string(known) + " in topic '" +
                       first->second + "'; set the same limit in both, or name another limiter");
  }
}

/// Refuses two topics with the same handler, because their ids could not be distinguished.
void check_handlers(const Config& config, Problems& problems) {
  std::map<std::string, std::string> first_topic;  // by handler
  for (const auto& [topic, settings] : config.topics) {
    const auto [first, is_first] = first_topic.try_emplace(settings.handler.value_or(topic), topic);
    if (is_first) continue;
    problems.push_back(config.where("topics." + topic + ".handler") + ": handler '" + first->first +
                       "' also belongs to topic '" + first->second +
                       "', so the ids of the two topics could not be distinguished; give each topic its own handler");
  }
}

}  // namespace

std::vector<std::string> check_config(const Config& config) {
  Problems problems;
  check_kafka(config, problems);
  check_postgres(config, problems);
  check_consumer(config, problems);
  for (const auto& [topic, settings] : config.topics) {
    TopicCheck check(config, topic, settings, problems);
    check.relations();
    // If the configuration sets no mode, the program sets it. The combinations are then checked after both are merged.
    if (settings.mode) check.combinations();
  }
  const bool has_limit = std::any_of(config.topics.begin(), config.topics.end(),
                                     [](const auto& named) { return named.second.limit.has_value(); });
  if (has_limit) {
    if (auto problem = check_token_log(config)) problems.push_back(std::move(*problem));
  }
  check_reserve(config, problems);
  check_shared_limiters(config, problems);
  check_handlers(config, problems);
  return problems;
}

std::vector<std::string> check_topic(const Config& config, const std::string& topic, const TopicSettings& effective,
                                     RunBy run_by) {
  Problems problems;
  TopicCheck check(config, topic, effective, problems);
  check.values();
  check.relations();
  check.combinations();
  check.merged(run_by);
  const auto in_file = config.topics.find(topic);
  // Check_config() has then reported the problem.
  const bool is_in_file = in_file != config.topics.end() && in_file->second.limit;
  if (effective.limit && !is_in_file) {
    if (auto problem = check_token_log(config)) problems.push_back(std::move(*problem));
  }
  return problems;
}

std::vector<std::string> check_dead_letters(const std::map<std::string, std::string>& dead_letters) {
  Problems problems;
  std::set<std::string> seen;
  for (const auto& [begin, ignored] : dead_letters) {
    std::vector<std::string> path;
    std::string topic = begin;
    while (seen.insert(topic).second) {
      path.push_back(topic);
      const auto next = dead_letters.find(topic);
      if (next == dead_letters.end()) break;
      topic = next->second;
    }
    const auto back = std::find(path.begin(), path.end(), topic);
    // A topic that names itself as its dead letter topic has a message of its own.
    if (!dead_letters.contains(topic) || path.end() - back < 2) continue;
    std::string circle;
    for (auto it = back; it != path.end(); ++it) circle += *it + " -> ";
    problems.push_back(
        "dead_letter: these topics send their dead letters in a circle, so a failed message would loop forever: " +
        circle + topic + "; give one of these topics a dead letter topic that this program does not consume");
  }
  return problems;
}

}  // namespace turnstile::detail
