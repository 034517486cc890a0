#pragma once
// The metrics of a consumer, in the format of Prometheus. docs/operations/monitoring.md lists them.
//
//   auto metrics = std::make_shared<turnstile::metrics::PrometheusMetrics>();
//   consumer.observe(metrics);
//   prometheus::Exposer exposer{"127.0.0.1:9464"};   // or [admin] listen, which needs no code
//   exposer.RegisterCollectable(metrics);
//
// Labels are topics, partitions, limiters, handlers and fixed words, so that their number is bounded by the
// configuration. No label is an id, a key or a text of a message.

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <memory>
#include <string>
#include <vector>

#include "turnstile/observer.hpp"

/// Metrics for Prometheus.
namespace turnstile::metrics {

/// Counts the events of one consumer, and reports its last state. Thread-safe. Counters begin at 0 with the object, so
/// use one object for each Consumer or PollLoop, for its whole life. With a PollLoop there are no gauges, because only a
/// Consumer reports its state.
class PrometheusMetrics final : public Observer, public ::prometheus::Collectable {
 public:
  PrometheusMetrics();
  ~PrometheusMetrics() override;
  PrometheusMetrics(const PrometheusMetrics&) = delete;
  PrometheusMetrics& operator=(const PrometheusMetrics&) = delete;

  /// All metrics, as of now. Any thread may call it.
  [[nodiscard]] std::vector<::prometheus::MetricFamily> Collect() const override;

  void on_batch(const BatchReport& batch) noexcept override;
  void on_permit(const PermitReport& permit) noexcept override;
  void on_dead_letter(const MessageReport& message) noexcept override;
  void on_stall(const MessageReport& message) noexcept override;
  void on_assigned(const TopicPartition& at, Epoch epoch) noexcept override;
  void on_rebalance(const RebalanceReport& rebalance) noexcept override;
  void on_purge(const PurgeReport& purge) noexcept override;
  void on_status(const Status& status) noexcept override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The text of these metrics, in the exposition format 0.0.4.
std::string to_text(const ::prometheus::Collectable& metrics);

}  // namespace turnstile::metrics
