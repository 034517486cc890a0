#include "gauges.hpp"

#include <chrono>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace turnstile::metrics {

namespace {

using ::prometheus::ClientMetric;
using ::prometheus::MetricFamily;
using ::prometheus::MetricType;
using Labels = std::initializer_list<std::pair<std::string_view, std::string>>;

/// A metric with its values.
class Series {
 public:
  Series(std::vector<MetricFamily>& to, std::string name, std::string help, MetricType type = MetricType::Gauge)
      : to_(to), family_{.name = std::move(name), .help = std::move(help), .type = type, .metric = {}} {}
  ~Series() {
    if (!family_.metric.empty()) to_.push_back(std::move(family_));
  }
  Series(const Series&) = delete;
  Series& operator=(const Series&) = delete;

  Series& add(double value, Labels labels = {}) {
    ClientMetric metric;
    for (const auto& [name, text] : labels) metric.label.push_back({std::string(name), text});
    (family_.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    family_.metric.push_back(std::move(metric));
    return *this;
  }

 private:
  std::vector<MetricFamily>& to_;
  MetricFamily family_;
};

/// A gauge of each partition. `value` returns nothing if it is unknown.
void each_partition(const Status& status, std::vector<MetricFamily>& to, const char* name, const char* help,
                    const std::function<std::optional<double>(const PartitionStatus&)>& value) {
  Series series(to, name, help);
  for (const PartitionStatus& partition : status.partitions) {
    if (const auto known = value(partition))
      series.add(*known, {{"topic", partition.at.topic}, {"partition", std::to_string(partition.at.partition)}});
  }
}

void each_limiter(const Status& status, std::vector<MetricFamily>& to, const char* name, const char* help,
                  std::int64_t ports::LimiterState::*value) {
  Series series(to, name, help);
  for (const LimiterStatus& limiter : status.limiters)
    series.add(static_cast<double>(limiter.state.*value), {{"limiter", limiter.name}});
}

void add_health(const Status& status, std::vector<MetricFamily>& to) {
  const Health& health = status.health;
  Series(to, "turnstile_live", "1: the consumer can go on. 0: it is halted, and only a restart helps.")
      .add(health.is_live() ? 1 : 0);
  Series(to, "turnstile_ready", "1: the consumer is a member of its group and does its work.")
      .add(health.is_ready() ? 1 : 0);
  Series(to, "turnstile_partitions", "Partitions that this process owns.")
      .add(static_cast<double>(status.partitions.size()));
  if (status.store_available) {
    Series(to, "turnstile_store_available", "1: PostgreSQL could be used when it was used last.")
        .add(*status.store_available ? 1 : 0);
  }
}

void add_partitions(const Status& status, std::vector<MetricFamily>& to) {
  each_partition(status, to, "turnstile_partition_lag_messages",
                 "Offsets between the position, below which all messages are settled, and the end of the partition.",
                 [](const PartitionStatus& p) -> std::optional<double> {
                   if (const auto lag = p.lag()) return static_cast<double>(*lag);
                   return std::nullopt;
                 });
  each_partition(status, to, "turnstile_partition_lag_seconds",
                 "Age of the oldest message that was read and is not settled, by its timestamp; 0 without a lag.",
                 [](const PartitionStatus& p) -> std::optional<double> {
                   if (p.behind) return seconds(*p.behind);
                   return std::nullopt;
                 });
  each_partition(status, to, "turnstile_partition_in_flight_messages", "Messages that were read and are not settled.",
                 [](const PartitionStatus& p) { return static_cast<double>(p.in_flight); });
  each_partition(status, to, "turnstile_partition_running_messages", "Messages that a worker has.",
                 [](const PartitionStatus& p) { return static_cast<double>(p.running); });
  each_partition(status, to, "turnstile_partition_retrying_messages", "Messages that wait for their next attempt.",
                 [](const PartitionStatus& p) { return static_cast<double>(p.retrying); });
  each_partition(status, to, "turnstile_partition_claimed",
                 "1: its messages may run. 0: it is not claimed in the database, or another process owns it.",
                 [](const PartitionStatus& p) {
                   const bool is =
                       p.state == PartitionStatus::State::running || p.state == PartitionStatus::State::draining;
                   return is ? 1.0 : 0.0;
                 });
  each_partition(status, to, "turnstile_partition_paused",
                 "1: an operator has paused it, or its topic. Paused keys do not count.",
                 [](const PartitionStatus& p) { return p.paused ? 1.0 : 0.0; });
  {
    Series breakers(to, "turnstile_handler_breaker_open",
                    "1: too many calls of the handler failed, and its messages wait, except for probes.");
    for (const BreakerStatus& breaker : status.breakers)
      breakers.add(breaker.is_open ? 1 : 0, {{"topic", breaker.topic}});
  }
  std::set<TopicPartition> stalled;
  for (const PartitionProblem& problem : status.health.problems) stalled.insert(problem.at);
  each_partition(status, to, "turnstile_partition_stalled",
                 "1: it makes no progress, for longer than consumer.stall_after or until a person acts.",
                 [&](const PartitionStatus& p) { return stalled.contains(p.at) ? 1.0 : 0.0; });
  double longest = 0;
  for (const RunningHandler& handler : status.running) longest = std::max(longest, seconds(handler.took));
  Series(to, "turnstile_handlers_running", "Handlers that run now.").add(static_cast<double>(status.running.size()));
  Series(to, "turnstile_handler_longest_running_seconds", "How long the oldest of these has been running.")
      .add(longest);
}

void add_permits(const Status& status, std::vector<MetricFamily>& to) {
  using State = ports::LimiterState;
  each_limiter(status, to, "turnstile_limiter_limit_permits", "The limit in effect, over all processes; 0: paused.",
               &State::limit);
  each_limiter(status, to, "turnstile_limiter_held_permits", "Permits that this process has.", &State::held);
  each_limiter(status, to, "turnstile_limiter_in_use_permits", "Permits that this process uses.", &State::in_use);
  each_limiter(status, to, "turnstile_limiter_share_permits",
               "Permits that this process is entitled to while others want some too.", &State::share);
  each_limiter(status, to, "turnstile_limiter_waiting_permits", "Permits that this process waits for.",
               &State::waiting);
  if (!status.token_log) return;
  const ports::TokenLogState& log = *status.token_log;
  Series(to, "turnstile_token_log_available",
         "1: this process is a member of the domain and reads back what it writes.")
      .add(log.available ? 1 : 0);
  Series(to, "turnstile_token_log_lease_left_seconds", "Until nothing starts any more unless the log is read back.")
      .add(seconds(log.lease_left));
  if (log.unread) {
    Series(to, "turnstile_token_log_unread_records", "Records of the log that are known and were not read yet.")
        .add(static_cast<double>(*log.unread));
  }
  Series(to, "turnstile_token_log_epochs_total", "How often writing to the log failed, and a new epoch began.",
         MetricType::Counter)
      .add(static_cast<double>(log.epochs));
}

void add_spans(const Status& status, std::vector<MetricFamily>& to) {
  if (!status.spans) return;
  Series(to, "turnstile_spans_exported_total", "Spans that the collector has accepted.", MetricType::Counter)
      .add(static_cast<double>(status.spans->exported));
  Series(to, "turnstile_spans_dropped_total",
         "Spans that were lost: the queue was full, or the collector did not accept them in time.", MetricType::Counter)
      .add(static_cast<double>(status.spans->dropped));
  Series(to, "turnstile_spans_waiting", "Spans that are still to be sent.")
      .add(static_cast<double>(status.spans->waiting));
}

void add_store(const Status& status, std::vector<MetricFamily>& to) {
  {
    Series horizon(to, "turnstile_ids_stored_since_timestamp_seconds",
                   "Ids of the handler that were stored before this time may be deleted.");
    for (const StoredIds& ids : status.ids) {
      if (ids.all_since) horizon.add(seconds(ids.all_since->time_since_epoch()), {{"handler", ids.handler}});
    }
  }
  if (status.outbox) {
    Series(to, "turnstile_outbox_waiting_messages", "Messages in the outbox of the database that are to be sent.")
        .add(static_cast<double>(status.outbox->waiting));
    Series(to, "turnstile_outbox_oldest_seconds", "How long the oldest of them has waited.")
        .add(seconds(status.outbox->oldest));
    Series(to, "turnstile_outbox_refused_messages", "Messages in the outbox that the broker will never accept.")
        .add(static_cast<double>(status.outbox->refused));
    Series(to, "turnstile_outbox_scheduled_messages", "Published messages that are not due yet.")
        .add(static_cast<double>(status.outbox->scheduled));
    Series(to, "turnstile_retry_stored_messages",
           "Messages that are stored for their next attempt, counted up to 100,000.")
        .add(static_cast<double>(status.outbox->retries));
  }
  if (status.claims) {
    Series(to, "turnstile_claims", "Claims of the database (mode leased) by state.")
        .add(static_cast<double>(status.claims->running), {{"state", "running"}})
        .add(static_cast<double>(status.claims->in_doubt), {{"state", "in_doubt"}})
        .add(static_cast<double>(status.claims->failed), {{"state", "failed"}})
        .add(static_cast<double>(status.claims->parked), {{"state", "parked"}});
  }
}

}  // namespace

void add_gauge(std::vector<MetricFamily>& to, std::string name, std::string help, double value) {
  Series(to, std::move(name), std::move(help)).add(value);
}

void add_gauges(const Status& status, std::vector<MetricFamily>& to) {
  add_health(status, to);
  add_partitions(status, to);
  add_permits(status, to);
  add_spans(status, to);
  add_store(status, to);
}

}  // namespace turnstile::metrics
