#pragma once
// The commands about limits, on Apache Kafka, with members of a domain in this process.

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "tests/integration/cli_kafka.hpp"
#include "tests/support/cli.hpp"
#include "tests/support/eventually.hpp"
#include "turnstile/kafka/limiters.hpp"
#include "turnstile/log.hpp"

namespace turnstile::test {

/// Waits in line for so many permits. A limiter that is tried again and again requests more than that.
inline std::vector<Permit> take(ports::Limiter& limiter, std::size_t count) {
  struct Taken {
    std::mutex mutex;
    std::vector<Permit> permits;
  };
  const auto taken = std::make_shared<Taken>();
  for (std::size_t i = 0; i < count; ++i) {
    limiter.acquire_later(1, Priority::normal, [taken](Permit permit) {
      const std::lock_guard lock(taken->mutex);
      taken->permits.push_back(std::move(permit));
    });
  }
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(taken->mutex);
    return taken->permits.size() == count;
  }));
  const std::lock_guard lock(taken->mutex);
  return std::move(taken->permits);
}

/// Each test has a token log of its own.
class CliDomain : public ::testing::Test {
 protected:
  using Json = nlohmann::json;

  void SetUp() override {
    if (kafka_.brokers().empty()) GTEST_SKIP() << "TURNSTILE_TEST_KAFKA is not set; run ./dev test";
    static int count = 0;
    topic_ = "domain-" + std::to_string(getpid()) + "-" + std::to_string(++count) + ".tokens";
    cli_.environment()["TURNSTILE_KAFKA_BOOTSTRAP_SERVERS"] = kafka_.brokers();
    cli_.folder().write("turnstile.toml", "[limits]\ntopic = \"" + topic_ + "\"\n");
  }

  [[nodiscard]] kafka::Settings settings() const { return {{"bootstrap.servers", kafka_.brokers()}}; }

  std::shared_ptr<TokenDomain> join(const std::string& client, TokenSettings tokens) {
    tokens.client = client;
    auto domain = kafka::open_limiters(settings(), {.name = topic_}, tokens, make_logger({.level = "off"}));
    EXPECT_TRUE(domain->wait_until_joined(std::chrono::seconds(30)));
    return domain;
  }

  /// The parsed output of a run that must succeed.
  template <class... Arguments>
  Json json(const Arguments&... arguments) {
    const auto run = cli_.run(arguments..., "--json");
    EXPECT_EQ(run.code, 0) << run.err;
    return Json::parse(run.out, nullptr, false);
  }

  TestKafka kafka_;
  Cli cli_;
  std::string topic_;
};

}  // namespace turnstile::test
