#include "config/settings_table.hpp"

#include <array>

#include "config/codec.hpp"
#include "config/retry_codecs.hpp"
#include "config/setting_line.hpp"
#include "config/settings_codecs.hpp"
#include "message/names.hpp"
#include "message/reply.hpp"

namespace turnstile::detail {
namespace {

using codec::Checked;
using codec::Choice;
using codec::Duration;
using codec::Flag;
using codec::Number;
using namespace setting;

constexpr std::int64_t kHour = 3'600'000, kDay = 24 * kHour;
constexpr std::int64_t kMostThreads = 1'024;          // more than any process can use: a typing error
constexpr std::int64_t kMostConnections = 10'000;     // PostgreSQL's own max_connections is rarely in the thousands
constexpr std::int64_t kLargestResponse = 256 << 20;  // PostgreSQL's bytea ends at 1 GB, and rows are read as a whole

constexpr Words<HaltPolicy, 2> kHalted{{{"end", HaltPolicy::end}, {"release", HaltPolicy::release}}};
constexpr Words<std::string_view, 6> kLevels{
    {{"trace", "trace"}, {"debug", "debug"}, {"info", "info"}, {"warn", "warn"}, {"error", "error"}, {"off", "off"}}};
constexpr Words<std::string_view, 2> kFormats{{{"text", "text"}, {"json", "json"}}};
constexpr Words<std::string_view, 2> kOver{{{"cluster", "cluster"}, {"process", "process"}}};
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

/// A line that is no member of the section by itself.
template <class L, class Codec>
constexpr Setting<TopicSettings> special(std::string_view name, std::string_view fallback, std::string_view what) {
  return {name, fallback, {}, what, &L::read, &L::write, &L::take, &Codec::form};
}

}  // namespace

// --- the table ---

std::span<const Setting<PostgresSettings>> postgres_keys() {
  using S = PostgresSettings;
  static constexpr std::array kKeys{
      line<SecretText<check_postgres_url>, &S::url, S>(
          "url", {}, "required for every mode but at_least_once",
          "libpq's URL. Give passwords in the environment. If it names several hosts, Turnstile uses the one that accepts writes (`target_session_attrs=read-write`, unless the URL sets it)."),
      line<Checked<check_schema_name>, &S::schema, S>("schema", "\"turnstile\"", {},
                                                      "The schema that holds the tables."),
      line<Number<0, kMostConnections>, &S::connections, S>(
          "connections", "0", "0: one for each worker",
          "The largest number of connections that are open at once for handlers."),
      line<Flag, &S::prepared_statements, S>("prepared_statements", "true", {},
                                             "Set it to `false` behind PgBouncer in transaction mode."),
      line<Duration<1, kDay>, &S::lock_timeout, S>(
          "lock_timeout", "\"5s\"", {},
          "How long a statement waits for a lock; below Kafka's session timeout. A statement of Turnstile's own that is unanswered for `lock_timeout` plus twice `connect_timeout` counts as an outage. A handler's statement may be slower, as long as the server answers new connections."),
      line<Duration<1, kDay>, &S::connect_timeout, S>("connect_timeout", "\"5s\"", {},
                                                      "How long a new connection waits for the server."),
  };
  return kKeys;
}

std::span<const Setting<ConsumerSettings>> consumer_keys() {
  using S = ConsumerSettings;
  static constexpr std::array kKeys{
      line<Number<0, kMostThreads>, &S::workers, S>("workers", "0", "0: as many as the limits allow, from 4 to 64",
                                                    "Threads that run handlers."),
      line<Number<1>, &S::window, S>(
          "window", "10000", {},
          "The largest number of messages taken from one partition and not settled. A partition begins with 2,500, and takes twice as many as before when it ran dry."),
      line<Number<1>, &S::window_bytes, S>(
          "window_bytes", "16777216", {},
          "The approximate memory that these messages may take; headers count by samples. librdkafka's own queue comes on top: `queued.max.messages.kbytes`, which is 16 MiB for each partition here, and counts payloads only."),
      line<Duration<0>, &S::drain_timeout, S>(
          "drain_timeout", "\"10s\"", {},
          "How long running handlers may finish at a rebalance and at SIGTERM; below `max.poll.interval.ms`. Then their `stop_token` is set and they have 2 s more. The last calls to PostgreSQL may take 1 s after that. A process therefore ends up to 3 s after `drain_timeout`, or after a second signal, also while PostgreSQL hangs. Waits for Kafka have bounds of their own."),
      line<Duration<1>, &S::commit_interval, S>("commit_interval", "\"1s\"", {}, "How often offsets are committed."),
      line<Duration<1>, &S::stall_after, S>(
          "stall_after", "\"1m\"", {},
          "After how long the watchdog reports a partition that makes no progress, and what it waits for."),
      line<Flag, &S::purge, S>("purge", "true", {},
                               "This consumer takes its turn at deleting ids that nobody needs any more."),
      line<Choice<kHalted>, &S::when_halted, S>(
          "when_halted", "\"end\"", {},
          "What a halted consumer does. `end`: it leaves the group and `run()` throws `Halted`. `release`: it leaves the group, stays, and repeats the reason in its log."),
  };
  return kKeys;
}

std::span<const Setting<LimitsSettings>> limits_keys() {
  using S = LimitsSettings;
  static constexpr std::array kKeys{
      line<Choice<kOver>, &S::over, S>(
          "over", "\"cluster\"", {},
          "`cluster`: a limit counts over all processes that share the token log. `process`: each process counts for itself."),
      line<Checked<check_topic_name>, &S::topic, S>("topic", {}, "the consumer group's name and .tokens",
                                                    "The token log. Services that share it share limits."),
      line<Duration<500, kDay>, &S::lease, S>("lease", "\"10s\"", {},
                                              "After this time of silence a process has lost its permits."),
      line<Number<1, 1'000>, &S::weight, S>("weight", "1", {}, "Shares are in proportion to it."),
      line<Flag, &S::strict, S>(
          "strict", "false", {},
          "Permits of a dead consumer return only with its lease. Set it for limits that protect something outside PostgreSQL."),
      line<Number<0, 1'000'000>, &S::reserve, S>(
          "reserve", "0", "0: it waits",
          "Permits of each limit that a process may use while it cannot reach the token log."),
      line<Number<0, 1'000>, &S::reserve_for, S>("reserve_for", "0", "0: none",
                                                 "For how many processes the reserve is set aside."),
      line<Duration<1'000, 49 * kDay>, &S::reserve_time, S>(  // 32 bits of milliseconds
          "reserve_time", "\"1h\"", {},
          "How long after the log was last reachable a reserve may be used. The reserve of a dead process passes to another one after this time."),
      line<Number<1, 16'384>, &S::most_limiters, S>(
          "most_limiters", "1024", {},
          "The largest number of limit names on one token log, over all processes. The highest value of a live process is in effect. One name more is refused with an error. A name that no process uses is free again, unless an operator has set its limit."),
      line<Number<0, 100>, &S::replication, S>(
          "replication", "0", "0: 3, or as many as brokers answer",
          "The least number of replicas of the token log. A process does not start if the log has fewer. Without this setting it only warns if there could be more, up to 3."),
  };
  return kKeys;
}

std::span<const Setting<LogSettings>> log_keys() {
  using S = LogSettings;
  static constexpr std::array kKeys{
      line<Choice<kLevels>, &S::level, S>("level", "\"info\"", {}, "The lowest level that is logged."),
      line<Choice<kFormats>, &S::format, S>("format", "\"text\"", {}, "`json` for programs that read the log."),
  };
  return kKeys;
}

std::span<const Setting<AdminSettings>> admin_keys() {
  using S = AdminSettings;
  static constexpr std::array kKeys{
      line<Checked<check_listen>, &S::listen, S>(
          "listen", "\"\"", {},
          "HOST:PORT of the read-only endpoint with `/healthz`, `/readyz`, `/status` and `/metrics`, as in `127.0.0.1:9464`. Empty: there is none. Port 0: any free port. It has no access control: only the monitoring may reach it."),
  };
  return kKeys;
}

std::span<const Setting<TracingSettings>> tracing_keys() {
  using S = TracingSettings;
  static constexpr std::array kKeys{
      line<Checked<check_collector>, &S::endpoint, S>(
          "endpoint", "\"\"", {},
          "The URL of an OpenTelemetry collector that receives OTLP over HTTP, as in `http://127.0.0.1:4318`. Spans are sent to `/v1/traces` below it. Empty: they are sent nowhere. Without it, `OTEL_EXPORTER_OTLP_ENDPOINT` is used."),
      line<SecretText<check_headers>, &S::headers, S>(
          "headers", {}, "none",
          "Headers of each request, as in `authorization=Bearer%20abc,x-tenant=7`. Values are percent-encoded. They count as secrets: give them in the environment. Without it, `OTEL_EXPORTER_OTLP_HEADERS` is used."),
      line<Ratio, &S::sample, S>(
          "sample", "0.01", {},
          "The share of messages without a valid `traceparent` with which a trace begins. For other messages the sender has decided."),
      line<Checked<check_not_empty>, &S::service_name, S>(
          "service_name", {}, "the client.id, else the consumer group",
          "`service.name` of the spans. Without it, `OTEL_SERVICE_NAME` is used."),
      line<Checked<check_not_empty>, &S::ca_file, S>(
          "ca_file", {}, "the system's certificates",
          "For an endpoint with `https`: a PEM file with the certificates to trust. Without it, `OTEL_EXPORTER_OTLP_CERTIFICATE` is used."),
  };
  return kKeys;
}

std::span<const Setting<TopicSettings>> topic_keys() {
  using S = TopicSettings;
  static constexpr std::array kKeys{
      line<Checked<check_not_empty>, &S::handler, S>(
          "handler", {}, "the topic's name",
          "The scope of ids. Keep it when you rename the topic or the code, and keep the consumer group too. In modes `by_offset` and `numbered` the group cannot be renamed: a start under another group is refused."),
      line<Choice<kModes>, &S::mode, S>("mode", "\"at_least_once\"", {}, "How effects are made to happen once."),
      line<Choice<kOrders>, &S::order, S>(
          "order", "\"partition\"", {},
          "Which messages wait for each other: all of a partition, those with equal keys, or none."),
      line<Limit, &S::limit, S>("limit", {}, "no limit but the workers",
                                "How many handlers run at once, over all processes."),
      line<Checked<check_limiter>, &S::limiter, S>(
          "limiter", {}, "the topic's name",
          "The name under which they count, up to 255 bytes. Topics with one name share one limit."),
      line<Checked<check_message_id>, &S::message_id, S>(
          "message_id", {}, "header:message-id; none in modes by_offset and numbered",
          "Where a message's id comes from: `header:NAME`, `key`, `json:/pointer`, `cloudevents` or `offset`. Modes `by_offset` and `numbered` keep no ids. An id in JSON is a text or an integer; `7.0`, `1e3`, `true` and `null` are no ids (`missing_id`)."),
      line<Duration<1'000>, &S::keep_ids_for, S>(
          "keep_ids_for", {}, "a day longer than the topic can hold a record, and at least 8d",
          "How long ids are kept. It must be longer than the topic's `retention.ms`. If the topic keeps its records forever, ids are kept forever."),
      line<Duration<1>, &S::handler_timeout, S>(
          "handler_timeout", "\"30s\"", {},
          "After it the handler's `stop_token` is set. In modes `transactional`, `by_offset` and `numbered` it must be below `session.timeout.ms`, so a session timeout of 30 s or less needs a lower value."),
      special<Attempts, Attempts>(
          "retry.attempts", "5",
          "How often a message's handler may be started and fail by itself. Then the message is a dead letter."),
      special<BackoffLine, Backoff>(
          "retry.backoff", "\"100ms..30s\"",
          "The first and the longest wait between two attempts. It doubles each time, and a random part of up to half is taken off. At most `3650d`."),
      special<DurableLine, DurableLine::Word>(
          "retry.durable", "\"off\"",
          "Where a failed message waits for its next attempt. `off`: in the consumer's memory; the partition's offset waits. `wait` and `pass`: in PostgreSQL, so it can wait for days. Later messages with its key `wait` behind it, or `pass` it. Mode `transactional` only."),
      line<Number<1, 100>, &S::break_percent, S>(
          "break_percent", "50", {},
          "With `break_on(...)`: the circuit breaker opens when this part of the calls failed, in percent."),
      line<Number<1>, &S::break_least, S>("break_least", "20", {},
                                          "With `break_on(...)`: it does not open before this many calls."),
      line<Duration<100, kHour>, &S::break_window, S>("break_window", "\"10s\"", {},
                                                      "With `break_on(...)`: the time in which calls are counted."),
      line<Duration<100, kDay>, &S::break_for, S>(
          "break_for", "\"30s\"", {},
          "With `break_on(...)`: how long an open circuit breaker waits before messages run as probes."),
      line<Checked<check_dead_letter>, &S::dead_letter, S>(
          "dead_letter", {}, "a failing message is retried forever, and what cannot be retried is parked",
          "A topic for messages that failed permanently; `\"\"` is `NAME.dlq`."),
      line<Number<0>, &S::stop_after_dead, S>(
          "stop_after_dead", "100", {},
          "After this many dead letters in a row for one reason the partition stops; 0: never."),
      line<Number<1>, &S::batch, S>("batch", "500", {}, "The largest number of messages in one transaction."),
      line<Choice<kDuplicates>, &S::duplicates, S>(
          "duplicates", "\"skip\"", {},
          "What becomes of a duplicate. `skip`: nothing. `raise`: it is a dead letter. `replay`: its reply is sent again."),
      line<Checked<check_reply_topics>, &S::reply_topics, S>("reply_topics", {}, "responses are only kept",
                                                             "The topics that replies may go to, separated by commas."),
      line<Number<0, kLargestResponse>, &S::max_response, S>("max_response", "65536", {},
                                                             "The largest size of a response in bytes."),
      line<Duration<kShortestClaimLease.count()>, &S::lease, S>(
          "lease", "\"30s\"", {}, "Mode `leased`: the lease of a claim, renewed while its handler runs."),
      line<Choice<kUnknown>, &S::unknown, S>(
          "unknown", "\"park\"", {}, "Mode `leased`: what becomes of a message in doubt. `rerun`: it runs again."),
      line<Choice<kWhileRunning>, &S::while_running, S>(
          "while_running", "\"wait\"", {},
          "Mode `leased`: what becomes of a copy that arrives while the first one runs. `skip`: it is a duplicate. `retry`: it fails. A record that is delivered again while it runs always waits."),
      line<Choice<kTooOld>, &S::too_old, S>(
          "too_old", "\"park\"", {},
          "What becomes of a message that is older than the stored ids: it may have taken effect. `run`: for topics where old timestamps are no sign of old deliveries, as when history is imported."),
      line<Choice<kStoreDown>, &S::store_down, S>(
          "store_down", "\"wait\"", {},
          "Mode `leased`: `run` means that handlers go on unclaimed while PostgreSQL is unavailable."),
      line<Number<kLeastRequestWindow, kMostRequestWindow>, &S::request_window, S>(
          "request_window", "1024", {}, "Mode `numbered`: how many numbers back Turnstile distinguishes."),
      line<Flag, &S::fingerprint, S>("fingerprint", "false", {},
                                     "The same id with another payload becomes a dead letter (`mismatch`)."),
  };
  return kKeys;
}

const TopicSettings& topic_defaults() {
  static const TopicSettings kDefaults = defaults(topic_keys());
  return kDefaults;
}

std::string_view word_of(Mode mode) { return Choice<kModes>::word_of(mode); }
std::string_view word_of(Order order) { return Choice<kOrders>::word_of(order); }

}  // namespace turnstile::detail
