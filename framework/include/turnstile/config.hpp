#pragma once
// Configuration: TOML, overridden by the environment. All errors are reported at once, each with its file and line,
// and with a suggestion for a misspelt key. Secrets are never printed.
//
// Environment: TURNSTILE_<SECTION>_<KEY>, upper case, every other character an underscore:
//   TURNSTILE_POSTGRES_URL, TURNSTILE_KAFKA_BOOTSTRAP_SERVERS, TURNSTILE_TOPICS_PAYMENTS_LIMIT.
// An empty variable counts as not set. Of [kafka], the keys that the file names can be overridden, and those that say how
// to reach the brokers and as whom. Of [topics], the topics that have a section in the file, and those that the program
// gives to Consumer::topic() or PollLoop::topic(). A variable TURNSTILE_… that nothing reads is a warning at the start.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/settings.hpp"

namespace turnstile {

/// A text that is not for logs. Printing one gives "***".
class Secret {
 public:
  Secret() = default;
  /// Takes a text that is not to be printed.
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
  Secret url;                                     ///< a libpq URL or key=value text; may hold a password
  std::string schema = "turnstile";               ///< where the migrations put the tables; letters, digits, underscores
  int connections = 0;                            ///< most open at once; 0: one for each worker
  bool prepared_statements = true;                ///< off behind PgBouncer in transaction mode (hazard: pooled-session)
  std::chrono::milliseconds lock_timeout{5'000};  ///< longest wait for a rival's transaction (hazard: blocked-insert)
  std::chrono::milliseconds connect_timeout{5'000};  ///< longest wait for the server to answer a new connection
};

/// What a consumer does that cannot continue.
enum class HaltPolicy : std::uint8_t {
  end,      ///< leaves the group, and run() throws Halted: the process can be started again
  release,  ///< leaves the group, and stays: run() goes on, logs why again and again, and does nothing until stop()
};

/// `[consumer]`: threads, memory and times of one process.
struct ConsumerSettings {
  int workers = 0;              ///< threads that run handlers; 0: as many as the limits allow, 4 to 64
  std::size_t window = 10'000;  ///< most messages taken from one partition and not yet settled
  /// The most memory that they take, about, in bytes; librdkafka's queue (queued.max.messages.kbytes) comes on top of it.
  std::size_t window_bytes = std::size_t{16} << 20;
  /// How long running handlers may finish on revoke and on stop. Then their stop_token is set, and they have 2 s more.
  std::chrono::milliseconds drain_timeout{10'000};
  std::chrono::milliseconds commit_interval{1'000};  ///< offsets are committed this often, and on revoke and stop
  std::chrono::milliseconds stall_after{60'000};     ///< the watchdog's patience with one partition
  bool purge = true;                         ///< takes its turn at deleting ids that are older than anybody needs them
  HaltPolicy when_halted = HaltPolicy::end;  ///< `[consumer] when_halted`
};

/// Over what limits are counted, and how what a dead member held comes back.
struct LimitsSettings {
  std::string over = "cluster";  ///< cluster: all members of the domain, through Kafka; process
  std::string topic;             ///< the domain's token log; default: GROUP.tokens. Services that share it share limits
  std::chrono::milliseconds lease{10'000};  ///< a member that is silent for so long has lost its permits
  std::int32_t weight = 1;                  ///< shares of a limit are in proportion
  bool strict = false;  ///< permits of the dead come back at the lease's end, even if the database has fenced them
  /// Permits that each process may use of each limit while the token log is out of reach (0: it waits), and for how many processes
  /// they are set aside.
  std::int32_t reserve = 0, reserve_for = 0;  ///< See the reference of `[limits]`.
  /// So long after the token log was last in reach. The reserve of a process that died is another's only after this time.
  std::chrono::milliseconds reserve_time{3'600'000};
  std::int32_t most_limiters = 1'024;  ///< names of limits in the domain; the most that a living process says holds
  std::int32_t replication = 0;        ///< least replicas of the token log; 0: 3, or as many as there are brokers
};

/// `[log]`: what is written to stderr where the program gives no logger.
struct LogSettings {
  std::string level = "info";   ///< trace debug info warn error off
  std::string format = "text";  ///< text | json
};

/// What is wrong with one setting of [kafka]. The framework passes these settings on and does not know them.
struct KafkaProblem {
  std::string key;                   ///< of [kafka]
  std::string why;                   ///< a sentence that follows the setting's name; holds no secret
  std::vector<std::string> known{};  ///< when no setting has that name: the names that exist, to suggest one of them
};
/// Judges the settings of [kafka] without connecting.
using KafkaCheck = std::function<std::vector<KafkaProblem>(const std::map<std::string, std::string>& settings)>;

/// All settings: of the file, overridden by the environment.
class Config {
 public:
  /// Looks up a variable; nothing: it is not set.
  using Environment = std::function<std::optional<std::string>(std::string_view name)>;

  /// Reads a file, then the process's environment. Throws ConfigError with all that is wrong, also with what librdkafka
  /// says of [kafka]. Link turnstile::turnstile.
  static Config load(const std::filesystem::path& file);
  /// The same, with another check of [kafka], or none.
  static Config load(const std::filesystem::path& file, const KafkaCheck& kafka_check);
  /// The same from a text; `name` stands for the file in messages. `environment` looks up one variable, and is not kept: set
  /// the member of that name if it applies to topics that only the program names.
  static Config parse(std::string_view toml, std::string_view name, const Environment& environment = {},
                      const KafkaCheck& kafka_check = {});

  /// Passed to librdkafka key by key. "bootstrap.servers" is required, "group.id" defaults to "turnstile".
  std::map<std::string, std::string> kafka;
  /// Absent: no database; then every topic's mode must be none.
  std::optional<PostgresSettings> postgres;
  ConsumerSettings consumer;                    ///< `[consumer]`
  LimitsSettings limits;                        ///< `[limits]`
  LogSettings log;                              ///< `[log]`
  std::map<std::string, TopicSettings> topics;  ///< `[topics.NAME]`, by name

  /// The file that it came from, and the lines of the keys ("topics.payments.limit" -> 12; 0: from the environment), for
  /// later messages.
  std::string source;
  std::map<std::string, int> lines;  ///< The lines of the keys in the file; 0: from the environment.
  /// Looks up the variables of topics that only the program names; load() sets it. Empty: there are none.
  Environment environment;
  /// The names of the variables TURNSTILE_… that load() has found and that are not empty.
  std::vector<std::string> variables;
  /// "turnstile.toml:12: topics.payments.limit", "environment TURNSTILE_…: topics.payments.limit", or the key alone.
  [[nodiscard]] std::string where(const std::string& key) const;
  /// The consumer group: group.id, else "turnstile".
  [[nodiscard]] std::string group() const;
  /// What this process is called, with its host and pid, in logs and in `turnstile permits`: client.id, else the group.
  [[nodiscard]] std::string client() const;
};

}  // namespace turnstile
