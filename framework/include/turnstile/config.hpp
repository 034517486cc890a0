#pragma once
// Configuration: TOML, overridden by the environment. All errors are reported at once, each with its file and line, and
// with a suggestion for a misspelt key. Secrets are never printed.
//
// Environment: TURNSTILE_<SECTION>_<KEY>, upper case, every other character an underscore:
//   TURNSTILE_POSTGRES_URL, TURNSTILE_KAFKA_BOOTSTRAP_SERVERS, TURNSTILE_TOPICS_PAYMENTS_LIMIT.
// The variables OTEL_EXPORTER_OTLP_ENDPOINT, …_HEADERS and …_CERTIFICATE, and OTEL_SERVICE_NAME, apply to [tracing],
// where neither the file nor a variable TURNSTILE_TRACING_… sets it.
// An empty variable counts as not set. In [kafka], the environment can override the keys that the file names, and the
// keys for addresses and credentials. In [topics], it can override topics with a section in the file, and topics that
// the program gives to Consumer::topic() or PollLoop::topic(). A variable TURNSTILE_… that nothing reads is a warning
// at the start.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "turnstile/topic_settings.hpp"

namespace turnstile {

/// A text that must not appear in logs. Printing it gives "***".
class Secret {
 public:
  Secret() = default;
  /// Holds `value`, which is never printed.
  explicit Secret(std::string value) : value_(std::move(value)) {}
  /// The text itself. Do not log it.
  [[nodiscard]] const std::string& reveal() const noexcept { return value_; }
  /// Whether there is no text.
  [[nodiscard]] bool empty() const noexcept { return value_.empty(); }

 private:
  std::string value_;
};

/// `[postgres]`: the database.
struct PostgresSettings {
  Secret url{};                      ///< a libpq URL or key=value text; may hold a password
  std::string schema = "turnstile";  ///< the schema of the tables; letters, digits, underscores
  int connections = 0;               ///< the most open connections; 0: one for each worker
  bool prepared_statements = true;   ///< off behind PgBouncer in transaction mode (hazard: pooled-session)
  /// Longest wait for a concurrent transaction (hazard: blocked-insert).
  std::chrono::milliseconds lock_timeout{5'000};
  std::chrono::milliseconds connect_timeout{5'000};  ///< longest wait for the server to answer a new connection
};

/// What a consumer does when it cannot continue.
enum class HaltPolicy : std::uint8_t {
  end,      ///< it leaves the group, and run() throws Halted: the process can be restarted
  release,  ///< it leaves the group, and run() continues: it logs the reason at intervals, and waits for stop()
};

/// `[consumer]`: threads, memory and times of one process.
struct ConsumerSettings {
  int workers = 0;              ///< threads that run handlers; 0: as many as the limits allow, 4 to 64
  std::size_t window = 10'000;  ///< the most messages taken from a partition and not yet settled
  /// The approximate memory of these messages in bytes. librdkafka's queue (queued.max.messages.kbytes) is not
  /// included.
  std::size_t window_bytes = std::size_t{16} << 20;
  /// How long running handlers may continue after a revoke or a stop. Then their stop_token is set, and they have 2 s
  /// more.
  std::chrono::milliseconds drain_timeout{10'000};
  std::chrono::milliseconds commit_interval{1'000};  ///< offsets are committed this often, and on revoke and stop
  std::chrono::milliseconds stall_after{60'000};  ///< the watchdog reports a partition without progress after this time
  bool purge = true;                              ///< this process takes part in deleting ids that no process needs
  HaltPolicy when_halted = HaltPolicy::end;       ///< `[consumer] when_halted`
};

/// The scope of limits, and how the permits of a dead member are reclaimed.
struct LimitsSettings {
  std::string over = "cluster";  ///< cluster: all members of the domain, through Kafka; process
  std::string topic{};           ///< the domain's token log; default: GROUP.tokens. Services that share it share limits
  std::chrono::milliseconds lease{10'000};  ///< a member that is silent for this time loses its permits
  std::int32_t weight = 1;                  ///< the member's share of a limit is proportional to it

  /// Permits of a dead member return when its lease ends, even if the database has fenced it earlier.
  bool strict = false;
  /// `reserve`: the permits of each limit that a process may use while the token log is unavailable (0: it waits).
  /// `reserve_for`: the number of processes for which these are reserved.
  std::int32_t reserve = 0, reserve_for = 0;  ///< See the reference of `[limits]`.
  /// How long a process may use its reserve after the token log became unavailable. The reserve of a dead process goes
  /// to another process only after this time.
  std::chrono::milliseconds reserve_time{3'600'000};
  /// The most limiters in the domain; the highest value of any live process applies.
  std::int32_t most_limiters = 1'024;
  /// The least number of replicas of the token log; 0: 3, or the number of brokers that answer if it is lower, and an
  /// existing log with fewer is only a warning.
  std::int32_t replication = 0;
};

/// `[log]`: the log on stderr, if the program sets no logger.
struct LogSettings {
  std::string level = "info";   ///< trace debug info warn error off
  std::string format = "text";  ///< text | json
};

/// `[admin]`: the read-only endpoint with health, status and metrics.
struct AdminSettings {
  std::string listen{};  ///< HOST:PORT, with port 0 for any free port; empty: there is no endpoint
  /// The parts of `listen`.
  struct Address {
    std::string host;  ///< a name or an address, without the brackets of IPv6
    int port = 0;      ///< 0: any free port
  };
  /// Absent: `listen` is empty, or no HOST:PORT.
  [[nodiscard]] std::optional<Address> address() const;
};

/// `[tracing]`: where spans are sent, by OTLP over HTTP.
struct TracingSettings {
  std::string endpoint{};      ///< the collector's URL, without /v1/traces; empty: spans are sent nowhere
  Secret headers{};            ///< NAME=VALUE, separated by commas, with percent-encoded values: sent with each request
  double sample = 0.01;        ///< the share of the messages without a trace with which a trace begins
  std::string service_name{};  ///< `service.name` of the spans; empty: the process's client.id, else its group
  std::string ca_file{};       ///< for https: a PEM file with the certificates to trust; empty: those of the system
  /// The parts of `endpoint`.
  struct Target {
    bool is_https = false;  ///< whether the URL begins with https:
    std::string host;       ///< a name or an address, without the brackets of IPv6
    int port = 0;           ///< of the URL; else 80 or 443
    std::string path;       ///< of the request for spans, as in "/v1/traces"
  };
  /// Absent: `endpoint` is empty, or no such URL.
  [[nodiscard]] std::optional<Target> target() const;
  /// The pairs in `headers`, decoded.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> header_list() const;
};

/// A problem with a setting of [kafka]. The framework passes these settings on and does not know them.
struct KafkaProblem {
  std::string key;                   ///< of [kafka]
  std::string why;                   ///< a sentence that follows the setting's name; contains no secret
  std::vector<std::string> known{};  ///< if no setting has that name: the names that exist, to suggest one of them
};
/// Judges the settings of [kafka] without connecting.
using KafkaCheck = std::function<std::vector<KafkaProblem>(const std::map<std::string, std::string>& settings)>;

/// All settings of the file, overridden by the environment.
class Config {
 public:
  /// Looks up a variable. Absent: it is not set.
  using Environment = std::function<std::optional<std::string>(std::string_view name)>;

  /// Reads a file, then the process's environment. Throws ConfigError with all problems, also those that librdkafka
  /// reports for [kafka]. Link turnstile::turnstile.
  static Config load(const std::filesystem::path& file);
  /// The same, with another check of [kafka], or none.
  static Config load(const std::filesystem::path& file, const KafkaCheck& kafka_check);
  /// Reads a text instead. `name` replaces the file's name in error messages. `environment` looks up variables, and is
  /// not stored. Set the member `environment` if it applies to topics that only the program names.
  static Config parse(std::string_view toml, std::string_view name, const Environment& environment = {},
                      const KafkaCheck& kafka_check = {});

  /// Passed to librdkafka key by key. "bootstrap.servers" is required, "group.id" defaults to "turnstile".
  std::map<std::string, std::string> kafka;
  /// Absent: no database. Then the mode of every topic must be at_least_once.
  std::optional<PostgresSettings> postgres;
  ConsumerSettings consumer;                    ///< `[consumer]`
  LimitsSettings limits;                        ///< `[limits]`
  LogSettings log;                              ///< `[log]`
  AdminSettings admin;                          ///< `[admin]`
  TracingSettings tracing;                      ///< `[tracing]`
  std::map<std::string, TopicSettings> topics;  ///< `[topics.NAME]`, by name

  /// The file, for later messages.
  std::string source;
  std::map<std::string, int> lines;  ///< The line of each key ("topics.payments.limit" -> 12); 0: from the environment.
  /// Settings that a variable of another standard has set: "tracing.endpoint" -> "OTEL_EXPORTER_OTLP_ENDPOINT".
  std::map<std::string, std::string> other_variables;
  /// Looks up the variables of topics that only the program names. load() sets it. Empty: there are none.
  Environment environment;
  /// The names of the variables TURNSTILE_… that load() has found, without empty ones.
  std::vector<std::string> variables;
  /// "turnstile.toml:12: topics.payments.limit", "environment TURNSTILE_…: topics.payments.limit", or the key alone.
  [[nodiscard]] std::string where(const std::string& key) const;
  /// The consumer group: group.id, else "turnstile".
  [[nodiscard]] std::string group() const;
  /// The name of this process, with its host and pid, in logs and in `turnstile permits`: client.id, else the group.
  [[nodiscard]] std::string client() const;
};

}  // namespace turnstile
