#pragma once
// The gauges of a consumer's state.

#include <prometheus/metric_family.h>

#include <chrono>
#include <string>
#include <vector>

#include "turnstile/status.hpp"

namespace turnstile::metrics {

template <class Duration>
double seconds(const Duration& time) {
  return std::chrono::duration<double>(time).count();
}

/// Appends a gauge without labels.
void add_gauge(std::vector<::prometheus::MetricFamily>& to, std::string name, std::string help, double value);
/// Appends the gauges. A value that is unknown has no line.
void add_gauges(const Status& status, std::vector<::prometheus::MetricFamily>& to);

}  // namespace turnstile::metrics
