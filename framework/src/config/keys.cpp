#include "config/keys.hpp"

#include <array>
#include <limits>

#include "config/check.hpp"
#include "config/duration.hpp"
#include "message/message_id.hpp"
#include "message/names.hpp"
#include "message/reply.hpp"

namespace turnstile {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kAnyNumber = std::numeric_limits<std::int64_t>::max();
// What the token log takes (tokens/event.hpp, tokens/state.hpp).
constexpr std::int64_t kHighestLimit = 1'000'000'000;
constexpr std::size_t kLongestLimiter = 255;
constexpr milliseconds kShortestLease{500}, longest_lease = std::chrono::hours(24);
constexpr milliseconds kLongestReserveTime = std::chrono::hours(24 * 49);  // 32 bits of milliseconds
constexpr std::int64_t kMostThreads = 1'024;          // more than any one process has use for: a slip of the keyboard
constexpr std::int64_t kLargestResponse = 256 << 20;  // PostgreSQL's bytea ends at 1 GB, and its rows are read whole
constexpr std::int64_t kMostConnections = 10'000;     // PostgreSQL's own max_connections is rarely in the thousands

template <class Number>
Problem read_number(const ConfigValue& value, std::int64_t least, std::int64_t most, Number& into) {
  std::int64_t number = 0;
  if (auto problem = read(value, least, most, number)) return problem;
  into = static_cast<Number>(number);
  return std::nullopt;
}

/// Reads into `into` only what was read well.
template <class T, class... Bounds>
Problem read_optional(const ConfigValue& value, std::optional<T>& into, Bounds... bounds) {
  T read_value{};
  if (auto problem = read(value, bounds..., read_value)) return problem;
  into = std::move(read_value);
  return std::nullopt;
}

Problem read_non_empty(const ConfigValue& value, std::optional<std::string>& into) {
  std::string text;
  if (auto problem = read(value, text)) return problem;
  if (text.empty()) return "must not be empty";
  into = std::move(text);
  return std::nullopt;
}

Problem read_url(const ConfigValue& value, Secret& into) {
  const auto* text = std::get_if<std::string>(&value.value);
  if (text == nullptr) return "must be a text in quotes";
  if (auto problem = check_postgres_url(*text)) return problem;
  into = Secret(*text);
  return std::nullopt;
}

Problem read_schema(const ConfigValue& value, std::string& into) {
  std::string name;
  if (auto problem = read(value, name)) return problem;
  if (auto problem = check_schema_name(name)) return problem;
  into = std::move(name);
  return std::nullopt;
}

template <class T, std::size_t N>
Problem read_optional_choice(const ConfigValue& value, const std::pair<std::string_view, T> (&choices)[N],
                             std::optional<T>& into) {
  T choice{};
  if (auto problem = read_choice<T>(value, choices, choice)) return problem;
  into = choice;
  return std::nullopt;
}

constexpr std::pair<std::string_view, Mode> kModes[] = {{"transactional", Mode::transactional},
                                                        {"leased", Mode::leased},
                                                        {"sequence", Mode::sequence},
                                                        {"none", Mode::none}};
constexpr std::pair<std::string_view, Order> kOrders[] = {
    {"partition", Order::partition}, {"key", Order::key}, {"none", Order::none}};
constexpr std::pair<std::string_view, DuplicatePolicy> kDuplicates[] = {
    {"skip", DuplicatePolicy::skip}, {"raise", DuplicatePolicy::raise}, {"replay", DuplicatePolicy::replay}};
constexpr std::pair<std::string_view, UnknownPolicy> kUnknown[] = {{"park", UnknownPolicy::park},
                                                                   {"rerun", UnknownPolicy::rerun}};
constexpr std::pair<std::string_view, RunningPolicy> kWhileRunning[] = {
    {"wait", RunningPolicy::wait}, {"skip", RunningPolicy::skip}, {"retry", RunningPolicy::retry}};
constexpr std::pair<std::string_view, HorizonPolicy> kTooOld[] = {{"park", HorizonPolicy::park},
                                                                  {"run", HorizonPolicy::run}};
constexpr std::pair<std::string_view, StoreDownPolicy> kStoreDown[] = {{"wait", StoreDownPolicy::wait},
                                                                       {"run", StoreDownPolicy::run}};

constexpr std::pair<std::string_view, HaltPolicy> kHalted[] = {{"end", HaltPolicy::end},
                                                               {"release", HaltPolicy::release}};

Problem read_between(const ConfigValue& value, milliseconds least, milliseconds most, milliseconds& into) {
  milliseconds duration{};
  if (auto problem = read(value, least, duration)) return problem;
  if (duration > most) return "must be at most " + to_text(most) + ", not " + to_text(duration);
  into = duration;
  return std::nullopt;
}

Problem read_topic(const ConfigValue& value, std::string& into) {
  std::string text;
  if (auto problem = read(value, text)) return problem;
  if (auto problem = check_topic_name(text)) return problem;
  into = std::move(text);
  return std::nullopt;
}

Problem read_limiter(const ConfigValue& value, std::optional<std::string>& into) {
  std::optional<std::string> name;
  if (auto problem = read_non_empty(value, name)) return problem;
  if (name->size() > kLongestLimiter) {
    return "has " + std::to_string(name->size()) + " bytes; a limiter's name has at most " +
           std::to_string(kLongestLimiter);
  }
  into = std::move(name);
  return std::nullopt;
}

Problem read_limit(const ConfigValue& value, std::optional<std::int64_t>& into) {
  const auto* number = std::get_if<std::int64_t>(&value.value);
  const auto* text = std::get_if<std::string>(&value.value);
  if ((number != nullptr && *number == 0) || (value.from_environment && text != nullptr && *text == "0")) {
    return "is 0, which would let nothing run; a limit is at least 1, and without one only the workers bound the topic";
  }
  if (number != nullptr && *number < 0) {
    return "is " + std::to_string(*number) + "; a limit is the number of handlers that may run at once, at least 1";
  }
  return read_optional(value, into, std::int64_t{1}, kHighestLimit);
}

Problem read_message_id(const ConfigValue& value, std::optional<std::string>& into) {
  std::string text;
  if (auto problem = read(value, text)) return problem;
  auto source = IdSource::parse(text);
  if (auto* why = std::get_if<std::string>(&source)) return std::move(*why);
  into = std::move(text);
  return std::nullopt;
}

Problem read_keep_ids_for(const ConfigValue& value, std::optional<std::chrono::seconds>& into) {
  milliseconds duration{};
  if (auto problem = read(value, milliseconds(1'000), duration)) return problem;
  into = std::chrono::floor<std::chrono::seconds>(duration);
  return std::nullopt;
}

Problem read_dead_letter(const ConfigValue& value, std::optional<std::string>& into) {
  std::string topic;
  if (auto problem = read(value, topic)) return problem;
  if (!topic.empty()) {
    if (auto problem = check_topic_name(topic)) return problem;
  }
  into = std::move(topic);
  return std::nullopt;
}

Problem read_reply_topics(const ConfigValue& value, std::optional<std::string>& into) {
  std::string text;
  if (auto problem = read(value, text)) return problem;
  const auto topics = split_names(text);
  if (topics.empty()) return "names no topic; write the topics that replies may go to, separated by commas";
  for (const std::string& topic : topics) {
    if (auto problem = check_topic_name(topic)) return "'" + topic + "': " + *problem;
  }
  into = std::move(text);
  return std::nullopt;
}

RetrySettings& retry_of(TopicSettings& settings) {
  if (!settings.retry) settings.retry.emplace();
  return *settings.retry;
}

Problem read_attempts(const ConfigValue& value, TopicSettings& into) {
  int attempts = 0;
  if (auto problem = read_number(value, 1, std::numeric_limits<int>::max(), attempts)) return problem;
  retry_of(into).attempts = attempts;
  return std::nullopt;
}

Problem read_backoff(const ConfigValue& value, TopicSettings& into) {
  milliseconds first{}, cap{};
  if (auto problem = read_range(value, first, cap)) return problem;
  retry_of(into).first = first;
  retry_of(into).cap = cap;
  return std::nullopt;
}

Problem read_level(const ConfigValue& value, std::string& into) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> choices{
      {{"trace", "trace"}, {"debug", "debug"}, {"info", "info"}, {"warn", "warn"}, {"error", "error"}, {"off", "off"}}};
  std::string_view level;
  if (auto problem = read_choice<std::string_view>(value, choices, level)) return problem;
  into = level;
  return std::nullopt;
}

Problem read_format(const ConfigValue& value, std::string& into) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> choices{{{"text", "text"}, {"json", "json"}}};
  std::string_view format;
  if (auto problem = read_choice<std::string_view>(value, choices, format)) return problem;
  into = format;
  return std::nullopt;
}

Problem read_over(const ConfigValue& value, std::string& into) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> choices{
      {{"cluster", "cluster"}, {"process", "process"}}};
  std::string_view over;
  if (auto problem = read_choice<std::string_view>(value, choices, over)) return problem;
  into = over;
  return std::nullopt;
}

/// A Keep goes out four times a lease, and must come back in time.

using V = const ConfigValue&;

}  // namespace

std::span<const Setting<PostgresSettings>> postgres_keys() {
  static constexpr std::array<Setting<PostgresSettings>, 6> kKeys{{
      {"url", [](V v, PostgresSettings& s) { return read_url(v, s.url); }},
      {"schema", [](V v, PostgresSettings& s) { return read_schema(v, s.schema); }},
      {"connections", [](V v, PostgresSettings& s) { return read_number(v, 0, kMostConnections, s.connections); }},
      {"prepared_statements", [](V v, PostgresSettings& s) { return read(v, s.prepared_statements); }},
      {"lock_timeout", [](V v, PostgresSettings& s) { return read(v, milliseconds(1), s.lock_timeout); }},
      {"connect_timeout", [](V v, PostgresSettings& s) { return read(v, milliseconds(1), s.connect_timeout); }},
  }};
  return kKeys;
}

std::span<const Setting<ConsumerSettings>> consumer_keys() {
  static constexpr std::array<Setting<ConsumerSettings>, 8> kKeys{{
      {"workers", [](V v, ConsumerSettings& s) { return read_number(v, 0, kMostThreads, s.workers); }},
      {"window", [](V v, ConsumerSettings& s) { return read_number(v, 1, kAnyNumber, s.window); }},
      {"window_bytes", [](V v, ConsumerSettings& s) { return read_number(v, 1, kAnyNumber, s.window_bytes); }},
      {"drain_timeout", [](V v, ConsumerSettings& s) { return read(v, milliseconds(0), s.drain_timeout); }},
      {"commit_interval", [](V v, ConsumerSettings& s) { return read(v, milliseconds(1), s.commit_interval); }},
      {"stall_after", [](V v, ConsumerSettings& s) { return read(v, milliseconds(1), s.stall_after); }},
      {"purge", [](V v, ConsumerSettings& s) { return read(v, s.purge); }},
      {"when_halted", [](V v, ConsumerSettings& s) { return read_choice<HaltPolicy>(v, kHalted, s.when_halted); }},
  }};
  return kKeys;
}

std::span<const Setting<LimitsSettings>> limits_keys() {
  static constexpr std::array<Setting<LimitsSettings>, 10> kKeys{{
      {"over", [](V v, LimitsSettings& s) { return read_over(v, s.over); }},
      {"topic", [](V v, LimitsSettings& s) { return read_topic(v, s.topic); }},
      {"lease", [](V v, LimitsSettings& s) { return read_between(v, kShortestLease, longest_lease, s.lease); }},
      {"weight", [](V v, LimitsSettings& s) { return read_number(v, 1, 1'000, s.weight); }},
      {"strict", [](V v, LimitsSettings& s) { return read(v, s.strict); }},
      {"reserve", [](V v, LimitsSettings& s) { return read_number(v, 0, 1'000'000, s.reserve); }},
      {"reserve_for", [](V v, LimitsSettings& s) { return read_number(v, 0, 1'000, s.reserve_for); }},
      {"reserve_time",
       [](V v, LimitsSettings& s) {
         return read_between(v, milliseconds(1'000), kLongestReserveTime, s.reserve_time);
       }},
      {"most_limiters", [](V v, LimitsSettings& s) { return read_number(v, 1, 16'384, s.most_limiters); }},
      {"replication", [](V v, LimitsSettings& s) { return read_number(v, 0, 100, s.replication); }},
  }};
  return kKeys;
}

std::span<const Setting<LogSettings>> log_keys() {
  static constexpr std::array<Setting<LogSettings>, 2> kKeys{{
      {"level", [](V v, LogSettings& s) { return read_level(v, s.level); }},
      {"format", [](V v, LogSettings& s) { return read_format(v, s.format); }},
  }};
  return kKeys;
}

std::span<const Setting<TopicSettings>> topic_keys() {
  static constexpr std::array<Setting<TopicSettings>, 23> kKeys{{
      {"handler", [](V v, TopicSettings& s) { return read_non_empty(v, s.handler); }},
      {"mode", [](V v, TopicSettings& s) { return read_optional_choice(v, kModes, s.mode); }},
      {"order", [](V v, TopicSettings& s) { return read_optional_choice(v, kOrders, s.order); }},
      {"limit", [](V v, TopicSettings& s) { return read_limit(v, s.limit); }},
      {"limiter", [](V v, TopicSettings& s) { return read_limiter(v, s.limiter); }},
      {"message_id", [](V v, TopicSettings& s) { return read_message_id(v, s.message_id); }},
      {"keep_ids_for", [](V v, TopicSettings& s) { return read_keep_ids_for(v, s.keep_ids_for); }},
      {"handler_timeout", [](V v, TopicSettings& s) { return read_optional(v, s.handler_timeout, milliseconds(1)); }},
      {"retry.attempts", read_attempts},
      {"retry.backoff", read_backoff},
      {"dead_letter", [](V v, TopicSettings& s) { return read_dead_letter(v, s.dead_letter); }},
      {"stop_after_dead",
       [](V v, TopicSettings& s) { return read_optional(v, s.stop_after_dead, std::int64_t{0}, kAnyNumber); }},
      {"batch", [](V v, TopicSettings& s) { return read_optional(v, s.batch, std::int64_t{1}, kAnyNumber); }},
      {"duplicates", [](V v, TopicSettings& s) { return read_optional_choice(v, kDuplicates, s.duplicates); }},
      {"reply_topics", [](V v, TopicSettings& s) { return read_reply_topics(v, s.reply_topics); }},
      {"max_response",
       [](V v, TopicSettings& s) { return read_optional(v, s.max_response, std::int64_t{0}, kLargestResponse); }},
      {"lease", [](V v, TopicSettings& s) { return read_optional(v, s.lease, kShortestClaimLease); }},
      {"unknown", [](V v, TopicSettings& s) { return read_optional_choice(v, kUnknown, s.unknown); }},
      {"while_running", [](V v, TopicSettings& s) { return read_optional_choice(v, kWhileRunning, s.while_running); }},
      {"too_old", [](V v, TopicSettings& s) { return read_optional_choice(v, kTooOld, s.too_old); }},
      {"store_down", [](V v, TopicSettings& s) { return read_optional_choice(v, kStoreDown, s.store_down); }},
      {"request_window",
       [](V v, TopicSettings& s) {
         return read_optional(v, s.request_window, kLeastRequestWindow, kMostRequestWindow);
       }},
      {"fingerprint", [](V v, TopicSettings& s) { return read_optional(v, s.fingerprint); }},
  }};
  return kKeys;
}

std::span<const std::string_view> kafka_environment_keys() {
  static constexpr std::array<std::string_view, 28> kKeys{"auto.offset.reset",
                                                          "bootstrap.servers",
                                                          "broker.address.family",
                                                          "client.id",
                                                          "client.rack",
                                                          "debug",
                                                          "group.id",
                                                          "group.instance.id",
                                                          "max.poll.interval.ms",
                                                          "sasl.kerberos.keytab",
                                                          "sasl.kerberos.principal",
                                                          "sasl.kerberos.service.name",
                                                          "sasl.mechanism",
                                                          "sasl.mechanisms",
                                                          "sasl.oauthbearer.config",
                                                          "sasl.password",
                                                          "sasl.username",
                                                          "security.protocol",
                                                          "session.timeout.ms",
                                                          "ssl.ca.location",
                                                          "ssl.ca.pem",
                                                          "ssl.certificate.location",
                                                          "ssl.certificate.pem",
                                                          "ssl.endpoint.identification.algorithm",
                                                          "ssl.key.location",
                                                          "ssl.key.password",
                                                          "ssl.key.pem",
                                                          "ssl.keystore.password"};
  return kKeys;
}

}  // namespace turnstile
