// The settings of [topics.NAME].

#include <array>
#include <limits>
#include <stdexcept>
#include <utility>

#include "config/check.hpp"
#include "config/codec.hpp"
#include "config/setting_line.hpp"
#include "config/settings_table.hpp"
#include "message/message_id.hpp"
#include "message/names.hpp"
#include "message/reply.hpp"

namespace turnstile::detail {
namespace {

using codec::Checked;
using codec::Choice;
using codec::Duration;
using codec::Flag;
using codec::Number;
using setting::line;
using setting::Words;
using std::chrono::milliseconds;

// The bounds of the token log (tokens/line.hpp, tokens/state.hpp).
constexpr std::int64_t kHighestLimit = 1'000'000'000;
constexpr std::size_t kLongestLimiter = 255;
constexpr std::int64_t kLargestResponse = 256 << 20;  // PostgreSQL's bytea ends at 1 GB, and rows are read as a whole

Problem check_not_empty(const std::string& text) { return text.empty() ? Problem("must not be empty") : std::nullopt; }

Problem check_limiter(const std::string& name) {
  if (auto problem = check_not_empty(name)) return problem;
  if (name.size() <= kLongestLimiter) return std::nullopt;
  return "has " + std::to_string(name.size()) + " bytes; the name of a limiter has at most " +
         std::to_string(kLongestLimiter);
}

Problem check_message_id(const std::string& text) {
  auto source = IdSource::parse(text);
  if (auto* why = std::get_if<std::string>(&source)) return std::move(*why);
  return std::nullopt;
}

/// An empty text is allowed, and means NAME.dlq.
Problem check_dead_letter(const std::string& topic) { return topic.empty() ? std::nullopt : check_topic_name(topic); }

Problem check_reply_topics(const std::string& text) {
  const auto topics = split_names(text);
  if (topics.empty()) return "names no topic; list the topics that replies may go to, separated by commas";
  for (const std::string& topic : topics) {
    if (auto problem = check_topic_name(topic)) return "'" + topic + "': " + *problem;
  }
  return std::nullopt;
}

struct Limit : Number<1, kHighestLimit> {
  static Problem read(const ConfigValue& value, Value& into) {
    const auto* number = std::get_if<std::int64_t>(&value.value);
    const auto* text = std::get_if<std::string>(&value.value);
    if ((number != nullptr && *number == 0) || (value.from_environment && text != nullptr && *text == "0")) {
      return "is 0, so no handler could run; set at least 1, or remove limit: then only the number of workers limits the topic";
    }
    if (number != nullptr && *number < 0) {
      return "is " + std::to_string(*number) + ", but must be at least 1: it is the largest number of running handlers";
    }
    return Number::read(value, into);
  }
};

struct Backoff {
  using Value = std::pair<milliseconds, milliseconds>;
  static Problem read(const ConfigValue& value, Value& into) { return read_range(value, into.first, into.second); }
  static std::string write(const Value& value) {
    return codec::toml_text(to_text(value.first) + ".." + to_text(value.second));
  }
  static std::string form() { return "two durations"; }
};

constexpr Words<Mode, 5> kModes{{{"transactional", Mode::transactional},
                                 {"leased", Mode::leased},
                                 {"by_offset", Mode::by_offset},
                                 {"numbered", Mode::numbered},
                                 {"at_least_once", Mode::at_least_once}}};
constexpr Words<Order, 3> kOrders{{{"partition", Order::partition}, {"key", Order::key}, {"none", Order::none}}};
constexpr Words<DuplicatePolicy, 3> kDuplicates{
    {{"skip", DuplicatePolicy::skip}, {"raise", DuplicatePolicy::raise}, {"replay", DuplicatePolicy::replay}}};
constexpr Words<UnknownPolicy, 2> kUnknown{{{"park", UnknownPolicy::park}, {"rerun", UnknownPolicy::rerun}}};
constexpr Words<RunningPolicy, 3> kWhileRunning{
    {{"wait", RunningPolicy::wait}, {"skip", RunningPolicy::skip}, {"retry", RunningPolicy::retry}}};
constexpr Words<HorizonPolicy, 2> kTooOld{{{"park", HorizonPolicy::park}, {"run", HorizonPolicy::run}}};
constexpr Words<StoreDownPolicy, 2> kStoreDown{{{"wait", StoreDownPolicy::wait}, {"run", StoreDownPolicy::run}}};

// --- lines of the table ---

/// A line of [topics.NAME]. topic() gives a fixed default; topic_or() describes the value in effect without one.
template <class Codec, auto Member>
constexpr Setting<TopicSettings> topic(std::string_view name, std::string_view fallback, std::string_view what) {
  return line<Codec, Member, TopicSettings>(name, fallback, {}, what);
}
template <class Codec, auto Member>
constexpr Setting<TopicSettings> topic_or(std::string_view name, std::string_view otherwise, std::string_view what) {
  return line<Codec, Member, TopicSettings>(name, {}, otherwise, what);
}

RetrySettings& retry_of(TopicSettings& settings) { return settings.retry ? *settings.retry : settings.retry.emplace(); }

struct Attempts {
  static Problem read(const ConfigValue& value, TopicSettings& into) {
    std::int64_t attempts = 0;
    if (auto problem = turnstile::detail::read(value, 1, std::numeric_limits<int>::max(), attempts)) return problem;
    retry_of(into).attempts = static_cast<int>(attempts);
    return std::nullopt;
  }
  static std::optional<std::string> write(const TopicSettings& from) {
    if (!from.retry || !from.retry->attempts) return std::nullopt;
    return std::to_string(*from.retry->attempts);
  }
  static void take(TopicSettings& into, const TopicSettings& over) {
    if (over.retry && over.retry->attempts) retry_of(into).attempts = over.retry->attempts;
  }
  static std::string form() { return "number from 1"; }
};

struct BackoffLine {
  static Problem read(const ConfigValue& value, TopicSettings& into) {
    Backoff::Value range;
    if (auto problem = Backoff::read(value, range)) return problem;
    RetrySettings& retry = retry_of(into);
    retry.first = range.first;
    retry.cap = range.second;
    return std::nullopt;
  }
  static std::optional<std::string> write(const TopicSettings& from) {
    if (!from.retry || !from.retry->first || !from.retry->cap) return std::nullopt;
    return Backoff::write({*from.retry->first, *from.retry->cap});
  }
  static void take(TopicSettings& into, const TopicSettings& over) {
    if (!over.retry || (!over.retry->first && !over.retry->cap)) return;
    RetrySettings& retry = retry_of(into);
    if (over.retry->first) retry.first = over.retry->first;
    if (over.retry->cap) retry.cap = over.retry->cap;
  }
};

template <class L, class Codec>
constexpr Setting<TopicSettings> special(std::string_view name, std::string_view fallback, std::string_view what) {
  return {name, fallback, {}, what, &L::read, &L::write, &L::take, &Codec::form};
}

}  // namespace

// --- the table ---

std::span<const Setting<TopicSettings>> topic_keys() {
  using S = TopicSettings;
  static constexpr std::array kKeys{
      topic_or<Checked<check_not_empty>, &S::handler>(
          "handler", "the topic's name",
          "The scope of ids. Keep it when you rename the topic or the code, and keep the consumer group too. In modes `by_offset` and `numbered` the group cannot be renamed: a start under another group is refused."),
      topic<Choice<kModes>, &S::mode>("mode", "\"at_least_once\"", "How effects are made to happen once."),
      topic<Choice<kOrders>, &S::order>(
          "order", "\"partition\"",
          "Which messages wait for each other: all of a partition, those with equal keys, or none."),
      topic_or<Limit, &S::limit>("limit", "no limit but the workers",
                                 "How many handlers run at once, over all processes."),
      topic_or<Checked<check_limiter>, &S::limiter>(
          "limiter", "the topic's name",
          "The name under which they count, up to 255 bytes. Topics with one name share one limit."),
      topic_or<Checked<check_message_id>, &S::message_id>(
          "message_id", "header:message-id; none in modes by_offset and numbered",
          "Where a message's id comes from: `header:NAME`, `key`, `json:/pointer`, `cloudevents` or `offset`. Modes `by_offset` and `numbered` keep no ids. An id in JSON is a text or an integer; `7.0`, `1e3`, `true` and `null` are no ids (`missing_id`)."),
      topic_or<Duration<1'000>, &S::keep_ids_for>(
          "keep_ids_for", "a day longer than the topic can hold a record, and at least 8d",
          "How long ids are kept. It must be longer than the topic's `retention.ms`. If the topic keeps its records for ever, ids are kept for ever."),
      topic<Duration<1>, &S::handler_timeout>(
          "handler_timeout", "\"30s\"",
          "After it the handler's `stop_token` is set. In modes `transactional`, `by_offset` and `numbered` it must be below `session.timeout.ms`, so a session timeout of 30 s or less needs a lower value."),
      special<Attempts, Attempts>(
          "retry.attempts", "5",
          "How often a message's handler may be started and fail by itself. Then the message is a dead letter."),
      special<BackoffLine, Backoff>(
          "retry.backoff", "\"100ms..30s\"",
          "The first and the longest wait between two attempts. It doubles each time, and a random part of up to half is taken off."),
      topic_or<Checked<check_dead_letter>, &S::dead_letter>(
          "dead_letter", "a failing message is retried for ever, and what cannot be retried is parked",
          "A topic for messages that failed permanently; `\"\"` is `NAME.dlq`."),
      topic<Number<0>, &S::stop_after_dead>(
          "stop_after_dead", "100",
          "After this many dead letters in a row for one reason the partition stops; 0: never."),
      topic<Number<1>, &S::batch>("batch", "500", "The largest number of messages in one transaction."),
      topic<Choice<kDuplicates>, &S::duplicates>(
          "duplicates", "\"skip\"",
          "What becomes of a duplicate. `skip`: nothing. `raise`: it is a dead letter. `replay`: its reply is sent again."),
      topic_or<Checked<check_reply_topics>, &S::reply_topics>(
          "reply_topics", "responses are only kept", "The topics that replies may go to, separated by commas."),
      topic<Number<0, kLargestResponse>, &S::max_response>("max_response", "65536",
                                                           "The largest size of a response in bytes."),
      topic<Duration<kShortestClaimLease.count()>, &S::lease>(
          "lease", "\"30s\"", "Mode `leased`: the lease of a claim, renewed while its handler runs."),
      topic<Choice<kUnknown>, &S::unknown>(
          "unknown", "\"park\"", "Mode `leased`: what becomes of a message in doubt. `rerun`: it runs again."),
      topic<Choice<kWhileRunning>, &S::while_running>(
          "while_running", "\"wait\"",
          "Mode `leased`: what becomes of a copy that arrives while the first one runs. `skip`: it is a duplicate. `retry`: it fails. A record that is delivered again while it runs always waits."),
      topic<Choice<kTooOld>, &S::too_old>(
          "too_old", "\"park\"",
          "What becomes of a message that is older than the stored ids: it may have taken effect. `run`: for topics where old timestamps are no sign of old deliveries, as when history is imported."),
      topic<Choice<kStoreDown>, &S::store_down>(
          "store_down", "\"wait\"",
          "Mode `leased`: `run` means that handlers go on unclaimed while PostgreSQL is unavailable."),
      topic<Number<kLeastRequestWindow, kMostRequestWindow>, &S::request_window>(
          "request_window", "1024", "Mode `numbered`: how many numbers back Turnstile distinguishes."),
      topic<Flag, &S::fingerprint>("fingerprint", "false",
                                   "The same id with another payload becomes a dead letter (`mismatch`)."),
  };
  return kKeys;
}

const TopicSettings& topic_defaults() {
  static const TopicSettings defaults = [] {
    TopicSettings settings;
    for (const auto& setting : topic_keys()) {
      if (setting.fallback.empty()) continue;
      if (auto why = setting.read(toml_value(setting.fallback), settings))
        throw std::logic_error("the default of topics.NAME." + std::string(setting.name) + ", " +
                               std::string(setting.fallback) + ": " + *why);
    }
    return settings;
  }();
  return defaults;
}

std::string_view word_of(Mode mode) { return Choice<kModes>::word_of(mode); }
std::string_view word_of(Order order) { return Choice<kOrders>::word_of(order); }

}  // namespace turnstile::detail
