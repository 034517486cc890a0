#include "progress.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace turnstile::cli::top {

namespace {

/// Without an offset of the group, nothing of the partition was read.
std::optional<std::int64_t> lag_of(const PartitionSample& sample) {
  const auto read = sample.committed ? sample.committed : sample.begin;
  if (!sample.end || !read) return std::nullopt;
  return std::max<std::int64_t>(*sample.end - *read, 0);
}

}  // namespace

void Progress::add(const KafkaSample& sample) {
  const auto before = at_ && sample.at - *at_ <= kGap ? at_ : std::nullopt;
  std::map<std::string, Topic> topics;
  order_.clear();
  for (const auto& each : sample.topics) {
    Topic topic = std::move(topics_[each.topic]);
    add(topic, each, sample.at, before);
    topics.insert_or_assign(each.topic, std::move(topic));
    order_.push_back(each.topic);
  }
  topics_ = std::move(topics);
  at_ = sample.at;
}

void Progress::add(Topic& topic, const TopicSample& sample, Moment at, std::optional<Moment> before) {
  const std::size_t known = topic.partitions.size();
  topic.exists = sample.exists;
  topic.partitions.resize(sample.partitions.size());
  std::int64_t moved = 0;
  for (std::size_t i = 0; i < sample.partitions.size(); ++i) {
    auto& partition = topic.partitions[i];
    const auto& now = sample.partitions[i];
    const bool progress = i >= known || now.committed != partition.committed;
    if (progress && now.committed && partition.committed)
      moved += std::max<std::int64_t>(*now.committed - *partition.committed, 0);
    const auto lag = lag_of(now);
    if (progress || !before || (lag && partition.lag.value_or(0) == 0)) partition.still_since = at;
    partition.committed = now.committed;
    if (lag && !partition.lag) watched_since_ = at;
    if (lag) partition.lag = lag;  // an unanswered question is no progress
  }
  if (!before) topic.steps.clear();
  else if (known > 0 && at > *before) topic.steps.push_back({.at = at, .took = at - *before, .moved = moved});
  while (!topic.steps.empty() && topic.steps.front().at <= at - kWindow) topic.steps.pop_front();
}

bool Progress::is_stalled(const Partition& partition, std::chrono::milliseconds stall_after) const {
  return partition.lag.value_or(0) > 0 && at_ && *at_ - partition.still_since >= stall_after;
}

std::vector<TopicState> Progress::topics(std::chrono::milliseconds stall_after) const {
  std::vector<TopicState> states;
  for (const auto& name : order_) {
    const Topic& topic = topics_.at(name);
    auto& state = states.emplace_back(
        TopicState{.topic = name, .exists = topic.exists, .partitions = std::ssize(topic.partitions)});
    Moment took{0};
    std::int64_t moved = 0;
    for (const auto& step : topic.steps) {
      took += step.took;
      moved += step.moved;
    }
    if (took > Moment{0}) state.rate = 1'000.0 * static_cast<double>(moved) / static_cast<double>(took.count());
    for (const auto& partition : topic.partitions) {
      state.committed |= partition.committed.has_value();
      if (partition.lag) state.lag = state.lag.value_or(0) + *partition.lag;
      else ++state.unknown;
      if (is_stalled(partition, stall_after)) ++state.stalled;
    }
  }
  return states;
}

std::vector<Stall> Progress::stalls(std::chrono::milliseconds stall_after) const {
  std::vector<Stall> stalls;
  for (const auto& name : order_) {
    const auto& partitions = topics_.at(name).partitions;
    for (std::size_t i = 0; i < partitions.size(); ++i) {
      if (!is_stalled(partitions[i], stall_after)) continue;
      stalls.push_back({.at = {name, static_cast<std::int32_t>(i)},
                        .lag = *partitions[i].lag,
                        .committed = partitions[i].committed,
                        .age = *at_ - partitions[i].still_since});
    }
  }
  std::stable_sort(stalls.begin(), stalls.end(), [](const Stall& a, const Stall& b) { return a.lag > b.lag; });
  return stalls;
}

bool Progress::any_standing() const { return !stalls(std::chrono::milliseconds{1}).empty(); }

}  // namespace turnstile::cli::top
