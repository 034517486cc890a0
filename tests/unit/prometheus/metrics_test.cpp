// The metrics that Prometheus reads, of events and states that the test makes.

#include "turnstile/prometheus/metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/read_file.hpp"
#include "turnstile/status.hpp"

namespace turnstile::metrics {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

/// A state with a value for everything.
Status full_status() {
  Status status;
  status.health.state = Health::State::running;
  status.health.problems.push_back({.at = {"t", 1}, .reason = "it waits", .offset = 3});
  status.in_group = true;
  status.partitions.push_back(
      {.at = {"t", 0}, .position = 10, .end = 17, .behind = 1'500ms, .in_flight = 3, .running = 2});
  status.partitions.push_back({.at = {"t", 1}, .state = PartitionStatus::State::fenced, .paused = true});
  status.running.push_back({{"t", 0}, 11, "t", 2s});
  status.limiters.push_back({"psp", {.limit = 64, .in_use = 3, .held = 5, .share = 8, .waiting = 1}});
  status.token_log = ports::TokenLogState{.available = true, .lease_left = 8s, .unread = 2, .epochs = 4};
  status.breakers.push_back({.topic = "t", .is_open = true, .left = 3s});
  status.store_available = true;
  status.ids.push_back({"t", 8 * 24h, Timestamp(1'700'000'000s)});
  status.ids.push_back({"u", {}, {}});
  status.spans = SpanCounts{.exported = 900, .dropped = 7, .waiting = 12};
  status.outbox = ports::OutboxLag{.waiting = 6, .oldest = 700ms, .refused = 1, .scheduled = 9, .retries = 4};
  status.claims = ports::ClaimCounts{.running = 1, .in_doubt = 2, .failed = 3, .parked = 4};
  return status;
}

TEST(PrometheusMetricsTest, count_messages_by_what_became_of_them) {
  PrometheusMetrics metrics;
  metrics.on_assigned({"t", 0}, Epoch{});
  EXPECT_THAT(to_text(metrics), HasSubstr("turnstile_messages_total{fate=\"parked\",topic=\"t\"} 0\n"))
      << "rate() needs the value before the first event";
  EXPECT_THAT(to_text(metrics), HasSubstr("turnstile_dead_letters_total{reason=\"forged\",topic=\"t\"} 0\n"));
  metrics.on_batch({.topic = "t", .done = 5, .skipped = 1, .duplicates = 2, .retried = 3, .dead = 4, .parked = 1});
  metrics.on_batch({.topic = "t", .done = 5, .rerun = 2, .unclaimed = 5});
  const std::string text = to_text(metrics);
  for (const char* line :
       {"{fate=\"done\",topic=\"t\"} 10\n", "{fate=\"skipped\",topic=\"t\"} 1\n",
        "{fate=\"duplicate\",topic=\"t\"} 2\n", "{fate=\"retried\",topic=\"t\"} 3\n", "{fate=\"dead\",topic=\"t\"} 3\n",
        "{fate=\"parked\",topic=\"t\"} 1\n", "{fate=\"unclaimed\",topic=\"t\"} 5\n"})
    EXPECT_THAT(text, HasSubstr("turnstile_messages_total" + std::string(line)));
  EXPECT_THAT(text, HasSubstr("turnstile_reruns_total{topic=\"t\"} 2\n"));
}

TEST(PrometheusMetricsTest, observe_each_call_of_a_batch_with_the_mean) {
  PrometheusMetrics metrics;
  metrics.on_batch({.topic = "t",
                    .messages = 100,
                    .handler_calls = 100,
                    .handler_time = 200ms,
                    .claim_time = 3ms,
                    .commit_time = 20ms});
  const std::string text = to_text(metrics);
  EXPECT_THAT(text, HasSubstr("turnstile_handler_seconds_count{topic=\"t\"} 100\n"));
  EXPECT_THAT(text, HasSubstr("turnstile_handler_seconds_bucket{topic=\"t\",le=\"0.001\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("turnstile_handler_seconds_bucket{topic=\"t\",le=\"0.0025\"} 100\n"));
  EXPECT_THAT(text, HasSubstr("turnstile_claim_seconds_count{topic=\"t\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("turnstile_commit_seconds_bucket{topic=\"t\",le=\"0.025\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("turnstile_batch_messages_bucket{topic=\"t\",le=\"100\"} 1\n"));
}

TEST(PrometheusMetricsTest, tell_of_permits_dead_letters_stalls_rebalances_and_purges) {
  PrometheusMetrics metrics;
  metrics.on_permit({.topic = "t", .limiter = "psp", .waited = 30ms});
  metrics.on_dead_letter({.topic = "t", .why = "the text of a customer", .reason = "failed"});
  metrics.on_stall({.topic = "t"});
  metrics.on_rebalance({.partitions = 4, .took = 3s});
  metrics.on_purge({.deleted = 1'000, .took = 5ms});
  const std::string text = to_text(metrics);
  EXPECT_THAT(text, HasSubstr("turnstile_permit_wait_seconds_bucket{topic=\"t\",le=\"0.05\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("turnstile_dead_letters_total{reason=\"failed\",topic=\"t\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("turnstile_stalls_total{topic=\"t\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("turnstile_rebalance_seconds_bucket{le=\"5\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("turnstile_purged_ids_total 1000\n"));
  EXPECT_THAT(text, Not(HasSubstr("customer")));
}

TEST(PrometheusMetricsTest, show_the_last_state) {
  PrometheusMetrics metrics;
  EXPECT_THAT(to_text(metrics), Not(HasSubstr("turnstile_live"))) << "there was none yet";
  metrics.on_status(full_status());
  const std::string text = to_text(metrics);
  for (const char* line : {"turnstile_live 1\n",
                           "turnstile_ready 1\n",
                           "turnstile_partitions 2\n",
                           "turnstile_store_available 1\n",
                           "turnstile_partition_lag_messages{topic=\"t\",partition=\"0\"} 7\n",
                           "turnstile_partition_lag_seconds{topic=\"t\",partition=\"0\"} 1.5\n",
                           "turnstile_partition_in_flight_messages{topic=\"t\",partition=\"0\"} 3\n",
                           "turnstile_partition_claimed{topic=\"t\",partition=\"1\"} 0\n",
                           "turnstile_partition_stalled{topic=\"t\",partition=\"1\"} 1\n",
                           "turnstile_partition_paused{topic=\"t\",partition=\"0\"} 0\n",
                           "turnstile_partition_paused{topic=\"t\",partition=\"1\"} 1\n",
                           "turnstile_handlers_running 1\n",
                           "turnstile_spans_exported_total 900\n",
                           "turnstile_spans_dropped_total 7\n",
                           "turnstile_spans_waiting 12\n",
                           "turnstile_handler_longest_running_seconds 2\n",
                           "turnstile_limiter_limit_permits{limiter=\"psp\"} 64\n",
                           "turnstile_limiter_held_permits{limiter=\"psp\"} 5\n",
                           "turnstile_limiter_in_use_permits{limiter=\"psp\"} 3\n",
                           "turnstile_limiter_share_permits{limiter=\"psp\"} 8\n",
                           "turnstile_limiter_waiting_permits{limiter=\"psp\"} 1\n",
                           "turnstile_token_log_available 1\n",
                           "turnstile_token_log_lease_left_seconds 8\n",
                           "turnstile_token_log_unread_records 2\n",
                           "turnstile_token_log_epochs_total 4\n",
                           "turnstile_outbox_waiting_messages 6\n",
                           "turnstile_outbox_oldest_seconds 0.7",
                           "turnstile_outbox_refused_messages 1\n",
                           "turnstile_outbox_scheduled_messages 9\n",
                           "turnstile_retry_stored_messages 4\n",
                           "turnstile_claims{state=\"in_doubt\"} 2\n",
                           "turnstile_claims{state=\"parked\"} 4\n"})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, HasSubstr("turnstile_ids_stored_since_timestamp_seconds{handler=\"t\"} 1700000000"));
  EXPECT_THAT(text, Not(HasSubstr("handler=\"u\""))) << "all of its ids are stored";
  EXPECT_THAT(text, Not(HasSubstr("lag_messages{topic=\"t\",partition=\"1\"}"))) << "it is unknown";
  metrics.on_status(Status{});
  EXPECT_THAT(to_text(metrics), Not(HasSubstr("partition=\"0\""))) << "another process has it";
}

/// https://prometheus.io/docs/practices/naming/: a prefix, base units, _total for counters. And a family comes once.
TEST(PrometheusMetricsTest, have_names_as_prometheus_wants_them) {
  PrometheusMetrics metrics;
  metrics.on_assigned({"t", 0}, Epoch{});
  metrics.on_status(full_status());
  std::set<std::string> names;
  for (const auto& family : metrics.Collect()) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name << " comes twice";
    EXPECT_TRUE(std::regex_match(family.name, std::regex("turnstile_[a-z_]+"))) << family.name;
    EXPECT_EQ(family.name.ends_with("_total"), family.type == ::prometheus::MetricType::Counter) << family.name;
    EXPECT_FALSE(std::regex_search(family.name, std::regex("_(ms|millis|count|sum|bucket)(_|$)"))) << family.name;
    EXPECT_TRUE(family.help.ends_with(".")) << family.name << ": " << family.help;
  }
  EXPECT_GE(names.size(), 35U);
}

TEST(PrometheusMetricsTest, are_all_in_the_documentation) {
  PrometheusMetrics metrics;
  metrics.on_assigned({"t", 0}, Epoch{});
  metrics.on_dead_letter({.topic = "t", .reason = "failed"});
  metrics.on_status(full_status());
  std::set<std::string> reported, documented;
  for (const auto& family : metrics.Collect()) reported.insert(family.name);
  std::istringstream page(test::read_file(TURNSTILE_SOURCE_DIR "/docs/operations/monitoring.md"));
  const std::regex name("`(turnstile_[a-z_]+)[{`]");
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `turnstile_")) continue;
    for (std::sregex_iterator it(line.begin(), line.end(), name), end; it != end; ++it) documented.insert((*it)[1]);
  }
  EXPECT_EQ(reported, documented);
}

TEST(PrometheusMetricsTest, may_be_read_while_events_come) {
  PrometheusMetrics metrics;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string topic = "t" + std::to_string(t % 2);
      for (int i = 0; i < 2'000; ++i)
        metrics.on_batch({.topic = topic, .done = 1, .handler_calls = 2, .handler_time = 1ms});
    });
  }
  for (int i = 0; i < 20; ++i) {
    metrics.on_status(full_status());
    to_text(metrics);
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(to_text(metrics), HasSubstr("turnstile_messages_total{fate=\"done\",topic=\"t1\"} 4000\n"));
}

}  // namespace
}  // namespace turnstile::metrics
