#pragma once
// The servers that `turnstile top` asks. Each source keeps its connections open, and belongs to one thread.

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "keys.hpp"
#include "samples.hpp"
#include "turnstile/config.hpp"
#include "turnstile/ports/broker.hpp"
#include "turnstile/ports/store.hpp"
#include "turnstile/postgres/admin.hpp"
#include "turnstile/token_reader.hpp"

namespace turnstile::cli::top {

/// Why a source has nothing to show, although nothing failed.
struct NothingThere : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The offsets of topics, by a consumer that never joins its group.
class KafkaSource {
 public:
  /// Does not connect yet. `named`: topics that are shown even if the group has committed nothing in them. `on_progress`
  /// gets, after each answer of a broker, what is known.
  KafkaSource(const Config& config, const std::vector<std::string>& named,
              std::function<void(const std::string&)> on_progress);
  ~KafkaSource();

  /// Topics that the database knows. They are shown once the group has committed an offset in them.
  void also(const std::vector<std::string>& topics);
  /// Asks for the ends and the committed offsets of all partitions at once. Throws BrokerError.
  KafkaSample look();

 private:
  using Clock = std::chrono::steady_clock;
  struct Topic {
    bool named = true;
    bool exists = true;
    std::int32_t partitions = 0;
    Clock::time_point look_again{};               ///< when its number of partitions is asked for
    std::vector<std::optional<Offset>> begins{};  ///< of partitions without a committed offset
  };
  void count_partitions();
  void find_begins(const std::string& name, Topic& topic, TopicSample& sample);

  const std::map<std::string, std::string> kafka_;  ///< the settings of [kafka]
  std::shared_ptr<ports::Broker> broker_;
  std::unique_ptr<ports::BrokerConsumer> consumer_;
  const std::function<void(const std::string&)> on_progress_;
  std::map<std::string, Topic> topics_;
  Clock::time_point greet_again_{};
};

/// The token log, read as it grows.
class TokenSource {
 public:
  /// `topic`: absent: as the configuration has it.
  TokenSource(const Config& config, const std::optional<std::string>& topic);
  /// Reads what was written since the last call, until `stop` is true. Throws NothingThere, and BrokerError.
  TokenSample look(const std::function<bool()>& stop);
  /// As `turnstile limits set` and `unset`. Returns the result for people; throws as look().
  std::string change(const LimitChange& change);

 private:
  using Clock = std::chrono::steady_clock;
  TokenReader& reader();

  const std::map<std::string, std::string> kafka_;
  const std::string topic_;
  const bool counts_over_cluster_;
  std::unique_ptr<TokenReader> reader_;
  Clock::time_point open_again_{};
};

/// Claims, the outbox and dead letters.
class DatabaseSource {
 public:
  explicit DatabaseSource(PostgresSettings settings);
  /// Throws StoreUnavailable, StoreBusy, SchemaError and SqlError.
  DatabaseSample look();
  /// Topics of which consumers have claimed partitions.
  std::vector<std::string> topics();

 private:
  void open();

  PostgresSettings settings_;
  std::shared_ptr<ports::Store> store_;
  std::optional<postgres::Admin> admin_;
};

}  // namespace turnstile::cli::top
