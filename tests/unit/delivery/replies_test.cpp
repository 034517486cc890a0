// What handlers say to the outside: responses, replies, messages; and what a duplicate gets.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include "delivery/topic_runner.hpp"
#include "message/reply.hpp"
#include "turnstile/decorators.hpp"
#include "turnstile/error.hpp"
#include "turnstile/replay.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/testing/inbox.hpp"
#include "turnstile/trace.hpp"

namespace turnstile::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

OwnedMessage request(int number, std::vector<Header> headers = {}) {
  OwnedMessage message;
  message.topic = "t";
  message.offset = number;
  message.key = "key";
  message.payload = std::to_string(number);
  message.headers = std::move(headers);
  message.headers.push_back({"message-id", "id-" + std::to_string(number)});
  return message;
}

// --- where a reply goes

const std::vector<std::string> kAllowed{"replies", "others"};

OwnedMessage reply_of(const OwnedMessage& to) { return std::get<OwnedMessage>(reply_to(Message(to), kAllowed)); }

TEST(Reply, goes_to_the_first_topic_when_none_is_named_under_the_requests_key) {
  const OwnedMessage reply = reply_of(request(1));
  EXPECT_EQ(reply.topic, "replies");
  EXPECT_EQ(reply.key, "key");
  EXPECT_EQ(reply.partition, -1);
  EXPECT_THAT(reply.headers, IsEmpty());
}

TEST(Reply, goes_to_the_topic_that_the_request_names_with_its_correlation_id) {
  EXPECT_EQ(reply_of(request(1, {{"reply-topic", "others"}})).topic, "others");
  const OwnedMessage spring =
      reply_of(request(1, {{"kafka_replyTopic", "others"}, {"kafka_correlationId", "\1\2"}, {"correlation-id", "c"}}));
  EXPECT_EQ(spring.topic, "others");
  EXPECT_THAT(spring.headers, ElementsAre(Header{"correlation-id", "c"}, Header{"kafka_correlationId", "\1\2"}));
}

TEST(Reply, goes_to_no_topic_that_is_not_allowed_and_does_not_repeat_its_name) {
  const auto reply = reply_to(Message(request(1, {{"reply-topic", "payments\x1b[2J"}})), kAllowed);
  EXPECT_EQ(std::get<NoReply>(reply).why, "its header reply-topic names a topic that reply_topics does not allow");
}

TEST(Reply, has_the_same_id_each_time_and_another_for_each_handler_and_request) {
  const MessageId a = MessageId::from("a"), b = MessageId::from("b");
  EXPECT_EQ(reply_id("h", a), reply_id("h", a));
  EXPECT_NE(reply_id("h", a), reply_id("h", b));
  EXPECT_NE(reply_id("h", a), reply_id("other", a));
  EXPECT_NE(reply_id("h", a), a);
}

TEST(Reply, topics_are_separated_by_commas) {
  EXPECT_THAT(split_names(" a, b ,,c"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(split_names(""), IsEmpty());
}

// --- in a transaction

struct World {
  std::shared_ptr<testing::MemoryInbox> inbox = std::make_shared<testing::MemoryInbox>();
  testing::MemoryBroker broker;
  std::unique_ptr<TopicRunner> runner;
  OwnedPartition place;
  int rings = 0;

  explicit World(Pipeline pipeline) {
    broker.create_topic("t.dlq", 1);
    const TopicPartition at{"t", 0};
    const auto claim = inbox->claim_partitions("g", {&at, 1}, std::chrono::seconds(1)).front();
    place = {at, claim.fence, claim.incarnation};
    TopicSettings settings = pipeline.settings;
    settings.mode = Mode::transactional;
    settings.dead_letter = "";
    settings.retry = RetryPolicy{.attempts = 1};
    TopicRunner::Services services;
    services.store = inbox;
    services.dead_letters = std::make_shared<DeadLetters>(broker.open_producer(), inbox);
    services.run_log = std::make_shared<RunLog>(
        std::make_shared<spdlog::logger>("quiet", std::make_shared<spdlog::sinks::null_sink_mt>()), "test");
    services.bell.published = [this] { ++rings; };
    runner = std::make_unique<TopicRunner>(plan_topic("t", settings), std::move(pipeline), inbox->register_handler("t"),
                                           std::move(services));
  }

  UnitResult run(const std::vector<OwnedMessage>& messages) {
    std::vector<Message> views(messages.begin(), messages.end());
    std::vector<Work> works;
    for (std::size_t i = 0; i < views.size(); ++i) works.push_back({.message = &views[i], .seq = i});
    const auto session = inbox->open_session();
    RunState watch;
    return runner->run(works, place, session.get(), watch);
  }
  std::vector<std::string> published() {
    std::vector<std::string> all;
    for (const auto& message : inbox->published())
      all.push_back(message.topic + " " + message.payload.value_or("null"));
    return all;
  }
  std::vector<std::string> errors() {
    std::vector<std::string> all;
    for (const auto& dead : inbox->dead()) all.push_back(dead.error);
    return all;
  }
};

const auto kEcho = [](const Message& message, Context& context) { context.reply("re " + std::string(message.text())); };

TEST(Replies, are_kept_and_sent_once_the_transaction_has_committed) {
  World world(kEcho | transactional() | replies("replies"));
  world.run({request(1), request(2)});
  EXPECT_THAT(world.published(), ElementsAre("replies re 1", "replies re 2"));
  EXPECT_EQ(world.inbox->response({1}, MessageId::from("id-2")), "re 2");
  EXPECT_EQ(world.rings, 1);
}

TEST(Replies, a_published_copy_of_a_replayed_input_is_a_message_of_its_own) {
  World world([](const Message& message, Context& context) {
    OwnedMessage copy = message.own();
    std::erase_if(copy.headers, [](const Header& header) { return header.name == "message-id"; });
    context.publish(copy);
  } | transactional());
  OwnedMessage input = request(1);
  input.headers.push_back({std::string(kReplayedFor), "t"});
  input.headers.push_back({std::string(kReplayedFrom), "t[0]@7"});
  input.headers.push_back({"colour", "red"});
  world.run({input});
  ASSERT_THAT(world.inbox->published(), SizeIs(1));
  const OwnedMessage published = world.inbox->published().front();
  const auto has = [&](std::string_view name) {
    return std::any_of(published.headers.begin(), published.headers.end(),
                       [&](const Header& header) { return header.name == name; });
  };
  EXPECT_FALSE(has(kReplayedFor)) << "other handlers of the topic would skip it";
  EXPECT_FALSE(has(kReplayedFrom));
  EXPECT_TRUE(has("colour"));
}

TEST(Replies, and_messages_belong_to_the_trace_of_their_message) {
  const std::string trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  std::vector<std::string> seen;
  World world(Pipeline([&](const Message& message, Context& context) {
                const auto mine = context.trace();
                seen.push_back(mine ? to_traceparent(*mine) + " " + mine->state : "none");
                context.reply(message.text());
                OwnedMessage event;
                event.topic = "events";
                context.publish(event);
                event.headers = {{"traceparent", "own"}};
                context.publish(event);
              }) |
              transactional() | replies("replies"));
  world.run({request(1, {{"traceparent", trace}, {"tracestate", "a=1"}}), request(2, {{"traceparent", "garbage"}})});
  EXPECT_THAT(seen, ElementsAre(trace + " a=1", "none"));
  std::vector<std::string> sent;
  for (const auto& message : world.inbox->published()) {
    const Message view(message);
    sent.push_back(message.topic + " " + std::string(view.header("traceparent").value_or("none")) + " " +
                   std::string(view.header("tracestate").value_or("none")));
  }
  EXPECT_THAT(sent, ElementsAre("replies " + trace + " a=1", "events " + trace + " a=1", "events own none",
                                "replies none none", "events none none", "events own none"));
}

TEST(Replies, are_only_kept_where_no_topic_is_given) {
  World world(kEcho | transactional());
  world.run({request(1)});
  EXPECT_THAT(world.published(), IsEmpty());
  EXPECT_EQ(world.inbox->response({1}, MessageId::from("id-1")), "re 1");
  EXPECT_EQ(world.rings, 0);
}

TEST(Replies, to_a_topic_that_is_not_allowed_are_only_kept) {
  World world(kEcho | transactional() | replies("replies"));
  world.run({request(1, {{"reply-topic", "elsewhere"}})});
  EXPECT_THAT(world.published(), IsEmpty());
  EXPECT_EQ(world.inbox->response({1}, MessageId::from("id-1")), "re 1");
}

TEST(Replies, of_duplicates_are_those_of_the_first_bit_for_bit) {
  int runs = 0;
  World world([&runs](const Message&, Context& context) { context.reply("run " + std::to_string(++runs)); } |
              transactional() | replies("replies") | on_duplicate(DuplicatePolicy::replay));
  world.run({request(1)});
  const auto again = world.run({request(1), request(2), request(1, {{"correlation-id", "third"}})});
  EXPECT_EQ(again.counts.duplicates, 2);
  EXPECT_EQ(runs, 2);
  EXPECT_THAT(world.published(), ElementsAre("replies run 1", "replies run 2", "replies run 1", "replies run 1"));
  const auto all = world.inbox->published();
  EXPECT_EQ(all[0].headers.back(), all[2].headers.back()) << "its message-id, too";
  EXPECT_EQ(all[3].headers.front(), (Header{"correlation-id", "third"})) << "to whoever asks";
}

TEST(Replies, of_a_duplicate_in_the_same_batch_are_those_of_the_first) {
  World world(kEcho | transactional() | replies("replies") | on_duplicate(DuplicatePolicy::replay));
  world.run({request(1), request(1)});
  EXPECT_THAT(world.published(), ElementsAre("replies re 1", "replies re 1"));
}

/// A copy of the new message, from another partition, has waited for the end of the transaction. Its id says nothing of
/// the answer.
TEST(Replies, of_duplicates_are_sent_though_copies_of_others_took_effect_elsewhere) {  // hazard: commit-in-doubt
  World world(kEcho | transactional() | replies("replies") | on_duplicate(DuplicatePolicy::replay));
  world.run({request(1)});
  world.inbox->fail_next_commit(testing::CommitFault::in_doubt_elsewhere);
  const auto doubted = world.run({request(1), request(2)});
  EXPECT_NE(doubted.verdicts[0].kind, Verdict::Kind::settled);
  world.run({request(1), request(2)});
  EXPECT_THAT(world.published(), ElementsAre("replies re 1", "replies re 1"));
}

TEST(Replies, to_duplicates_are_not_sent_where_they_are_skipped) {
  World world(kEcho | transactional() | replies("replies"));
  world.run({request(1)});
  world.run({request(1)});
  EXPECT_THAT(world.published(), SizeIs(1));
}

TEST(Replies, of_a_message_that_fails_were_never_given) {
  World world([](const Message& message, Context& context) {
    context.reply("never");
    context.publish({.topic = "orders", .key = {}, .payload = "never", .headers = {}});
    if (message.text() == "2") throw std::runtime_error("no");
  } | transactional() |
              replies("replies"));
  world.run({request(1), request(2), request(3)});
  EXPECT_EQ(world.inbox->response({1}, MessageId::from("id-2")), std::nullopt);
  EXPECT_THAT(world.published(), SizeIs(4)) << "of two messages, a reply and a message each";
  EXPECT_THAT(world.errors(), ElementsAre("no"));
}

TEST(Replies, above_the_bound_fail_their_message_with_both_sizes) {
  Pipeline pipeline = [](const Message&, Context& context) { context.reply(std::string(11, 'x')); } | transactional();
  pipeline.settings.max_response = 10;
  World world(std::move(pipeline));
  world.run({request(1)});
  EXPECT_THAT(
      world.errors(),
      ElementsAre(
          "the response has 11 bytes, more than max_response of topic 't' (10); raise max_response, or reply with less"));
}

TEST(Replies, are_given_once) {
  World world([](const Message&, Context& context) {
    context.reply("one");
    context.reply("two");
  } | transactional());
  world.run({request(7)});
  EXPECT_THAT(world.errors(), ElementsAre("handler 't' replied twice to t[0]@7"));
}

TEST(Replies, of_a_span_handler_name_their_message) {
  World world([](std::span<const Message> messages, Context& context) {
    for (const Message& message : messages) context.reply(message, "re " + std::string(message.text()));
  } | transactional() |
              replies("replies"));
  world.run({request(1), request(2)});
  EXPECT_THAT(world.published(), ElementsAre("replies re 1", "replies re 2"));
  EXPECT_EQ(world.inbox->response({1}, MessageId::from("id-1")), "re 1");
}

TEST(Replies, of_a_span_handler_without_a_message_or_to_a_stranger_say_what_is_wrong) {
  World nameless([](std::span<const Message>, Context& context) { context.reply("to whom"); } | transactional());
  nameless.run({request(1)});
  EXPECT_THAT(nameless.errors(),
              ElementsAre(HasSubstr("name the message that it replies to: ctx.reply(message, body)")));
  const OwnedMessage other = request(99);
  World stranger([&other](std::span<const Message>, Context& context) { context.reply(Message(other), "x"); } |
                 transactional());
  stranger.run({request(1)});
  EXPECT_THAT(stranger.errors(), ElementsAre(HasSubstr("replied to t[0]@99, which is not among the messages")));
}

TEST(Replies, without_a_database_say_what_to_do) {
  const Context context({.handler = "charge"});
  EXPECT_THROW(context.reply("x"), std::logic_error);
  try {
    context.publish({});
    FAIL() << "published into nothing";
  } catch (const std::logic_error& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr("handler 'charge' published a message, but in mode at_least_once a handler has no transaction; "
                  "add transactional()"));
  }
}

TEST(Published, to_what_can_be_no_topic_is_refused) {
  World world([](const Message& message, Context& context) {
    OwnedMessage to;
    to.topic = message.offset() == 1 ? "" : "a b";
    context.publish(to);
  } | transactional());
  world.run({request(1), request(2)});
  const std::string names = "is not a valid topic name: Kafka allows 1 to 249 letters, digits, '.', '_' and '-'";
  EXPECT_THAT(world.errors(), ElementsAre("handler 't' published a message: '' " + names,
                                          "handler 't' published a message: 'a b' " + names));
}

TEST(Published, with_the_id_that_the_handler_gave_it) {
  World world([](const Message&, Context& context) {
    OwnedMessage to;
    to.topic = "out";
    to.headers = {{"message-id", "order-17"}};
    context.publish(to);
  } | transactional());
  world.run({request(1)});
  ASSERT_THAT(world.inbox->published(), SizeIs(1));
  EXPECT_THAT(world.inbox->published().front().headers, ElementsAre(Header{"message-id", "order-17"}));
}

TEST(Published, with_what_can_be_no_id_is_refused) {
  World world([](const Message& message, Context& context) {
    OwnedMessage to;
    to.topic = "out";
    to.headers = {{"message-id", ""}};
    if (message.offset() == 2) to.headers = {{"message-id", std::nullopt}};
    if (message.offset() == 3) to.headers = {{"message-id", "a"}, {"message-id", "b"}};
    context.publish(to);
  } | transactional());
  world.run({request(1), request(2), request(3)});
  const std::string begin = "handler 't' published a message to topic 'out': its header 'message-id' ";
  const std::string remedy = "; set the header to one id, or remove it: Turnstile then gives the message an id";
  EXPECT_THAT(world.errors(), ElementsAre(begin + "is empty" + remedy, begin + "has no value" + remedy,
                                          begin + "appears 2 times" + remedy));
}

}  // namespace
}  // namespace turnstile::detail
