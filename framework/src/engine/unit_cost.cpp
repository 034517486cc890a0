#include "engine/unit_cost.hpp"

#include <algorithm>

namespace turnstile::detail {

namespace {

/// The weight of what was known before, at each unit.
constexpr double kKept = 0.9;
/// Spreading less than this part of a unit's time gains little.
constexpr double kWorthSpreading = 0.25;
/// The variance of the sizes, relative to the square of their mean, from which they show what is fixed. A unit of double
/// size among ten others has more.
constexpr double kTellingSpread = 0.02;
/// Messages that only spread a fixed part add at most this to a unit.
constexpr double kMostAddedNs = 1e9;

}  // namespace

void UnitCost::note(double messages, double took_ns, double in_messages_ns) {
  const double kept = took_ns_ > 0 ? kKept : 0;
  const auto mix = [kept](double& mean, double value) { mean = kept * mean + (1 - kept) * value; };
  mix(messages_, messages);
  mix(took_ns_, took_ns);
  mix(squared_, messages * messages);
  mix(product_, messages * took_ns);
  mix(most_fixed_ns_, std::max(0.0, took_ns - in_messages_ns));
  largest_ = std::max(messages, kept * largest_);
}

std::size_t UnitCost::size(double target_ns, double longest_ns) const {
  if (took_ns_ <= 0 || most_fixed_ns_ < kWorthSpreading * took_ns_) return 1;
  double fixed = most_fixed_ns_;
  const double spread = squared_ - messages_ * messages_;
  if (spread > kTellingSpread * messages_ * messages_) {
    const double each = (product_ - messages_ * took_ns_) / spread;
    fixed = std::clamp(took_ns_ - messages_ * each, 0.0, most_fixed_ns_);
  } else if (2 * took_ns_ > longest_ns) {
    return 1;  // a larger unit would tell, but may take twice as long
  }
  const double room = std::max(target_ns - fixed, std::min({fixed, kMostAddedNs, longest_ns - fixed}));
  const double in_messages = (took_ns_ - fixed) / messages_;
  const double most = 2 * largest_;
  if (room <= 0) return 1;
  return static_cast<std::size_t>(std::max(1.0, in_messages * most <= room ? most : room / in_messages));
}

}  // namespace turnstile::detail
