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
/// Sizes that differ by less are the same.
constexpr double kSameSize = 1.4;
/// Messages that only spread a fixed part add at most this much to a unit.
constexpr double kMostAddedNs = 1e9;
/// A unit that takes so many times as long as expected, or as much less, is no noise. Short times say little.
constexpr double kSurprise = 3;
constexpr double kShortNs = 5e6;

}  // namespace

std::optional<UnitCost::Line> UnitCost::line() const {
  const double spread = squared_ - messages_ * messages_;
  if (spread <= kTellingSpread * messages_ * messages_) return std::nullopt;
  const double each = (product_ - messages_ * took_ns_) / spread;
  const double fixed = std::clamp(took_ns_ - messages_ * each, 0.0, most_fixed_ns_);
  return Line{fixed, (took_ns_ - fixed) / messages_};
}

bool UnitCost::is_far_from(double messages, double took_ns) const {
  // Without a line, all may be fixed, or nothing.
  double least = std::min(took_ns_, took_ns_ * messages / messages_);
  double most = std::max(took_ns_, took_ns_ * messages / messages_);
  if (const auto known = line()) least = most = known->fixed_ns + messages * known->each_ns;
  return took_ns > kSurprise * most + kShortNs || kSurprise * took_ns + kShortNs < least;
}

void UnitCost::note(double messages, double took_ns, double in_messages_ns) {
  if (took_ns_ > 0 && is_far_from(messages, took_ns)) forget();
  const double kept = took_ns_ > 0 ? kKept : 0;
  const auto mix = [kept](double& mean, double value) { mean = kept * mean + (1 - kept) * value; };
  mix(messages_, messages);
  mix(took_ns_, took_ns);
  mix(squared_, messages * messages);
  mix(product_, messages * took_ns);
  mix(most_fixed_ns_, std::max(0.0, took_ns - in_messages_ns));
  largest_ = std::max(messages, kept * largest_);
  ++units_;
  last_messages_ = messages;
  last_took_ns_ = took_ns;
}

std::size_t UnitCost::size(double fits, double target_ns, double longest_ns) const {
  const double least = std::max(1.0, fits);
  double wanted = least;
  if (took_ns_ > 0 && most_fixed_ns_ >= kWorthSpreading * took_ns_) {
    if (const auto known = line()) {
      const double room = std::max(target_ns - known->fixed_ns,
                                   std::min({known->fixed_ns, kMostAddedNs, longest_ns - known->fixed_ns}));
      wanted = room / std::max(known->each_ns, 1.0);
    } else if (units_ > 1) {
      // Either tells what is fixed. The double size takes at most twice as long.
      wanted = messages_ < kSameSize * least ? 2 * least : messages_ / 2;
    }
    const double longest = longest_ns / last_took_ns_ * last_messages_;  // if nothing is fixed
    wanted = std::min({wanted, 2 * largest_, longest});
  }
  return static_cast<std::size_t>(std::max(least, wanted));
}

}  // namespace turnstile::detail
