// The circuit breaker of handlers over two processes, on a real PostgreSQL and the real Kafka.

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/support/world.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

class Breaker : public ::testing::Test {
 protected:
  void SetUp() override {
    TURNSTILE_NEEDS_SERVERS();
    world_.emplace(4);
    service_ = world_->folder() + "/down";
  }
  void start(int processes) {
    for (int i = 0; i < processes; ++i) {
      consumers_.push_back(
          world_->consumer(world_->toml("order = \"key\"\nbreak_least = 4\nbreak_percent = 5\nbreak_for = \"1s\"",
                                        "[log]\nlevel = \"info\"\n"),
                           {{"BREAK_ON", "1"}}));
    }
  }
  void publish(int n, const std::string& prefix) {
    for (int i = 0; i < n; ++i)
      world_->publish(prefix + std::to_string(i), "service:" + service_, "k" + std::to_string(i % 40));
  }
  [[nodiscard]] int said(const std::string& text) const {
    const std::string output = world_->output();
    int count = 0;
    for (auto at = output.find(text); at != std::string::npos; at = output.find(text, at + 1)) ++count;
    return count;
  }
  [[nodiscard]] std::string dead() const { return world_->query("SELECT count(*) FROM dead"); }

  std::optional<World> world_;
  std::string service_;
  std::vector<Process> consumers_;
};

TEST_F(Breaker, holds_for_all_processes_and_costs_no_message) {
  start(2);
  publish(40, "a");
  ASSERT_TRUE(eventually([&] { return world_->effects().distinct == 40; }, 60s)) << world_->output();
  std::ofstream(service_) << "down";
  publish(160, "b");
  ASSERT_TRUE(eventually([&] { return said("code=breaker_open") >= 2; }, 60s)) << world_->output();
  ASSERT_TRUE(eventually([&] { return world_->query("SELECT why LIKE 'a probe failed%' FROM pause") == "t"; }, 60s))
      << world_->output();
  EXPECT_EQ(world_->effects().rows, 40);
  std::filesystem::remove(service_);
  EXPECT_TRUE(eventually([&] { return world_->effects().distinct == 200 && world_->caught_up(); }, 60s))
      << world_->output();
  EXPECT_EQ(world_->effects().rows, 200);
  EXPECT_EQ(world_->out_of_order(), 0);
  EXPECT_EQ(dead(), "0") << world_->output();
  EXPECT_TRUE(eventually([&] { return world_->query("SELECT count(*) FROM pause") == "0"; }));
  EXPECT_LE(world_->query("SELECT max(attempt) FROM effect"), "3");
}

TEST_F(Breaker, is_half_open_after_all_processes_died) {
  std::ofstream(service_) << "down";
  start(1);
  publish(40, "a");
  ASSERT_TRUE(eventually([&] { return world_->query("SELECT count(*) FROM pause") == "1"; }, 60s)) << world_->output();
  consumers_[0].signal(SIGKILL);
  ASSERT_TRUE(consumers_[0].wait(20s));
  std::filesystem::remove(service_);
  start(1);
  EXPECT_TRUE(eventually([&] { return world_->effects().distinct == 40 && world_->caught_up(); }, 60s))
      << world_->output();
  EXPECT_EQ(dead(), "0");
  EXPECT_TRUE(eventually([&] { return world_->query("SELECT count(*) FROM pause") == "0"; }));
}

}  // namespace
}  // namespace turnstile::test
