// The composition root: the only place that knows both the framework and the real adapters.

#include <mutex>

#include "turnstile/config.hpp"
#include "turnstile/consumer.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/kafka/limiters.hpp"
#include "turnstile/kafka/look.hpp"
#include "turnstile/log.hpp"
#include "turnstile/poll_loop.hpp"
#include "turnstile/postgres/admin.hpp"
#include "turnstile/postgres/look.hpp"
#include "turnstile/postgres/store.hpp"

#if TURNSTILE_ADMIN
#include "turnstile/admin/server.hpp"
#include "turnstile/prometheus/metrics.hpp"
#endif

#if TURNSTILE_OTLP
#include "turnstile/otlp/tracer.hpp"
#endif

namespace turnstile {

namespace {

/// Joins the token domain when the first limiter is opened: a program without limits needs no token log.
class LazyDomain final : public ports::Limiters {
 public:
  LazyDomain(Config config, std::shared_ptr<spdlog::logger> logger)
      : config_(std::move(config)), logger_(std::move(logger)) {}

  std::shared_ptr<ports::Limiter> open(const std::string& name, std::int64_t limit) override {
    const std::lock_guard lock(mutex_);
    if (!domain_) join();
    return domain_->open(name, limit);
  }
  std::shared_ptr<ports::Limiter> open_for_partitions(const std::string& name, std::int64_t limit) override {
    const std::lock_guard lock(mutex_);
    if (!domain_) join();
    return domain_->open_for_partitions(name, limit);
  }
  void on_claimed(const std::string& group, const std::string& store, const TopicPartition& at, Epoch epoch) override {
    if (const auto domain = joined()) domain->on_claimed(group, store, at, epoch);
  }
  void wait_until_claimed() override {
    if (const auto domain = joined()) domain->wait_until_claimed();
  }
  void on_revoked(const std::string& group, std::span<const TopicPartition> partitions) override {
    if (const auto domain = joined()) domain->on_revoked(group, partitions);
  }
  LimitersHealth health() const override {
    const auto domain = joined();
    return domain ? domain->health() : LimitersHealth{};
  }
  std::optional<ports::TokenLogState> log() const override {
    const auto domain = joined();
    return domain ? domain->log() : std::nullopt;
  }

 private:
  std::shared_ptr<TokenDomain> joined() const {
    const std::lock_guard lock(mutex_);
    return domain_;
  }
  void join() {
    const LimitsSettings& limits = config_.limits;
    const TokenSettings tokens{.client = config_.client(),
                               .lease = limits.lease,
                               .weight = static_cast<std::uint32_t>(limits.weight),
                               .strict = limits.strict,
                               .reserve = static_cast<std::uint32_t>(limits.reserve),
                               .reserve_for = static_cast<std::uint32_t>(limits.reserve_for),
                               .reserve_time = limits.reserve_time,
                               .most_limiters = static_cast<std::uint32_t>(limits.most_limiters)};
    const std::string topic = limits.topic.empty() ? config_.group() + ".tokens" : limits.topic;
    domain_ = kafka::open_limiters(config_.kafka, {.name = topic, .replication = limits.replication}, tokens, logger_);
  }

  const Config config_;
  const std::shared_ptr<spdlog::logger> logger_;
  mutable std::mutex mutex_;
  std::shared_ptr<TokenDomain> domain_;
};

/// Metrics, and the endpoint that shows them.
void add_admin([[maybe_unused]] const AdminSettings::Address& address, [[maybe_unused]] Backends& backends) {
#if TURNSTILE_ADMIN
  const auto metrics = std::make_shared<metrics::PrometheusMetrics>();
  backends.observers.push_back(metrics);
  backends.serve = [address, metrics, logger = backends.logger](const AdminView& view) {
    return std::make_shared<admin::Server>(
        address, admin::Server::Parts{.view = view, .metrics = [metrics] { return metrics::to_text(*metrics); }},
        logger);
  };
#else
  throw ConfigError(
      {"admin.listen: this Turnstile was built without the admin endpoint; build it with TURNSTILE_ADMIN=ON"});
#endif
}

/// Sends spans to a collector.
void add_tracer(const Config& config, [[maybe_unused]] Backends& backends) {
#if TURNSTILE_OTLP
  backends.tracer = std::make_shared<otlp::OtlpTracer>(config.tracing, otlp::resource_of(config), backends.logger);
#else
  throw ConfigError({config.where("tracing.endpoint") +
                     ": this Turnstile was built without the export of spans; build it with TURNSTILE_OTLP=ON"});
#endif
}

}  // namespace

namespace {

/// How long a person waits.
constexpr std::chrono::milliseconds kPatience{3'000};

/// The topics of the consumers that use this database.
std::vector<std::string> topics_in_database(const Config& config) {
  if (!config.postgres || config.postgres->url.empty()) return {};
  PostgresSettings settings = *config.postgres;
  settings.connect_timeout = std::min(settings.connect_timeout, kPatience);
  try {
    return postgres::Admin(settings).topics();
  } catch (const std::exception&) {  // postgres::look_at() reports it
    return {};
  }
}

}  // namespace

void look_at_system(const Config& config, Findings& findings) {
  kafka::look_at(config, topics_in_database(config), findings);
  postgres::look_at(config, findings);
}

Backends connect(const Config& config, std::shared_ptr<spdlog::logger> logger) {
  Backends backends;
  if (!logger) logger = make_redirectable_logger(config.log);
  backends.logger = logger;
  backends.look = look_at_system;
  if (!config.kafka.empty()) {
    backends.broker = kafka::open_broker(config.kafka, logger);
    if (config.limits.over == "cluster") backends.limiters = std::make_shared<LazyDomain>(config, std::move(logger));
  }
  if (config.postgres) backends.store = postgres::open_store(*config.postgres);
  if (const auto address = config.admin.address()) add_admin(*address, backends);
  if (config.tracing.target()) add_tracer(config, backends);
  return backends;
}

Config Config::load(const std::filesystem::path& file) { return load(file, kafka::check_settings); }

Consumer::Consumer(Config config) : Consumer(config, connect(config)) {}

PollLoop::PollLoop(Config config) : PollLoop(config, connect(config)) {}

}  // namespace turnstile
