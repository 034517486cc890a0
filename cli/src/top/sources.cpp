#include "sources.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "domain.hpp"
#include "operator_name.hpp"
#include "settings.hpp"
#include "turnstile/error.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/kafka/limiters.hpp"
#include "turnstile/postgres/store.hpp"

namespace turnstile::cli::top {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// How long a request may stay unanswered.
constexpr milliseconds kPatience{3'000};
/// How often topics are looked up again: new partitions are rare, a missing topic may be created soon. A look-up opens
/// a client of its own.
constexpr seconds kCountAgain{60}, kMissingAgain{5};
constexpr seconds kOpenLogAgain{5};
constexpr milliseconds kChangeTimeout{15'000};

}  // namespace

// --- Kafka ---

KafkaSource::KafkaSource(const Config& config, const std::vector<std::string>& named,
                         std::function<void(const std::string&)> on_progress)
    : kafka_(config.kafka),
      broker_(kafka::open_broker(kafka_, nullptr)),
      consumer_(broker_->open_consumer()),
      on_progress_(std::move(on_progress)) {
  consumer_->hurry_when([] { return true; });  // it has nothing to commit, and no partitions to give back
  for (const auto& topic : named) topics_.try_emplace(topic);
}

KafkaSource::~KafkaSource() { consumer_->close(); }

void KafkaSource::also(const std::vector<std::string>& topics) {
  for (const auto& topic : topics) topics_.try_emplace(topic, Topic{.named = false});
}

void KafkaSource::count_partitions() {
  const auto now = Clock::now();
  if (topics_.empty() && now >= greet_again_) {
    kafka::check_connection(kafka_, kPatience);
    greet_again_ = now + kCountAgain;
  }
  std::int64_t looked_up = 0;
  for (auto& [name, topic] : topics_) {
    ++looked_up;
    if (now < topic.look_again) continue;
    const auto info = broker_->describe(name, kPatience);
    topic.exists = info.has_value();
    topic.partitions = info ? info->partitions : 0;
    topic.begins.resize(static_cast<std::size_t>(topic.partitions));
    topic.look_again = now + (info ? kCountAgain : kMissingAgain);
    on_progress_(fmt::format("{} of {} topics were looked up", number(looked_up),
                             number(static_cast<std::int64_t>(topics_.size()))));
  }
}

KafkaSample KafkaSource::look() {
  consumer_->poll(milliseconds{0});  // reports a refused login
  count_partitions();
  std::vector<TopicPartition> all;
  for (const auto& [name, topic] : topics_) {
    for (std::int32_t p = 0; p < topic.partitions; ++p) all.push_back({name, p});
  }
  if (all.empty()) {
    KafkaSample sample;
    for (const auto& [name, topic] : topics_) {
      if (topic.named) sample.topics.push_back({.topic = name, .exists = false});
    }
    return sample;
  }
  const auto ends = consumer_->log_ends(all, kPatience);  // also what an open transaction hides from the group
  if (std::none_of(ends.begin(), ends.end(), [](const auto& end) { return end.has_value(); })) {
    for (auto& [name, topic] : topics_) topic.look_again = {};  // were they deleted? This also asks for the reason
    count_partitions();
    throw BrokerError(Code::kafka_unavailable,
                      fmt::format("no broker reports where the partitions end (waited {})", duration(kPatience)));
  }
  on_progress_("the ends of the partitions are known");
  const auto committed = consumer_->committed(all, kPatience);
  on_progress_("the committed offsets are known");
  KafkaSample sample;
  std::size_t at = 0;
  for (auto& [name, topic] : topics_) {
    TopicSample told{.topic = name, .exists = topic.exists};
    bool any_end = topic.partitions == 0, any_committed = false;
    for (std::int32_t p = 0; p < topic.partitions; ++p, ++at) {
      const auto offset = committed[at] ? std::optional(committed[at]->offset) : std::nullopt;
      told.partitions.push_back({.committed = offset, .begin = {}, .end = ends[at]});
      any_end |= ends[at].has_value();
      any_committed |= offset.has_value();
    }
    if (!any_end) topic.look_again = std::min(topic.look_again, Clock::now() + kMissingAgain);
    if (!topic.named && !any_committed) continue;
    find_begins(name, topic, told);
    sample.topics.push_back(std::move(told));
  }
  return sample;
}

/// The first offset changes seldom, so it is asked for once.
void KafkaSource::find_begins(const std::string& name, Topic& topic, TopicSample& sample) {
  const auto is_needed = [](const PartitionSample& partition) { return !partition.committed && partition.end; };
  std::vector<TopicPartition> asked;
  for (std::size_t p = 0; p < sample.partitions.size(); ++p) {
    if (is_needed(sample.partitions[p]) && !topic.begins[p]) asked.push_back({name, static_cast<std::int32_t>(p)});
  }
  if (!asked.empty()) {
    const auto bounds = consumer_->bounds(asked, kPatience);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      if (bounds[i]) topic.begins[static_cast<std::size_t>(asked[i].partition)] = bounds[i]->first;
    }
    on_progress_(fmt::format("the first offsets are asked for, of topic {}", one_line(name, 249)));
  }
  for (std::size_t p = 0; p < sample.partitions.size(); ++p) {
    if (is_needed(sample.partitions[p])) sample.partitions[p].begin = topic.begins[p];
  }
}

// --- the token log ---

TokenSource::TokenSource(const Config& config, const std::optional<std::string>& topic)
    : kafka_(config.kafka),
      topic_(topic                         ? *topic
             : config.limits.topic.empty() ? config.group() + ".tokens"
                                           : config.limits.topic),
      counts_over_cluster_(config.limits.over == "cluster" || topic) {}

TokenReader& TokenSource::reader() {
  if (reader_) return *reader_;
  if (!counts_over_cluster_) throw NothingThere("[limits] over = \"process\": each process counts by itself");
  const auto now = Clock::now();
  auto log = now < open_again_ ? nullptr : kafka::find_token_log(kafka_, topic_, nullptr);
  if (!log) {
    if (now >= open_again_) open_again_ = now + kOpenLogAgain;
    throw NothingThere(fmt::format("there is no token log {}: no limits", topic_));
  }
  auto fresh = std::make_unique<TokenReader>(std::move(log), kafka::parts_of_token_log(kafka_, topic_));
  fresh->start(fresh->end());
  reader_ = std::move(fresh);
  return *reader_;
}

TokenSample TokenSource::look(const std::function<bool()>& stop) {
  try {
    TokenReader& from = reader();
    bool any_record = false;
    while (!stop()) {
      const auto next = from.peek(milliseconds{0});
      if (!next) break;
      from.read_to(next->position);
      any_record = true;
    }
    if (!any_record && !stop()) from.require_available();
    from.refresh();
    return {.log = from.name(), .permits = from.permits()};
  } catch (const TokenLogBroken&) {
    reader_.reset();  // as after records were deleted that it had not read: a newer snapshot has them
    throw;
  }
}

std::string TokenSource::change(const LimitChange& change) {
  TokenReader& from = reader();
  if (!from.set_limit(change.limiter, change.limit, kChangeTimeout, operator_name())) {
    return fmt::format("{}: not read back within {}, may still take effect{}", one_line(change.limiter, 60),
                       duration(kChangeTimeout), from.why_not_written().empty() ? "" : ": " + from.why_not_written());
  }
  for (const auto& entry : from.permits().limiters) {
    if (entry.limiter != change.limiter) continue;
    return fmt::format("{}: limit {} in effect, {}", one_line(change.limiter, 60), number(entry.limit),
                       entry.set ? "set by an operator" : "by configuration");
  }
  return fmt::format("{}: no longer set", one_line(change.limiter, 60));
}

// --- PostgreSQL ---

DatabaseSource::DatabaseSource(PostgresSettings settings) : settings_(std::move(settings)) {}

void DatabaseSource::open() {
  if (admin_) return;
  if (!store_) store_ = postgres::open_store(settings_);
  store_->check_schema();
  admin_.emplace(settings_);
}

DatabaseSample DatabaseSource::look() {
  open();
  DatabaseSample sample{.claims = store_->claims()->count({}), .outbox = store_->outbox()->lag()};
  sample.pauses = store_->pauses()->active();
  for (const auto& dead : admin_->dead_by_topic()) {
    sample.dead.push_back({.group = dead.group, .topic = dead.topic, .count = dead.count});
  }
  return sample;
}

std::vector<std::string> DatabaseSource::topics() {
  open();
  return admin_->topics();
}

}  // namespace turnstile::cli::top
