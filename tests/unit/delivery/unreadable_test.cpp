// A record whose headers cannot be parsed may be a replay for another handler, and may have an id: no handler runs it.

#include <gtest/gtest.h>

#include "tests/unit/delivery/runner_fixture.hpp"

namespace turnstile::test {
namespace {

/// As the reader of a record that has more headers than the client reads.
class Unreadable final : public HeaderReader {
 public:
  [[nodiscard]] std::vector<HeaderView> all(const void*) const override { return {}; }
  [[nodiscard]] Found find(const void*, std::string_view) const override {
    Found found;
    found.unreadable = true;
    return found;
  }
};

class UnreadableHeaders : public ::testing::TestWithParam<Mode> {};

TEST_P(UnreadableHeaders, make_a_dead_letter_and_run_no_handler) {
  TopicSettings settings;
  settings.mode = GetParam();
  settings.dead_letter = "";
  int calls = 0;
  const Pipeline counting([&](const Message&, Context&) { ++calls; });
  RunnerFixture world({}, counting);
  world.runner = std::make_unique<detail::TopicRunner>(detail::plan_topic("t", settings), counting,
                                                       world.inbox->register_handler("t"), world.services);
  const OneBlock block({{1, 0, Act::effect, 0}, {2, 0, Act::effect, 0}});
  const Unreadable reader;
  const Message& good = block.messages()[0];
  const Message bad({.topic = "t", .offset = 1, .key = "7", .payload = "x"}, reader, nullptr);
  const auto session = world.inbox->open_session();
  detail::RunState watch;
  const detail::Work works[] = {{&good, 0, 1}, {&bad, 1, 1}};
  const auto result = world.runner->run(works, world.place, session.get(), watch);
  EXPECT_EQ(result.counts.done, 1);
  EXPECT_EQ(result.counts.dead, 1);
  EXPECT_EQ(calls, 1) << "the message ran";
  const auto letters = world.broker.records("t.dlq");
  ASSERT_EQ(letters.size(), 1U);
  EXPECT_EQ(Message(letters[0]).header("turnstile-reason"), "unreadable");
}

INSTANTIATE_TEST_SUITE_P(Modes, UnreadableHeaders,
                         ::testing::Values(Mode::transactional, Mode::by_offset, Mode::at_least_once));

}  // namespace
}  // namespace turnstile::test
