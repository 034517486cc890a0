// A store that is busy when a unit begins.

#include <gtest/gtest.h>

#include "delivery/topic_runner.hpp"
#include "tests/support/captured_log.hpp"
#include "tests/support/forwarding_session.hpp"
#include "tests/unit/delivery/runner_fixture.hpp"
#include "turnstile/error.hpp"

namespace turnstile::detail {
namespace {

using namespace test;

/// As while another session locks a table of the store.
class BusyAtBegin final : public ForwardingSession {
 public:
  using ForwardingSession::ForwardingSession;
  std::vector<ports::Admission> begin(const ports::InboxScope& scope,
                                      std::span<const ports::InboxEntry> entries) override {
    if (busy) throw StoreBusy("turnstile.inbox is locked by pid 4711");
    return inner().begin(scope, entries);
  }
  bool busy = true;
};

TEST(BusyStore, is_reported_once_a_minute_if_it_stays_busy) {
  const std::vector<Planned> plan{{1, 0, Act::effect, 0}};
  const Pipeline effect = acting(
      [&plan](const Message& message, Context& context) { return act_on(plan[0], message.text(), context); }, false);
  RunnerFixture world({}, effect);
  CapturedLog log;
  world.services.run_log = std::make_shared<RunLog>(std::make_shared<spdlog::logger>("t", log.sink()), "test");
  TopicSettings settings;
  settings.mode = Mode::transactional;
  world.runner = std::make_unique<TopicRunner>(plan_topic("t", settings), effect, world.inbox->register_handler("t"),
                                               world.services);
  const OneBlock block(plan);
  BusyAtBegin session(world.inbox->open_session());
  const auto run = [&] {
    RunState watch;
    const Work work{&block.messages()[0], 0, 1};
    return world.runner->run({&work, 1}, world.place, &session, watch).verdicts.front().kind;
  };
  EXPECT_EQ(run(), Verdict::Kind::retry);
  EXPECT_EQ(log.str().find("pid 4711"), std::string::npos) << "one alone is nothing to report";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(), Verdict::Kind::retry);
  const auto first = log.str().find("turnstile.inbox is locked by pid 4711");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(log.str().find("pid 4711", first + 40), std::string::npos) << log.str();
  session.busy = false;
  EXPECT_EQ(run(), Verdict::Kind::settled);
}

}  // namespace
}  // namespace turnstile::detail
