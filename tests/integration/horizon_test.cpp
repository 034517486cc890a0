// Messages that are older than the remembered ids, on the real PostgreSQL and the real Apache Kafka. They become dead
// letters, and never run unnoticed.

#include <gmock/gmock.h>

#include <atomic>

#include "tests/support/running.hpp"
#include "tests/support/world.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class Horizon : public ::testing::TestWithParam<const char*> {};

TEST_P(Horizon, what_may_have_been_forgotten_is_put_aside) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  const Config config = world.config("mode = \"" + std::string(GetParam()) + "\"\n");
  std::atomic<int> effects = 0;
  const auto handler = [&](const Message&, Context&) { ++effects; };
  const auto add = [&](Consumer& app) { app.topic(world.topic(), handler | dead_letter()); };
  const auto publish = [&](const std::string& id, std::chrono::hours age) {
    OwnedMessage message;
    message.topic = world.topic();
    message.partition = -1;
    message.payload = id;
    message.headers = {{"message-id", id}};
    message.timestamp = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now()) - age;
    world.publish(message);
  };
  publish("old", 3h);
  {
    Running consumer(config, add);
    EXPECT_TRUE(eventually([&] { return effects == 1 && world.caught_up(); })) << consumer.log_text();
    EXPECT_EQ(consumer.stop(), "");
  }
  // The state that the purger leaves, long after the messages.
  static_cast<void>(world.query(
      "WITH gone AS (DELETE FROM inbox RETURNING handler) INSERT INTO horizon (handler, forgotten_before) "
      "SELECT handler, now() - interval '1 hour' FROM gone "
      "ON CONFLICT (handler) DO UPDATE SET forgotten_before = excluded.forgotten_before RETURNING handler"));
  publish("old", 3h);
  publish("young", 0h);
  Running consumer(config, add);
  EXPECT_TRUE(eventually([&] { return effects == 2 && world.caught_up(); })) << consumer.log_text();
  EXPECT_EQ(world.query("SELECT convert_from(record_payload, 'UTF8') || ' ' || reason FROM dead"), "old too_old");
  EXPECT_THAT(world.query("SELECT error FROM dead"),
              AllOf(HasSubstr("all ids are stored only since"), HasSubstr("turnstile dlq replay"),
                    HasSubstr("too_old = \"run\"")));
  EXPECT_EQ(world.query("SELECT count(*) FROM claim"), "0");
  EXPECT_EQ(consumer.stop(), "");
  EXPECT_EQ(effects, 2);
}

INSTANTIATE_TEST_SUITE_P(EachMode, Horizon, ::testing::Values("transactional", "leased"),
                         [](const auto& mode) { return std::string(mode.param); });

}  // namespace
}  // namespace turnstile::test
