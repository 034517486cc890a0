// A message that kills its process, on the real PostgreSQL and the real Apache Kafka. It becomes a dead letter, every
// other message takes effect, and the group lives. Processes are started again as an orchestrator would do it.

#include <gmock/gmock.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <optional>

#include "tests/support/topic_reader.hpp"
#include "tests/support/world.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

class Orchestrator {
 public:
  using Start = std::function<Process()>;
  Orchestrator(int processes, Start start) : start_(std::move(start)) {
    for (int i = 0; i < processes; ++i) living_.emplace_back(start_());
  }
  /// Starts each process again that has died, until the condition holds.
  bool keep_until(const std::function<bool()>& condition, std::chrono::milliseconds bound = 120s) {
    return eventually(
        [&] {
          for (auto& process : living_) {
            if (!process || !process->ended()) continue;
            if (process->ended() != -SIGABRT) return true;  // it refused to start, or died of something else
            ++deaths_;
            process.emplace(start_());
          }
          return condition();
        },
        bound);
  }
  [[nodiscard]] int deaths() const noexcept { return deaths_; }
  /// Tells all of them to end. Returns how many end with code 0.
  int stop() {
    int well = 0;
    for (auto& process : living_) process->signal(SIGTERM);
    for (auto& process : living_) well += process->wait(20s) == 0 ? 1 : 0;
    return well;
  }

 private:
  const Start start_;
  std::vector<std::optional<Process>> living_;
  int deaths_ = 0;
};

WorldOptions quick(int partitions) {
  return {.partitions = partitions, .session_timeout_ms = 3'000, .handler_timeout = "2s"};
}

/// Shorter than that session timeout.
const std::string kLocks = "lock_timeout = \"1s\"\n";

std::string reasons(const World& world) {
  return world.query("SELECT string_agg(reason || ' after ' || attempts, ', ') FROM dead");
}

TEST(Poison, kills_few_processes_and_leaves_the_group_alive) {
  TURNSTILE_NEEDS_SERVERS();
  World world(quick(3));
  world.publish(500, "before");
  world.publish("poison", "abort", "7");
  world.publish(499, "after");
  const std::string toml = world.toml("order = \"key\"\nretry.attempts = 2\n", kLocks);
  Orchestrator three(3, [&] { return world.consumer(toml); });
  EXPECT_TRUE(three.keep_until([&] { return world.effects().distinct == 999 && world.caught_up(); })) << world.output();
  EXPECT_EQ(world.effects().rows, 999) << "an effect was made twice";
  EXPECT_EQ(world.out_of_order(), 0);
  EXPECT_EQ(reasons(world), "killed_process after 2") << world.output();
  // At the first death, it is unknown which message was the cause. At the second, it is among the messages that were
  // running. Then it kills two processes while it runs alone.
  EXPECT_EQ(three.deaths(), 4) << world.output();
  EXPECT_EQ(world.query("SELECT (SELECT count(*) FROM suspect) + (SELECT count(*) FROM trial)"), "0");
  EXPECT_EQ(three.stop(), 3) << world.output();
  TopicReader letters(world.dead_topic());
  EXPECT_TRUE(letters.until([&] { return letters.payloads().contains("abort"); }));
}

struct PoisonMode {
  const char* name;
  const char* settings;
  bool is_effect_elsewhere;
};
void PrintTo(const PoisonMode& mode, std::ostream* out) { *out << mode.name; }

class PoisonIn : public ::testing::TestWithParam<PoisonMode> {};

TEST_P(PoisonIn, is_a_dead_letter_in_the_end) {
  TURNSTILE_NEEDS_SERVERS();
  World world(quick(1));
  world.publish(50, "before");
  world.publish("poison", "abort", "7");
  world.publish(49, "after");
  const std::string toml = world.toml(GetParam().settings + std::string("retry.attempts = 1\n"), kLocks);
  std::map<std::string, std::string> environment;
  if (GetParam().is_effect_elsewhere) environment["ELSEWHERE"] = "1";
  Orchestrator one(1, [&] { return world.consumer(toml, environment); });
  EXPECT_TRUE(one.keep_until([&] { return world.effects().distinct == 99 && world.caught_up(); })) << world.output();
  TopicReader letters(world.dead_topic());
  EXPECT_TRUE(letters.until([&] { return letters.payloads().contains("abort"); }));
  EXPECT_EQ(one.deaths(), 3) << world.output();
  EXPECT_NE(world.output().find("(killed_process after 1 attempts)"), std::string::npos) << world.output();
  EXPECT_EQ(one.stop(), 1) << world.output();
}

INSTANTIATE_TEST_SUITE_P(EachMode, PoisonIn,
                         ::testing::Values(PoisonMode{"by_offset", "mode = \"by_offset\"\n", false},
                                           PoisonMode{"leased",
                                                      "mode = \"leased\"\nlease = \"1s\"\nunknown = \"rerun\"\n", true},
                                           PoisonMode{"none", "mode = \"at_least_once\"\n", true}),
                         [](const auto& mode) { return std::string(mode.param.name); });

/// A parked message has begun: either it has its effect, or it is the message that killed its process.
TEST(Poison, leaves_nothing_in_doubt_that_had_not_begun) {
  TURNSTILE_NEEDS_SERVERS();
  World world(quick(1));
  world.publish(50, "before");
  world.publish("poison", "abort", "7");
  world.publish(49, "after");
  const std::string toml = world.toml("mode = \"leased\"\nlease = \"1s\"\nbatch = 100\n", kLocks);
  // With 1 ms, each start is recorded on its own: the starts of handlers that take less than 0.2 ms are recorded
  // together.
  Orchestrator one(1, [&] { return world.consumer(toml, {{"ELSEWHERE", "1"}, {"EFFECT_MS", "1"}}); });
  EXPECT_TRUE(one.keep_until([&] { return world.effects().distinct == 99 && world.caught_up(); })) << world.output();
  EXPECT_EQ(world.effects().rows, 99) << "an effect was made twice";
  // An id came twice. Both records are dead letters, and one of them has run.
  EXPECT_EQ(
      world.query("SELECT count(DISTINCT message_id) FROM dead WHERE message_id NOT IN (SELECT message_id FROM dead"
                  " JOIN effect USING (record_offset))"),
      "1")
      << "parked without having begun: " << reasons(world);
  EXPECT_EQ(one.deaths(), 1) << world.output();
  EXPECT_EQ(one.stop(), 1) << world.output();
}

/// Makes the group, which has no members now, read the partition again from `to`.
void lower_the_offset(const World& world, Offset to) {
  const ports::OffsetCommit lower{{world.topic(), 0}, to};
  world.broker().open_consumer()->commit({&lower, 1}, true);
  ASSERT_EQ(world.committed(0), to);
}

TEST(Poison, that_was_buried_does_not_run_when_it_is_read_again) {
  TURNSTILE_NEEDS_SERVERS();
  World world(quick(1));
  world.publish("before", "p", "7");
  world.publish("poison", "abort", "7");
  world.publish("after", "p", "7");
  const std::string toml = world.toml("retry.attempts = 1\n", kLocks);
  Orchestrator first(1, [&] { return world.consumer(toml); });
  EXPECT_TRUE(first.keep_until([&] { return world.effects().distinct == 2 && world.caught_up(); })) << world.output();
  EXPECT_EQ(first.deaths(), 3) << world.output();
  EXPECT_EQ(first.stop(), 1) << world.output();

  lower_the_offset(world, 1);
  Orchestrator second(1, [&] { return world.consumer(toml); });
  EXPECT_TRUE(second.keep_until([&] { return world.caught_up(); })) << world.output();
  EXPECT_EQ(second.deaths(), 0) << world.output();
  EXPECT_EQ(second.stop(), 1) << world.output();
  EXPECT_EQ(reasons(world), "killed_process after 1");

  // Without its row, the message runs although it is below the watermark. Then it is found again.
  EXPECT_EQ(world.query("WITH gone AS (DELETE FROM dead RETURNING 1) SELECT count(*) FROM gone"), "1");
  lower_the_offset(world, 1);
  Orchestrator third(1, [&] { return world.consumer(toml); });
  EXPECT_TRUE(third.keep_until([&] { return world.caught_up(); })) << world.output();
  EXPECT_EQ(third.deaths(), 3) << world.output();
  EXPECT_EQ(third.stop(), 1) << world.output();
  EXPECT_EQ(reasons(world), "killed_process after 1");
  EXPECT_EQ(world.effects().rows, 2);
}

/// PostgreSQL ends the transaction each time.
TEST(Poison, that_is_always_slower_than_handler_timeout_is_a_dead_letter_in_the_end) {
  TURNSTILE_NEEDS_SERVERS();
  World world(WorldOptions{.partitions = 1, .session_timeout_ms = 6'000, .handler_timeout = "300ms"});
  world.publish(5, "before");
  world.publish("slow", "sleep:900");
  world.publish(5, "after");
  Process consumer = world.consumer(world.toml("retry.attempts = 2\n"));
  EXPECT_TRUE(eventually([&] { return world.effects().distinct == 10 && world.caught_up(); }, 60s)) << world.output();
  EXPECT_EQ(world.effects().rows, 10);
  EXPECT_EQ(reasons(world), "failed after 2") << world.output();
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(20s), 0) << world.output();
}

TEST(Poison, of_a_poll_loop_is_a_dead_letter_in_the_end) {
  TURNSTILE_NEEDS_SERVERS();
  World world(quick(1));
  world.publish(50, "before");
  world.publish("poison", "abort", "7");
  world.publish(49, "after");
  const std::string file = world.folder() + "/loop.toml";
  std::ofstream(file) << world.toml("retry.attempts = 1\n", kLocks);
  Orchestrator one(1, [&] {
    return Process(std::string(TURNSTILE_BIN_DIR) + "/poll_loop", {file, world.topic(), world.schema()}, {},
                   world.folder() + "/output");
  });
  EXPECT_TRUE(one.keep_until([&] { return world.effects().distinct == 99 && world.caught_up(); })) << world.output();
  EXPECT_EQ(world.effects().rows, 99);
  EXPECT_EQ(reasons(world), "killed_process after 1") << world.output();
  EXPECT_EQ(one.deaths(), 3) << world.output();
  EXPECT_EQ(one.stop(), 1) << world.output();
}

}  // namespace
}  // namespace turnstile::test
