// When a dead letter finds no place, and who may write one.

#include <gtest/gtest.h>

#include <map>

#include "tests/unit/delivery/runner_fixture.hpp"
#include "turnstile/decorators.hpp"
#include "turnstile/error.hpp"

namespace turnstile::detail {
namespace {

using namespace test;

TEST(DeadLetters, holds_a_dead_message_whose_dead_letter_is_refused_and_does_not_run_it_again) {
  const std::vector<Planned> plan{{1, 0, Act::reject, 0}};
  int calls = 0;
  RunnerFixture world({}, [&](const Message&) {
    ++calls;
    return Outcome::dead_letter("no");
  });
  world.broker.refuse("t.dlq", "not authorised");
  const OneBlock block(plan);
  const auto session = world.inbox->open_session();
  RunState watch;
  const Work work{&block.messages()[0], 0, 1};
  for (int i = 0; i < 3; ++i) {
    const auto result = world.runner->run({&work, 1}, world.place, session.get(), watch);
    EXPECT_EQ(result.verdicts[0].kind, Verdict::Kind::retry);
    EXPECT_TRUE(result.refused);
  }
  world.broker.allow("t.dlq");
  EXPECT_EQ(world.runner->run({&work, 1}, world.place, session.get(), watch).verdicts[0].kind, Verdict::Kind::settled);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(world.inbox->dead().size(), 1U);
}

/// The partition went to another member and came back: that one may have settled the message.
TEST(DeadLetters, forgets_deaths_that_found_no_place_when_the_partition_was_lost) {
  int calls = 0;
  RunnerFixture world({}, [&](const Message&) { return ++calls == 1 ? Outcome::dead_letter("no") : Outcome::done(); });
  world.broker.refuse("t.dlq", "not authorised");
  const std::vector<Planned> plan{{1, 0, Act::effect, 0}};
  const OneBlock block(plan);
  const auto session = world.inbox->open_session();
  RunState watch;
  const Work work{&block.messages()[0], 0, 1};
  EXPECT_TRUE(world.runner->run({&work, 1}, world.place, session.get(), watch).refused);
  world.broker.allow("t.dlq");
  world.place.fence = world.inbox->claim_partitions("g", {&world.place.at, 1}, std::chrono::seconds(1)).front().fence;
  EXPECT_EQ(world.runner->run({&work, 1}, world.place, session.get(), watch).counts.done, 1);
  EXPECT_TRUE(world.inbox->dead().empty());
}

/// A process dies after a dead letter and before its offset: where the offset is the id, the next run could not be told from a replay.
TEST(DeadLetters, does_not_run_again_what_died_under_an_earlier_owner_where_offsets_are_the_ids) {
  for (const auto* const source : {"offset", "header:message-id"}) {
    const bool by_offset = std::string_view(source) == "offset";
    TopicSettings settings;
    settings.message_id = source;
    std::vector<Offset> calls;
    RunnerFixture world(settings, [&](const Message& message, Context&) {
      calls.push_back(message.offset());
      return calls.size() == 1 ? Outcome::dead_letter("no") : Outcome::done();
    });
    const std::vector<Planned> plan{{1, 0, Act::effect, 0}, {2, 0, Act::effect, 0}};
    const OneBlock block(plan);
    const auto session = world.inbox->open_session();
    RunState watch;
    const auto run = [&](std::size_t at) {
      const Work work{&block.messages()[at], static_cast<std::uint32_t>(at), 1};
      return world.runner->run({&work, 1}, world.place, session.get(), watch);
    };
    const OwnedPartition before = world.place;
    EXPECT_EQ(run(0).counts.dead, 1);
    const auto claim = world.inbox->claim_partitions("g", {&before.at, 1}, std::chrono::seconds(1)).front();
    EXPECT_EQ(run(1).end, UnitResult::End::fenced);
    world.place = {claim.at, claim.fence, claim.incarnation};
    world.runner->find_dead(world.place, std::nullopt);
    const auto again = run(0);
    EXPECT_EQ(again.verdicts[0].kind, Verdict::Kind::settled);
    EXPECT_EQ(again.counts.dead, by_offset ? 1 : 0) << "an id tells its replay from a first run";
    EXPECT_EQ(run(1).counts.done, 1);
    EXPECT_EQ(calls, by_offset ? (std::vector<Offset>{0, 1}) : (std::vector<Offset>{0, 0, 1}));
    EXPECT_EQ(world.inbox->dead().size(), 1U);
    EXPECT_EQ(world.broker.records("t.dlq").size(), 1U);
  }
}

std::map<std::string, std::string> headers_of(const OwnedMessage& record) {
  std::map<std::string, std::string> headers;
  for (const auto& header : record.headers) EXPECT_TRUE(headers.emplace(header.name, header.value.value_or("")).second);
  return headers;
}

TEST(DeadLetters, one_that_dies_again_keeps_its_first_and_its_last_origin) {
  OwnedMessage message;
  message.topic = "payments";
  message.partition = 3;
  message.offset = 1042;
  message.headers = {{"own", "header"}};
  TopicSettings settings;
  settings.dead_letter = "";
  OwnedMessage letter =
      dead_letter_record(Message(message), plan_topic("payments", settings), {DeadReason::failed, "first", 5});
  EXPECT_FALSE(headers_of(letter).contains("turnstile-first-origin")) << "it has one origin";

  for (const std::string topic : {"payments.dlq", "payments.dlq.dlq"}) {
    letter.topic = topic;
    letter.partition = 0;
    letter.offset = 7;
    letter = dead_letter_record(Message(letter), plan_topic(topic, settings), {DeadReason::rejected, "again", 1});
    const auto headers = headers_of(letter);
    EXPECT_EQ(headers.at("turnstile-first-origin"), "payments[3]@1042");
    EXPECT_EQ(headers.at("turnstile-original-topic"), topic);
    EXPECT_EQ(headers.at("turnstile-original-offset"), "7");
    EXPECT_EQ(headers.at("turnstile-reason"), "rejected");
    EXPECT_EQ(headers.at("own"), "header");
  }

  message.headers = {{"turnstile-replayed-from", "payments[3]@17"}, {"turnstile-replayed-for", "charge"}};
  letter = dead_letter_record(Message(message), plan_topic("payments", settings), {DeadReason::failed, "again", 5});
  EXPECT_EQ(headers_of(letter).at("turnstile-first-origin"), "payments[3]@17");
  EXPECT_EQ(headers_of(letter).at("turnstile-original-offset"), "1042");
}

TEST(DeadLetters, an_owner_that_is_fenced_while_it_sends_a_dead_letter_leaves_the_message_to_the_next) {
  struct Slow final : ports::BrokerProducer {
    explicit Slow(RunnerFixture& w) : world(w) {}
    Sent send(const OwnedMessage&) override {
      world.inbox->claim_partitions("g", {&world.place.at, 1}, std::chrono::seconds(1));
      return {};
    }
    RunnerFixture& world;
  };
  const auto reject = [](const Message&) { return Outcome::dead_letter("no"); };
  RunnerFixture world({}, reject);
  TopicSettings settings;
  settings.mode = Mode::transactional;
  settings.dead_letter = "";
  auto services = world.runner->services();
  services.dead_letters = std::make_shared<DeadLetters>(std::make_shared<Slow>(world), world.inbox);
  TopicRunner runner(plan_topic("t", settings), reject, world.inbox->register_handler("t"), services);
  const std::vector<Planned> plan{{1, 0, Act::reject, 0}};
  const OneBlock block(plan);
  const auto session = world.inbox->open_session();
  RunState watch;
  const Work work{&block.messages()[0], 0, 1};
  const auto result = runner.run({&work, 1}, world.place, session.get(), watch);
  EXPECT_EQ(result.end, UnitResult::End::fenced);
  EXPECT_EQ(result.verdicts[0].kind, Verdict::Kind::put_back);
  EXPECT_FALSE(result.refused);
  EXPECT_TRUE(world.inbox->dead().empty());
}

}  // namespace
}  // namespace turnstile::detail
