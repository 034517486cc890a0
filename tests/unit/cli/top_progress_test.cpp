// Rates, lags and stalls in `turnstile top`, out of samples that the test makes.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "cli/src/top/progress.hpp"

namespace turnstile::cli::top {
namespace {

using namespace std::chrono_literals;

PartitionSample at(std::optional<Offset> committed, std::optional<Offset> end, std::optional<Offset> begin = 0) {
  return {.committed = committed, .begin = begin, .end = end};
}

KafkaSample sample(Moment time, std::vector<PartitionSample> partitions, const std::string& topic = "payments") {
  return {.at = time, .topics = {{.topic = topic, .partitions = std::move(partitions)}}};
}

TEST(TopProgress, the_first_sample_has_a_lag_and_no_rate) {
  Progress progress;
  progress.add(sample(0s, {at(10, 15), at(20, 20)}));
  const auto topic = progress.topics(10s).at(0);
  EXPECT_EQ(topic.topic, "payments");
  EXPECT_EQ(topic.partitions, 2);
  EXPECT_EQ(topic.lag, 5);
  EXPECT_EQ(topic.rate, std::nullopt);
  EXPECT_EQ(topic.stalled, 0);
}

TEST(TopProgress, the_rate_is_what_all_partitions_committed_in_the_window) {
  Progress progress;
  progress.add(sample(0s, {at(0, 1000), at(0, 1000)}));
  progress.add(sample(1s, {at(10, 1000), at(20, 1000)}));
  EXPECT_DOUBLE_EQ(progress.topics(10s).at(0).rate.value(), 30);
  progress.add(sample(3s, {at(10, 1000), at(20, 1000)}));
  EXPECT_DOUBLE_EQ(progress.topics(10s).at(0).rate.value(), 10);
}

TEST(TopProgress, the_rate_forgets_what_is_older_than_the_window) {
  Progress progress;
  for (int second = 0; second <= 30; ++second)
    progress.add(sample(Moment(1'000 * second), {at(second <= 10 ? 100 * second : 1000 + second, 9000)}));
  EXPECT_DOUBLE_EQ(progress.topics(10s).at(0).rate.value(), 1);
}

TEST(TopProgress, an_offset_that_was_set_back_is_no_negative_rate) {
  Progress progress;
  progress.add(sample(0s, {at(500, 1000), at(0, 1000)}));
  progress.add(sample(1s, {at(100, 1000), at(5, 1000)}));
  EXPECT_DOUBLE_EQ(progress.topics(10s).at(0).rate.value(), 5);
  EXPECT_EQ(progress.topics(10s).at(0).lag, 1895);
}

TEST(TopProgress, a_partition_without_an_offset_of_the_group_lags_from_its_beginning) {
  Progress progress;
  progress.add(sample(0s, {at(std::nullopt, 100, 40)}));
  EXPECT_EQ(progress.topics(10s).at(0).lag, 60);
  EXPECT_FALSE(progress.topics(10s).at(0).committed);
}

TEST(TopProgress, what_the_broker_did_not_report_is_unknown_and_not_0) {
  Progress progress;
  progress.add(sample(0s, {at(10, std::nullopt), at(std::nullopt, 100, std::nullopt)}));
  EXPECT_EQ(progress.topics(10s).at(0).lag, std::nullopt);
  EXPECT_EQ(progress.topics(10s).at(0).unknown, 2);
  progress.add(sample(1s, {at(10, 12), at(std::nullopt, 100, std::nullopt)}));
  EXPECT_EQ(progress.topics(10s).at(0).lag, 2);
  EXPECT_EQ(progress.topics(10s).at(0).unknown, 1);
}

TEST(TopProgress, a_partition_stalls_with_lag_and_without_a_commit) {
  Progress progress;
  for (int second = 0; second <= 10; ++second)
    progress.add(sample(Moment(1'000 * second), {at(10, 15), at(second, 100), at(7, 7)}));
  EXPECT_TRUE(progress.stalls(11s).empty());
  const auto stalls = progress.stalls(10s);
  ASSERT_EQ(stalls.size(), 1U);
  EXPECT_EQ(stalls[0].at, (TopicPartition{"payments", 0}));
  EXPECT_EQ(stalls[0].lag, 5);
  EXPECT_EQ(stalls[0].committed, 10);
  EXPECT_EQ(stalls[0].age, 10s);
  EXPECT_EQ(progress.topics(10s).at(0).stalled, 1);
}

/// A topic that only the database knows comes later than the first sample, and so may the end of a partition.
TEST(TopProgress, what_is_known_late_is_watched_from_then_on) {
  Progress progress;
  progress.add({.at = 0s, .topics = {}});
  EXPECT_EQ(progress.watched_since(), 0s);
  progress.add(sample(1s, {at(10, 15), at(3, std::nullopt)}));
  EXPECT_EQ(progress.watched_since(), 1s);
  progress.add(sample(2s, {at(10, 15), at(3, 9)}));
  EXPECT_EQ(progress.watched_since(), 2s);
  progress.add(sample(3s, {at(10, 16), at(3, 9)}));
  progress.add(sample(4s, {at(10, 16), at(3, 9)}));
  EXPECT_EQ(progress.watched_since(), 2s);
  EXPECT_EQ(progress.stalls(2s).size(), 2U);
}

TEST(TopProgress, a_commit_ends_the_stall) {
  Progress progress;
  for (int second = 0; second <= 12; ++second)
    progress.add(sample(Moment(1'000 * second), {at(second == 12 ? 11 : 10, 15)}));
  EXPECT_TRUE(progress.stalls(10s).empty());
}

TEST(TopProgress, a_first_record_after_an_idle_time_is_no_stall) {
  Progress progress;
  for (int second = 0; second <= 60; ++second)
    progress.add(sample(Moment(1'000 * second), {at(10, second < 55 ? 10 : 11)}));
  EXPECT_TRUE(progress.stalls(10s).empty());
  EXPECT_EQ(progress.stalls(5s).size(), 1U);
}

TEST(TopProgress, an_outage_of_kafka_is_no_stall_of_its_partitions) {
  Progress progress;
  progress.add(sample(0s, {at(10, 15)}));
  progress.add(sample(60s, {at(10, 15)}));
  EXPECT_TRUE(progress.stalls(10s).empty());
  EXPECT_EQ(progress.topics(10s).at(0).rate, std::nullopt) << "the time in between has no rate";
}

TEST(TopProgress, a_sample_without_an_end_keeps_the_lag_and_the_stall) {
  Progress progress;
  for (int second = 0; second <= 12; ++second)
    progress.add(sample(Moment(1'000 * second), {at(10, second == 6 ? std::nullopt : std::optional<Offset>(15))}));
  ASSERT_EQ(progress.stalls(10s).size(), 1U);
  EXPECT_EQ(progress.stalls(10s)[0].age, 12s);
}

TEST(TopProgress, the_largest_lag_is_the_first_stall) {
  Progress progress;
  for (int second = 0; second <= 10; ++second)
    progress.add(sample(Moment(1'000 * second), {at(0, 5), at(0, 500), at(0, 50)}));
  std::vector<std::int32_t> order;
  for (const auto& stall : progress.stalls(10s)) order.push_back(stall.at.partition);
  EXPECT_EQ(order, (std::vector<std::int32_t>{1, 2, 0}));
}

TEST(TopProgress, new_partitions_and_topics_that_vanish_are_no_progress_of_others) {
  Progress progress;
  progress.add(sample(0s, {at(10, 15)}));
  progress.add(sample(1s, {at(10, 15), at(900, 1000)}));
  EXPECT_DOUBLE_EQ(progress.topics(10s).at(0).rate.value(), 0);
  EXPECT_EQ(progress.topics(10s).at(0).partitions, 2);
  progress.add(sample(2s, {at(1, 2)}, "refunds"));
  ASSERT_EQ(progress.topics(10s).size(), 1U);
  EXPECT_EQ(progress.topics(10s)[0].topic, "refunds");
  EXPECT_EQ(progress.topics(10s)[0].rate, std::nullopt);
}

TEST(TopProgress, two_samples_show_whether_any_partition_stands_still) {
  Progress progress;
  progress.add(sample(0s, {at(10, 15)}));
  EXPECT_FALSE(progress.any_standing());
  progress.add(sample(1s, {at(10, 15)}));
  EXPECT_TRUE(progress.any_standing());
  progress.add(sample(2s, {at(12, 15)}));
  EXPECT_FALSE(progress.any_standing());
}

TEST(TopProgress, ten_thousand_partitions_are_counted) {
  Progress progress;
  for (int second = 0; second <= 10; ++second)
    progress.add(sample(Moment(1'000 * second), std::vector<PartitionSample>(10'000, at(1, 2))));
  EXPECT_EQ(progress.topics(10s).at(0).lag, 10'000);
  EXPECT_EQ(progress.stalls(10s).size(), 10'000U);
}

}  // namespace
}  // namespace turnstile::cli::top
