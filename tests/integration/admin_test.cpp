// The admin endpoint of a consumer that runs: what an operator, an orchestrator and Prometheus see.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "tests/support/http_server.hpp"
#include "tests/support/outside.hpp"
#include "tests/support/tcp_proxy.hpp"
#include "tests/support/world.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kAdmin = "[admin]\nlisten = \"127.0.0.1:0\"\n";

/// The endpoint of a process whose log is the world's output.
class Endpoint {
 public:
  explicit Endpoint(const World& world) {
    EXPECT_TRUE(eventually([&] {
      std::smatch match;
      const std::string log = world.output();
      if (!std::regex_search(log, match, std::regex("listens on http://127\\.0\\.0\\.1:(\\d+)/"))) return false;
      port_ = std::stoi(match[1]);
      return true;
    })) << world.output();
  }
  [[nodiscard]] httplib::Response get(const std::string& path) const { return send(port_, "GET", path, {}, "", ""); }
  [[nodiscard]] bool is_ready() const { return get("/readyz").status == 200; }
  /// The value of a metric, of all its lines together. Absent: it has none.
  [[nodiscard]] std::optional<double> value(const std::string& metric) const {
    const std::string text = get("/metrics").body;
    std::optional<double> sum;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(metric + "{") || line.starts_with(metric + " "))
        sum = sum.value_or(0) + std::stod(line.substr(line.rfind(' ') + 1));
    }
    return sum;
  }

 private:
  int port_ = 0;
};

TEST(Admin, shows_what_became_of_each_message_and_where_each_partition_is) {
  TURNSTILE_NEEDS_SERVERS();
  World world(4);
  const std::int64_t records = world.publish(200);
  Process consumer = world.consumer(world.toml("limit = 8", kAdmin));
  const Endpoint endpoint(world);
  EXPECT_TRUE(eventually([&] { return endpoint.is_ready() && world.caught_up(); }, 60s)) << world.output();
  EXPECT_TRUE(eventually([&] {
    return endpoint.value("turnstile_partition_lag_messages") == 0 && endpoint.value("turnstile_partitions") == 4;
  })) << endpoint.get("/metrics").body;
  const std::string metrics = endpoint.get("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("turnstile_messages_total{fate=\"done\",topic=\"" + world.topic() + "\"} 200\n"));
  EXPECT_THAT(metrics, HasSubstr("turnstile_messages_total{fate=\"duplicate\",topic=\"" + world.topic() + "\"} " +
                                 std::to_string(records - 200) + "\n"));
  EXPECT_EQ(endpoint.value("turnstile_partition_lag_seconds"), 0);
  EXPECT_EQ(endpoint.value("turnstile_limiter_limit_permits"), 8);
  EXPECT_EQ(endpoint.value("turnstile_token_log_available"), 1);
  EXPECT_EQ(endpoint.value("turnstile_store_available"), 1);
  EXPECT_GE(endpoint.value("turnstile_rebalance_seconds_count"), 1);
  EXPECT_GT(endpoint.value("turnstile_token_log_lease_left_seconds"), 0);
  EXPECT_TRUE(eventually([&] { return endpoint.value("turnstile_outbox_waiting_messages") == 0; }));
  EXPECT_TRUE(eventually([&] { return endpoint.value("turnstile_token_log_unread_records") == 0; }));

  const auto status = nlohmann::json::parse(endpoint.get("/status").body);
  std::int64_t positions = 0;
  for (const auto& partition : status["partitions"]) {
    EXPECT_EQ(partition["lag"], 0);
    positions += partition["position"].get<std::int64_t>();
  }
  EXPECT_EQ(positions, records);
  EXPECT_EQ(status["limiters"][0]["name"], world.topic());
  for (const auto& setting : status["settings"]) {
    if (setting["key"] != "postgres.url") continue;
    EXPECT_EQ(setting["value"], "\"***\"");
  }
}

TEST(Admin, says_what_fails_while_postgresql_is_away) {
  TURNSTILE_NEEDS_SERVERS();
  Sql sql(*postgres_url());
  TcpProxy proxy = proxy_to(sql);
  World world(1);
  Process consumer =
      world.consumer(world.toml("", kAdmin), {{"TURNSTILE_POSTGRES_URL", url_through(*postgres_url(), proxy.port())}});
  const Endpoint endpoint(world);
  ASSERT_TRUE(eventually([&] { return endpoint.is_ready(); }, 60s)) << world.output();
  proxy.cut(true);
  EXPECT_TRUE(eventually([&] { return !endpoint.is_ready(); }, 60s)) << "no message is needed\n" << world.output();
  EXPECT_THAT(endpoint.get("/readyz").body, HasSubstr("the database cannot be used"));
  EXPECT_EQ(endpoint.get("/healthz").status, 200) << "a restart would not help";
  EXPECT_TRUE(eventually([&] { return endpoint.value("turnstile_store_available") == 0; }));
  world.publish(1);
  EXPECT_TRUE(eventually([&] { return endpoint.value("turnstile_partition_lag_messages") > 0; }))
      << "Kafka still answers";
  proxy.cut(false);
  EXPECT_TRUE(eventually([&] { return endpoint.is_ready(); }, 60s)) << world.output();
}

TEST(Admin, is_not_ready_while_it_drains_and_still_answers) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  world.publish("m", "sleep:3000");
  Process consumer = world.consumer(world.toml("", kAdmin));
  const Endpoint endpoint(world);
  ASSERT_TRUE(eventually([&] { return endpoint.value("turnstile_handlers_running") == 1; }, 60s)) << world.output();
  consumer.signal(SIGTERM);
  EXPECT_TRUE(eventually([&] { return endpoint.get("/readyz").body == "the consumer is stopping\n"; }, 3s))
      << endpoint.get("/readyz").body;
  EXPECT_EQ(endpoint.get("/healthz").status, 200);
  EXPECT_EQ(nlohmann::json::parse(endpoint.get("/status").body)["partitions"][0]["state"], "draining");
  EXPECT_THAT(endpoint.get("/metrics").body, HasSubstr("turnstile_messages_total"));
  EXPECT_EQ(consumer.wait(30s), 0);
  EXPECT_THAT(world.output(), Not(HasSubstr("admin_unavailable")));
}

TEST(Admin, leaves_a_port_that_is_in_use_alone_and_the_consumer_works) {
  TURNSTILE_NEEDS_SERVERS();
  HttpServer other;
  other.start();
  World world(1);
  world.publish(10);
  Process consumer =
      world.consumer(world.toml("", "[admin]\nlisten = \"127.0.0.1:" + std::to_string(other.port()) + "\"\n"));
  EXPECT_TRUE(eventually([&] { return world.caught_up(); }, 60s)) << world.output();
  EXPECT_THAT(world.output(), HasSubstr("cannot listen on 127.0.0.1:" + std::to_string(other.port())));
}

}  // namespace
}  // namespace turnstile::test
