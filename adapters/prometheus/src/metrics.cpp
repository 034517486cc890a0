#include "turnstile/prometheus/metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <sstream>
#include <string_view>

#include "gauges.hpp"
#include "turnstile/dead_reason.hpp"

namespace turnstile::metrics {

namespace {

using ::prometheus::Counter;
using ::prometheus::Family;
using ::prometheus::Histogram;
using ::prometheus::MetricFamily;
using Buckets = Histogram::BucketBoundaries;
using std::chrono::steady_clock;

/// From a statement on the same machine to a handler that calls a slow service.
const Buckets kTimes{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                     0.25,   0.5,     1,      2.5,   5,      10,    30,   60,    300};
const Buckets kRebalanceTimes{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};
const Buckets kSizes{1, 2, 5, 10, 20, 50, 100, 200, 500, 1'000, 2'000, 5'000};

/// `times` values of the same size.
void observe_many(Histogram& histogram, const Buckets& buckets, double value, std::int64_t times) {
  if (times <= 0) return;
  if (times == 1) return histogram.Observe(value);
  std::vector<double> increments(buckets.size() + 1, 0);
  const auto bucket = std::lower_bound(buckets.begin(), buckets.end(), value) - buckets.begin();
  increments[static_cast<std::size_t>(bucket)] = static_cast<double>(times);
  histogram.ObserveMultiple(increments, value * static_cast<double>(times));
}

}  // namespace

struct PrometheusMetrics::Impl {
  Family<Counter> messages{"turnstile_messages_total", "Messages by what became of them.", {}};
  Family<Counter> dead_letters{
      "turnstile_dead_letters_total", "Dead letters by reason, those that were parked too.", {}};
  Family<Counter> reruns{
      "turnstile_reruns_total", "Runs that were rolled back because another message of the batch failed.", {}};
  Family<Counter> stalls{"turnstile_stalls_total", "Reports of the watchdog about a partition without progress.", {}};
  Family<Counter> purged{"turnstile_purged_ids_total", "Old ids that this process has deleted.", {}};
  Family<Histogram> handler{
      "turnstile_handler_seconds", "Time of a call of the handler; within a batch, the mean.", {}};
  Family<Histogram> permit{
      "turnstile_permit_wait_seconds", "Waits for a permit; one that was there at once is not counted.", {}};
  Family<Histogram> claim{
      "turnstile_claim_seconds", "Time of the statement that takes the messages of a batch in PostgreSQL.", {}};
  Family<Histogram> commit{"turnstile_commit_seconds", "Time until the results of a batch were permanent.", {}};
  Family<Histogram> batch{"turnstile_batch_messages", "Messages that a worker took together.", {}};
  Family<Histogram> rebalance{
      "turnstile_rebalance_seconds", "From the revocation of partitions to the new assignment.", {}};
  Histogram& rebalances{rebalance.Add({}, kRebalanceTimes)};
  Counter& purges{purged.Add({})};

  /// The metrics of a topic.
  struct Topic {
    Topic(Impl& all, const std::string& topic)
        : name(topic),
          done(all.fate(topic, "done")),
          skipped(all.fate(topic, "skipped")),
          duplicate(all.fate(topic, "duplicate")),
          retried(all.fate(topic, "retried")),
          deferred(all.fate(topic, "deferred")),
          dead(all.fate(topic, "dead")),
          parked(all.fate(topic, "parked")),
          unclaimed(all.fate(topic, "unclaimed")),
          reruns(all.reruns.Add({{"topic", topic}})),
          stalls(all.stalls.Add({{"topic", topic}})),
          handler(all.handler.Add({{"topic", topic}}, kTimes)),
          permit(all.permit.Add({{"topic", topic}}, kTimes)),
          claim(all.claim.Add({{"topic", topic}}, kTimes)),
          commit(all.commit.Add({{"topic", topic}}, kTimes)),
          batch(all.batch.Add({{"topic", topic}}, kSizes)) {
      for (const DeadReason reason : dead_reasons()) all.dead_letter(topic, to_text(reason));
    }

    const std::string name;
    Counter &done, &skipped, &duplicate, &retried, &deferred, &dead, &parked, &unclaimed, &reruns, &stalls;
    Histogram &handler, &permit, &claim, &commit, &batch;
  };

  Counter& fate(const std::string& topic, const char* fate) { return messages.Add({{"topic", topic}, {"fate", fate}}); }

  Counter& dead_letter(const std::string& topic, std::string_view reason) {
    return dead_letters.Add({{"topic", topic}, {"reason", std::string(reason)}});
  }

  Topic& topic(std::string_view name) {
    {
      const std::shared_lock lock(mutex);
      if (const auto known = topics.find(name); known != topics.end()) return known->second;
    }
    const std::unique_lock lock(mutex);
    return topics.try_emplace(std::string(name), *this, std::string(name)).first->second;
  }

  const std::chrono::system_clock::time_point started = std::chrono::system_clock::now();
  std::shared_mutex mutex;  ///< protects topics, but not what is in them
  std::map<std::string, Topic, std::less<>> topics;
  mutable std::mutex status_mutex;  ///< protects status and told_at
  std::optional<Status> status;
  steady_clock::time_point told_at{};
};

PrometheusMetrics::PrometheusMetrics() : impl_(std::make_unique<Impl>()) {}

PrometheusMetrics::~PrometheusMetrics() = default;

void PrometheusMetrics::on_batch(const BatchReport& batch) noexcept {
  Impl::Topic& topic = impl_->topic(batch.topic);
  const auto count = [](Counter& counter, std::int64_t of) {
    if (of > 0) counter.Increment(static_cast<double>(of));
  };
  count(topic.done, batch.done);
  count(topic.skipped, batch.skipped);
  count(topic.duplicate, batch.duplicates);
  count(topic.retried, batch.retried);
  count(topic.deferred, batch.deferred);
  count(topic.dead, batch.dead - batch.parked);
  count(topic.parked, batch.parked);
  count(topic.unclaimed, batch.unclaimed);
  count(topic.reruns, batch.rerun);
  topic.batch.Observe(static_cast<double>(batch.messages));
  if (batch.handler_calls > 0) {
    observe_many(topic.handler, kTimes, seconds(batch.handler_time) / static_cast<double>(batch.handler_calls),
                 batch.handler_calls);
  }
  if (batch.claim_time.count() > 0) topic.claim.Observe(seconds(batch.claim_time));
  if (batch.commit_time.count() > 0) topic.commit.Observe(seconds(batch.commit_time));
}

void PrometheusMetrics::on_permit(const PermitReport& permit) noexcept {
  impl_->topic(permit.topic).permit.Observe(seconds(permit.waited));
}

void PrometheusMetrics::on_dead_letter(const MessageReport& message) noexcept {
  impl_->dead_letter(std::string(message.topic), message.reason).Increment();
}

void PrometheusMetrics::on_stall(const MessageReport& message) noexcept {
  impl_->topic(message.topic).stalls.Increment();
}

/// All counters of the topic exist from now on, with 0: rate() needs the value before the first event.
void PrometheusMetrics::on_assigned(const TopicPartition& at, Epoch /*epoch*/) noexcept { impl_->topic(at.topic); }

void PrometheusMetrics::on_rebalance(const RebalanceReport& rebalance) noexcept {
  impl_->rebalances.Observe(seconds(rebalance.took));
}

void PrometheusMetrics::on_purge(const PurgeReport& purge) noexcept {
  impl_->purges.Increment(static_cast<double>(purge.deleted));
}

void PrometheusMetrics::on_status(const Status& status) noexcept {
  const std::lock_guard lock(impl_->status_mutex);
  impl_->status = status;
  impl_->told_at = steady_clock::now();
}

std::vector<MetricFamily> PrometheusMetrics::Collect() const {
  std::vector<MetricFamily> all;
  const Impl& impl = *impl_;
  const std::vector<const ::prometheus::Collectable*> parts{
      &impl.messages, &impl.dead_letters, &impl.reruns, &impl.stalls, &impl.purged,   &impl.handler,
      &impl.permit,   &impl.claim,        &impl.commit, &impl.batch,  &impl.rebalance};
  for (const auto* part : parts) {
    for (auto& family : part->Collect()) all.push_back(std::move(family));
  }
  add_gauge(all, "turnstile_start_time_seconds", "When the counters of this process began at 0, in seconds since 1970.",
            seconds(impl.started.time_since_epoch()));
  const std::lock_guard lock(impl.status_mutex);
  if (!impl.status) return all;
  add_gauges(*impl.status, all);
  add_gauge(all, "turnstile_status_age_seconds",
            "How old the values of the gauges are. They are renewed once a second.",
            seconds(steady_clock::now() - impl.told_at));
  return all;
}

std::string to_text(const ::prometheus::Collectable& metrics) {
  std::ostringstream out;
  ::prometheus::TextSerializer().Serialize(out, metrics.Collect());
  return out.str();
}

}  // namespace turnstile::metrics
