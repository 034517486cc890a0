#include "config/settings_table.hpp"

#include <array>

#include "config/addresses.hpp"
#include "config/codec.hpp"
#include "config/setting_line.hpp"
#include "message/names.hpp"

namespace turnstile::detail {
namespace {

using codec::Checked;
using codec::Choice;
using codec::Duration;
using codec::Flag;
using codec::Number;
using setting::line;
using setting::Words;

constexpr std::int64_t kHour = 3'600'000, kDay = 24 * kHour;
constexpr std::int64_t kMostThreads = 1'024;       // more than any process can use: a typing error
constexpr std::int64_t kMostConnections = 10'000;  // PostgreSQL's own max_connections is rarely in the thousands

struct Url {
  using Value = Secret;
  static Problem read(const ConfigValue& value, Value& into) {
    const auto* text = std::get_if<std::string>(&value.value);
    if (text == nullptr) return "must be a string in quotes";
    if (auto problem = check_postgres_url(*text)) return problem;
    into = Secret(*text);
    return std::nullopt;
  }
  static std::string write(const Value& value) { return value.empty() ? "" : codec::toml_text("***"); }
  static std::string form() { return "text"; }
};

constexpr Words<HaltPolicy, 2> kHalted{{{"end", HaltPolicy::end}, {"release", HaltPolicy::release}}};
constexpr Words<std::string_view, 6> kLevels{
    {{"trace", "trace"}, {"debug", "debug"}, {"info", "info"}, {"warn", "warn"}, {"error", "error"}, {"off", "off"}}};
constexpr Words<std::string_view, 2> kFormats{{{"text", "text"}, {"json", "json"}}};
constexpr Words<std::string_view, 2> kOver{{{"cluster", "cluster"}, {"process", "process"}}};

/// `otherwise` tells the meaning of a default that is 0 or empty. The struct of the section (turnstile/config.hpp)
/// repeats the default, for settings in code. The settings of topics are in settings_table_topics.cpp.
template <class Codec, auto Member, class Section>
constexpr Setting<Section> of(std::string_view name, std::string_view fallback, std::string_view otherwise,
                              std::string_view what) {
  return line<Codec, Member, Section>(name, fallback, otherwise, what);
}

}  // namespace

// --- the table ---

std::span<const Setting<PostgresSettings>> postgres_keys() {
  using S = PostgresSettings;
  static constexpr std::array kKeys{
      of<Url, &S::url, S>(
          "url", {}, "required for every mode but at_least_once",
          "libpq's URL. Give passwords in the environment. If it names several hosts, Turnstile uses the one that accepts writes (`target_session_attrs=read-write`, unless the URL sets it)."),
      of<Checked<check_schema_name>, &S::schema, S>("schema", "\"turnstile\"", {}, "The schema that holds the tables."),
      of<Number<0, kMostConnections>, &S::connections, S>(
          "connections", "0", "0: one for each worker",
          "The largest number of connections that are open at once for handlers."),
      of<Flag, &S::prepared_statements, S>("prepared_statements", "true", {},
                                           "Set it to `false` behind PgBouncer in transaction mode."),
      of<Duration<1>, &S::lock_timeout, S>(
          "lock_timeout", "\"5s\"", {},
          "How long a statement waits for a lock; below Kafka's session timeout. A statement of Turnstile's own that is unanswered for `lock_timeout` plus twice `connect_timeout` counts as an outage. A handler's statement may be slower, as long as the server answers new connections."),
      of<Duration<1>, &S::connect_timeout, S>("connect_timeout", "\"5s\"", {},
                                              "How long a new connection waits for the server."),
  };
  return kKeys;
}

std::span<const Setting<ConsumerSettings>> consumer_keys() {
  using S = ConsumerSettings;
  static constexpr std::array kKeys{
      of<Number<0, kMostThreads>, &S::workers, S>("workers", "0", "0: as many as the limits allow, from 4 to 64",
                                                  "Threads that run handlers."),
      of<Number<1>, &S::window, S>("window", "10000", {},
                                   "The largest number of messages taken from one partition and not settled."),
      of<Number<1>, &S::window_bytes, S>(
          "window_bytes", "16777216", {},
          "The approximate memory that these messages may take. librdkafka's own queue comes on top: `queued.max.messages.kbytes`, which is 16 MiB for each partition here."),
      of<Duration<0>, &S::drain_timeout, S>(
          "drain_timeout", "\"10s\"", {},
          "How long running handlers may finish at a rebalance and at SIGTERM; below `max.poll.interval.ms`. Then their `stop_token` is set and they have 2 s more. The last calls to PostgreSQL may take 1 s after that. A process therefore ends up to 3 s after `drain_timeout`, or after a second signal, also while PostgreSQL hangs. Waits for Kafka have bounds of their own."),
      of<Duration<1>, &S::commit_interval, S>("commit_interval", "\"1s\"", {}, "How often offsets are committed."),
      of<Duration<1>, &S::stall_after, S>(
          "stall_after", "\"1m\"", {},
          "After how long the watchdog reports a partition that makes no progress, and what it waits for."),
      of<Flag, &S::purge, S>("purge", "true", {},
                             "This consumer takes its turn at deleting ids that nobody needs any more."),
      of<Choice<kHalted>, &S::when_halted, S>(
          "when_halted", "\"end\"", {},
          "What a halted consumer does. `end`: it leaves the group and `run()` throws `Halted`. `release`: it leaves the group, stays, and repeats the reason in its log."),
  };
  return kKeys;
}

std::span<const Setting<LimitsSettings>> limits_keys() {
  using S = LimitsSettings;
  static constexpr std::array kKeys{
      of<Choice<kOver>, &S::over, S>(
          "over", "\"cluster\"", {},
          "`cluster`: a limit counts over all processes that share the token log. `process`: each process counts for itself."),
      of<Checked<check_topic_name>, &S::topic, S>("topic", {}, "the consumer group's name and .tokens",
                                                  "The token log. Services that share it share limits."),
      of<Duration<500, kDay>, &S::lease, S>("lease", "\"10s\"", {},
                                            "After this time of silence a process has lost its permits."),
      of<Number<1, 1'000>, &S::weight, S>("weight", "1", {}, "Shares are in proportion to it."),
      of<Flag, &S::strict, S>(
          "strict", "false", {},
          "Permits of a dead consumer return only with its lease. Set it for limits that protect something outside PostgreSQL."),
      of<Number<0, 1'000'000>, &S::reserve, S>(
          "reserve", "0", "0: it waits",
          "Permits of each limit that a process may use while it cannot reach the token log."),
      of<Number<0, 1'000>, &S::reserve_for, S>("reserve_for", "0", "0: none",
                                               "For how many processes the reserve is set aside."),
      of<Duration<1'000, 49 * kDay>, &S::reserve_time, S>(  // 32 bits of milliseconds
          "reserve_time", "\"1h\"", {},
          "How long after the log was last reachable a reserve may be used. The reserve of a dead process passes to another one after this time."),
      of<Number<1, 16'384>, &S::most_limiters, S>(
          "most_limiters", "1024", {},
          "The largest number of limit names on one token log, over all processes. The highest value of a live process is in effect. One name more is refused with an error. A name that no process uses is free again, unless an operator has set its limit."),
      of<Number<0, 100>, &S::replication, S>("replication", "0", "0: 3, or as many as there are brokers",
                                             "The least number of replicas of the token log."),
  };
  return kKeys;
}

std::span<const Setting<LogSettings>> log_keys() {
  using S = LogSettings;
  static constexpr std::array kKeys{
      of<Choice<kLevels>, &S::level, S>("level", "\"info\"", {}, "The lowest level that is logged."),
      of<Choice<kFormats>, &S::format, S>("format", "\"text\"", {}, "`json` for programs that read the log."),
  };
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

}  // namespace turnstile::detail
