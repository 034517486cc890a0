// Topics that are deleted and created again under a running consumer, truncated logs, refused commits, and windows.

#include <algorithm>

#include "tests/support/forwarding_broker.hpp"
#include "tests/unit/engine/engine_log_changes_fixture.hpp"
#include "turnstile/error.hpp"
#include "turnstile/lease_clock.hpp"

namespace turnstile {
namespace {

using namespace test;
using ::testing::HasSubstr;
using ::testing::Not;

struct ModeCase {
  const char* name;
  Pipeline (*over)(Pipeline);
  bool keeps_place = true;  ///< whether the consumer knows what was read after a restart
};
void PrintTo(const ModeCase& c, std::ostream* out) { *out << c.name; }

class RecreatedTopic : public EngineLogs, public ::testing::WithParamInterface<ModeCase> {};

/// The records of the new topic have offsets that were read before. None of them is a duplicate.
TEST_P(RecreatedTopic, is_read_from_its_beginning) {
  topic("t", 1);
  produce(300, "old-");
  auto app = consumer("t", noting(GetParam().over), config());
  auto thread = start(*app);
  ASSERT_TRUE(eventually([&] { return ran_all("old-", 300) && all_committed("t", 1); })) << log_text();
  broker->delete_topic("t");
  ASSERT_TRUE(eventually([&] { return log_text().find("topic t was deleted in Kafka") != std::string::npos; }));
  broker->create_topic("t", 1);
  produce(200, "another-");
  EXPECT_TRUE(eventually([&] { return ran_all("another-", 200) && all_committed("t", 1); }))
      << ran().size() << log_text();
  app->stop();
  thread.join();
  EXPECT_EQ(failure, "");
  const auto all = ran();
  EXPECT_EQ(all.size(), 500U) << "each once";
}

/// No process notices that the topic is missing. When the new topic is read, it is longer than what was read of the old
/// one.
TEST_P(RecreatedTopic, is_read_from_its_beginning_where_it_has_outgrown_what_was_read) {
  topic("t", 1);
  produce(30, "old-");
  auto app = consumer("t", noting(GetParam().over), config());
  auto thread = start(*app);
  ASSERT_TRUE(eventually([&] { return ran_all("old-", 30) && all_committed("t", 1); })) << log_text();
  replace(100);
  EXPECT_TRUE(eventually([&] { return ran_all("another-", 100) && all_committed("t", 1); }))
      << ran().size() << log_text();
  app->stop();
  thread.join();
  EXPECT_EQ(failure, "");
}

struct Asked {
  std::atomic<bool> slow{false};
  std::atomic<int> in_a_row{0}, most{0};  ///< answers between two looks for records of topic other
};

/// Its broker answers questions about a log late, as one does while it waits for records to send.
struct SlowMember final : ForwardingConsumer {
  SlowMember(std::unique_ptr<ports::BrokerConsumer> inner, Asked& s) : ForwardingConsumer(std::move(inner)), state(s) {}
  std::vector<std::optional<std::pair<Offset, Offset>>> bounds(std::span<const TopicPartition> of,
                                                               std::chrono::milliseconds within) override {
    if (state.slow) {
      const auto due = std::chrono::steady_clock::now() + 60ms;
      eventually([&] { return std::chrono::steady_clock::now() >= due; });
      state.most = std::max(state.most.load(), ++state.in_a_row);
    }
    return ForwardingConsumer::bounds(of, within);
  }
  std::unique_ptr<ports::Block> take(const TopicPartition& from, std::size_t most) override {
    if (from.topic == "other") state.in_a_row = 0;
    return ForwardingConsumer::take(from, most);
  }
  Asked& state;
};

/// The answers about many partitions can take seconds.
TEST_P(RecreatedTopic, lets_other_topics_run_while_kafka_is_asked_about_its_partitions) {
  topic("t", 8);
  topic("other", 1);
  produce(40, "old-");
  const auto slow = std::make_shared<ForwardingBroker<SlowMember, Asked>>(broker);
  Consumer app(config(), Backends{slow, inbox});
  app.topic("t", noting(GetParam().over)).handle_signals(false).logger(logger);
  app.topic("other", [](const Message&, Context&) {} | transactional());
  auto thread = start(app);
  ASSERT_TRUE(eventually([&] { return ran_all("old-", 40) && all_committed("t", 8); })) << log_text();
  slow->state.slow = true;
  broker->delete_topic("t");
  ASSERT_TRUE(eventually([&] { return log_text().find("topic t was deleted in Kafka") != std::string::npos; }));
  broker->create_topic("t", 8);
  produce(40, "another-");
  EXPECT_TRUE(eventually([&] { return ran_all("another-", 40) && all_committed("t", 8); })) << log_text();
  slow->state.slow = false;
  app.stop();
  thread.join();
  EXPECT_EQ(failure, "");
  // One partition whose new log begins, and one whose claim was taken: each is asked about twice.
  EXPECT_LE(slow->state.most, 4);
  EXPECT_GT(slow->state.most, 0) << "nothing was asked";
}

/// After an unclean leader election, a record is gone and another one has its offset.
TEST_P(RecreatedTopic, is_not_what_a_truncated_log_is_taken_for) {
  topic("t", 1);
  produce(300, "m");
  auto app = consumer("t", noting(GetParam().over), config());
  auto thread = start(*app);
  ASSERT_TRUE(eventually([&] { return ran_all("m", 300) && all_committed("t", 1); })) << log_text();
  broker->truncate({{"t", 0}, 298});
  produce(310, "instead-", 298);
  EXPECT_TRUE(eventually([&] { return ran_all("instead-", 310, 298); })) << ran().size() << log_text();
  app->stop();
  thread.join();
  if (!GetParam().keeps_place) return;
  EXPECT_EQ(ran().size(), 312U) << "what is still there ran once";
}

TEST_P(RecreatedTopic, is_not_what_a_log_is_taken_for_that_was_truncated_while_nobody_read_it) {
  topic("t", 1);
  produce(300, "m");
  auto app = consumer("t", noting(GetParam().over), config());
  auto thread = start(*app);
  ASSERT_TRUE(eventually([&] { return ran_all("m", 300) && all_committed("t", 1); })) << log_text();
  app->stop();
  thread.join();
  broker->truncate({{"t", 0}, 299});
  auto next = consumer("t", noting(GetParam().over), config());
  thread = start(*next);
  // If only Kafka knows what was read, all that is left is read again.
  ASSERT_TRUE(eventually([&] {
    return GetParam().keeps_place ? log_text().find("records were cut off") != std::string::npos : ran().size() > 300;
  })) << log_text();
  produce(301, "instead-", 299);
  EXPECT_TRUE(eventually([&] { return ran_all("instead-", 301, 299); })) << log_text();
  next->stop();
  thread.join();
  if (!GetParam().keeps_place) return;
  EXPECT_EQ(ran().size(), 302U) << "nothing that it retains ran again";
}

/// Nothing is fetched and nothing is committed: the idle consumer is at the end of both logs. The next one must not begin
/// at the old topic's watermark.
TEST_P(RecreatedTopic, is_read_after_a_restart_where_it_is_as_long_as_the_old_one) {
  topic("t", 1);
  produce(30, "old-");
  auto app = consumer("t", noting(GetParam().over), config());
  auto thread = start(*app);
  ASSERT_TRUE(eventually([&] { return ran_all("old-", 30) && all_committed("t", 1); })) << log_text();
  replace(30);
  app->stop();
  thread.join();
  auto next = consumer("t", noting(GetParam().over), config());
  thread = start(*next);
  EXPECT_TRUE(eventually([&] { return ran_all("another-", 30) && all_committed("t", 1); })) << log_text();
  next->stop();
  thread.join();
  EXPECT_EQ(failure, "");
}

/// The consumer has read all of it and run only some of it when it finds another record.
TEST_P(RecreatedTopic, is_not_what_a_truncated_log_is_taken_for_whose_records_wait) {
  produce_and_hold_the_sixth();
  auto app = consumer("t", noting(GetParam().over) | batch(1), config());
  auto thread = start(*app);
  ASSERT_NO_FATAL_FAILURE(cut_off_while_the_sixth_runs());
  door.open();
  EXPECT_TRUE(eventually([&] { return ran_all("m", 20) && ran_all("instead-", 40, 20); }, 10s)) << log_text();
  app->stop();
  thread.join();
  if (!GetParam().keeps_place) return;
  EXPECT_EQ(ran().size(), 40U) << log_text();
}

INSTANTIATE_TEST_SUITE_P(Each, RecreatedTopic,
                         ::testing::Values(ModeCase{"ids", [](Pipeline p) { return std::move(p) | transactional(); }},
                                           ModeCase{"offsets",
                                                    [](Pipeline p) {
                                                      return std::move(p) | transactional() | id_from("offset");
                                                    }},
                                           ModeCase{"by_offset", [](Pipeline p) { return std::move(p) | by_offset(); }},
                                           ModeCase{"leased", [](Pipeline p) { return std::move(p) | leased(5s); }},
                                           ModeCase{"none", [](Pipeline p) { return p; }, false}),
                         [](const auto& c) { return std::string(c.param.name); });

/// Nothing is fetched and nothing is committed: the idle consumer is at the end of both logs.
TEST_F(EngineLogs, an_idle_consumer_finds_a_recreated_topic_that_is_as_long_as_the_old_one) {
  for (const std::string name : {"t", "u"}) {
    topic(name, 1);
    produce(30, "old-" + name, 0, name);
  }
  auto app = consumer("t", noting([](Pipeline p) { return std::move(p) | by_offset(); }), config());
  app->topic("u", noting([](Pipeline p) { return p; }));
  auto thread = start(*app);
  ASSERT_TRUE(eventually([&] { return ran().size() == 60 && all_committed("t", 1) && all_committed("u", 1); }));
  for (const std::string name : {"t", "u"}) replace(30, "another-" + name, name);
  EXPECT_TRUE(eventually([&] { return ran_all("another-t", 30) && ran_all("another-u", 30); })) << log_text();
  app->stop();
  thread.join();
  EXPECT_EQ(failure, "");
  EXPECT_EQ(ran().size(), 120U);
}

/// The store has no watermark that would make it ask for the group's offset at the assignment.
TEST_F(EngineLogs, an_idle_consumer_finds_a_recreated_topic_also_if_it_committed_no_offset_itself) {
  topic("t", 1);
  produce(30, "old-");
  for (const bool again : {false, true}) {
    auto app = consumer("t", noting([](Pipeline p) { return p; }), config());
    auto thread = start(*app);
    EXPECT_TRUE(eventually([&] { return ran_all("old-", 30) && all_committed("t", 1); })) << log_text();
    if (again) {
      std::this_thread::sleep_for(500ms);  // it asks when it starts
      replace(30);
      EXPECT_TRUE(eventually([&] { return ran_all("another-", 30) && all_committed("t", 1); })) << log_text();
    }
    app->stop();
    thread.join();
  }
  EXPECT_EQ(ran().size(), 60U);
}

/// The other member finds the topic, handles six records, and ends before it commits an offset. This consumer was
/// paused meanwhile.
TEST_F(EngineLogs, goes_on_in_a_recreated_topic_that_another_member_has_begun) {
  topic("t", 1);
  produce(30, "old-");
  auto app = consumer("t", noting([](Pipeline p) { return std::move(p) | by_offset(); }), config());
  auto thread = start(*app);
  ASSERT_TRUE(eventually([&] { return ran_all("old-", 30) && all_committed("t", 1); })) << log_text();
  broker->replace_topic("t", [&](auto& append) {
    const TopicPartition at{"t", 0};
    const Fence fence = inbox->claim_partitions(config().group(), {&at, 1}, 1s).front().fence;
    inbox->begin_incarnation(fence, 0, 0);
    const ports::WatermarkUpdate update{fence, 6};
    inbox->advance_watermarks({&update, 1});
    for (int i = 0; i < 20; ++i) {
      OwnedMessage message;
      message.topic = at.topic;
      message.partition = 0;
      message.payload = "another-" + std::to_string(i);
      append(message);
    }
  });
  EXPECT_TRUE(eventually([&] { return ran_all("another-", 20, 6) && all_committed("t", 1); })) << log_text();
  app->stop();
  thread.join();
  EXPECT_EQ(failure, "");
  EXPECT_EQ(ran().size(), 30U + 14U) << "the other member's do not run again";
}

/// Kafka has deleted the offsets of the group meanwhile, but not the topic.
TEST_F(EngineLogs, does_not_take_a_topic_for_another_one_after_it_was_suspended_for_a_week) {
  topic("t", 1);
  produce(30, "m");
  auto app = consumer("t", noting([](Pipeline p) { return std::move(p) | by_offset(); }), config());
  auto thread = start(*app);
  ASSERT_TRUE(eventually([&] { return ran_all("m", 30) && all_committed("t", 1) && inbox->watermark(1) == 30; }));
  LeaseClock::suspend(std::chrono::days(7));
  broker->delete_offsets();
  produce(40, "m", 30);
  EXPECT_TRUE(eventually([&] { return ran_all("m", 40) && all_committed("t", 1); })) << log_text();
  app->stop();
  thread.join();
  EXPECT_EQ(ran().size(), 40U) << log_text();
}

/// The message has the offset of a message of the old topic, and is a different message.
TEST_F(EngineLogs, buries_a_message_of_a_recreated_topic_at_the_offset_of_an_old_dead_letter) {
  topic("t", 1);
  topic("t.dlq", 1);
  produce(3, "old-");
  auto app = consumer(
      "t",
      Pipeline([](const Message&, Context&) { return Outcome::dead_letter("no"); }) | transactional() | dead_letter(),
      config());
  auto thread = start(*app);
  ASSERT_TRUE(broker->wait_records("t.dlq", 3, 20s));
  ASSERT_TRUE(eventually([&] { return all_committed("t", 1); }));
  broker->delete_topic("t");
  ASSERT_TRUE(eventually([&] { return log_text().find("topic t was deleted in Kafka") != std::string::npos; }));
  broker->create_topic("t", 1);
  produce(3, "another-");
  EXPECT_TRUE(broker->wait_records("t.dlq", 6, 20s)) << log_text();
  EXPECT_TRUE(eventually([&] { return inbox->dead().size() == 6; }));
  app->stop();
  thread.join();
}

/// Mode at_least_once has no fence that tells the two messages apart. Their timestamps can be equal.
TEST_F(EngineLogs, runs_a_message_of_a_recreated_topic_at_the_offset_of_a_dead_letter_that_was_refused) {
  topic("t", 1);
  topic("t.dlq", 1);
  const auto produce_at = [this](const std::string& payload, Timestamp timestamp) {
    OwnedMessage message;
    message.topic = "t";
    message.partition = 0;
    message.payload = payload;
    message.timestamp = timestamp;
    broker->produce(message);
  };
  auto app = consumer("t", Pipeline([this](const Message& message, Context&) {
                             const std::lock_guard lock(runs_mutex);
                             runs.insert(std::string(message.text()));
                             const bool is_old = message.text().starts_with("old-");
                             return is_old ? Outcome::dead_letter("no") : Outcome::done();
                           }) | dead_letter(),
                      config());
  auto thread = start(*app);
  for (const int shift : {0, 1}) {
    text.clear();
    broker->refuse("t.dlq", "full");
    const Timestamp then{1'000'000'000'000ms};
    produce_at("old-" + std::to_string(shift), then);
    ASSERT_TRUE(eventually([&] { return log_text().find("its dead letter was refused") != std::string::npos; }));
    broker->delete_topic("t");
    ASSERT_TRUE(eventually([&] { return log_text().find("topic t was deleted in Kafka") != std::string::npos; }));
    broker->create_topic("t", 1);
    broker->allow("t.dlq");
    const std::string prefix = "another-" + std::to_string(shift) + "-";
    for (int i = 0; i < 3; ++i) produce_at(prefix + std::to_string(i), then + shift * 1ms);
    EXPECT_TRUE(eventually([&] { return ran_all(prefix, 3) && all_committed("t", 1); }, 10s)) << log_text();
    EXPECT_THAT(broker->records("t.dlq"), ::testing::IsEmpty());
    broker->delete_topic("t");
    ASSERT_TRUE(eventually([&] { return log_text().find("topic t was deleted in Kafka") != std::string::npos; }));
    broker->create_topic("t", 1);
  }
  app->stop();
  thread.join();
}

TEST_F(EngineLogs, repeats_an_offset_commit_that_was_refused_although_nothing_more_comes) {
  topic("t", 1);
  std::atomic<int> ran_{0};
  auto app = consumer(
      "t", [&](const Message&) { ++ran_; }, config());
  auto thread = start(*app);
  ASSERT_TRUE(broker->wait_committed({{"t", 0}, 0}, 20s));
  broker->refuse_commits(3);
  produce(10, "m");
  ASSERT_TRUE(eventually([&] { return ran_ == 10; }));
  EXPECT_TRUE(broker->wait_committed({{"t", 0}, 10}, 20s));
  app->stop();
  thread.join();
}

TEST_F(EngineLogs, goes_on_beside_two_slow_messages_for_longer_than_a_window) {
  topic("t", 1);
  std::atomic<int> fast{0};
  produce(5'000, "m");
  auto c = config();
  c.consumer.window = 100;
  auto app = consumer("t",
                      Pipeline([&](const Message& message, Context&) {
                        if (message.offset() == 3 || message.offset() == 50) door.wait();
                        else ++fast;
                      }) | ordered_by(Order::none) |
                          batch(1),
                      c);
  auto thread = start(*app);
  EXPECT_TRUE(eventually([&] { return fast == 4'998; })) << fast;
  EXPECT_TRUE(broker->wait_committed({{"t", 0}, 3}, 20s));
  EXPECT_EQ(broker->committed({"t", 0}), 3) << "all below it is settled, and it is not";
  door.open();
  EXPECT_TRUE(eventually([&] { return all_committed("t", 1); }));
  app->stop();
  thread.join();
}

TEST_F(EngineLogs, commits_past_offsets_that_can_never_be_messages) {
  topic("t", 2);
  produce(5, "m");
  broker->skip_offsets({"t", 0}, 4);
  auto app = consumer("t", kEffect | transactional(), config());
  auto thread = start(*app);
  EXPECT_TRUE(broker->wait_committed({{"t", 0}, 9}, 20s)) << *broker->committed({"t", 0});
  broker->skip_offsets({"t", 1}, 2);
  produce(6, "m", 5);
  EXPECT_TRUE(broker->wait_committed({{"t", 0}, 10}, 20s));
  app->stop();
  thread.join();
  EXPECT_EQ(inbox->size(), 6U);
}

class EngineLogsWindow : public EngineLogs {
 protected:
  /// For 200 records of 100 kB in the topic t.
  void expect_bound() {
    auto c = config();
    c.consumer.window_bytes = 1'000'000;
    std::atomic<int> handled{0};
    auto app = consumer("t", Pipeline([&](const Message&, Context&) {
                               door.wait();
                               ++handled;
                             }) | batch(1),
                        c);
    auto thread = start(*app);
    ASSERT_TRUE(broker->wait_taken({"t", 0}, 1, 20s));
    EXPECT_LE(broker->taken({"t", 0}), 16) << "no more than before their size was known";
    door.open();
    EXPECT_TRUE(eventually([&] { return handled == 200 && all_committed("t", 1); }));
    app->stop();
    thread.join();
  }
};

TEST_F(EngineLogsWindow, holds_no_more_than_its_bytes_of_a_partition) {
  topic("t", 1);
  for (int i = 0; i < 200; ++i) publish("t", 1, "m" + std::to_string(i), std::string(100'000, 'x'));
  expect_bound();
}

TEST_F(EngineLogsWindow, holds_no_more_than_its_bytes_of_headers) {
  topic("t", 1);
  for (int i = 0; i < 200; ++i) {
    OwnedMessage message = message_of("t", "m" + std::to_string(i));
    message.headers.push_back({"large", std::string(100'000, 'x')});
    broker->produce(message);
  }
  expect_bound();
}

TEST_F(EngineLogs, names_the_records_that_retention_deleted_before_they_were_read) {
  topic("t", 1);
  produce(10, "m");
  auto app = consumer("t", kEffect | transactional(), config());
  auto thread = start(*app);
  ASSERT_TRUE(eventually([&] { return all_committed("t", 1); }));
  app->stop();
  thread.join();
  produce(40, "m", 10);
  broker->delete_before({{"t", 0}, 25});
  auto next = consumer("t", kEffect | transactional(), config());
  thread = start(*next);
  EXPECT_TRUE(eventually([&] { return inbox->size() == 25 && all_committed("t", 1); }));
  next->stop();
  thread.join();
  EXPECT_THAT(log_text(), HasSubstr("Kafka has deleted records before they were read: offsets 10 to 24"));
}

/// The state after a process died between its commit to Kafka and its watermark in the database.
TEST_F(EngineLogs, distinguishes_deleted_records_that_the_group_has_committed_from_lost_ones) {
  struct Nothing final : ports::AssignmentListener {
    std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition>) override { return {}; }
    void on_revoked(std::span<const TopicPartition>, bool) override {}
  };
  for (const Offset first : {25, 30, 35}) {
    broker = std::make_shared<MemoryBroker>();
    inbox = std::make_shared<MemoryInbox>();
    text.clear();
    topic("t", 1);
    produce(10, "m");
    auto app = consumer("t", kEffect | transactional(), config());
    auto thread = start(*app);
    ASSERT_TRUE(eventually([&] { return all_committed("t", 1); }));
    app->stop();
    thread.join();
    produce(40, "m", 10);
    {
      Nothing nothing;
      const auto member = broker->open_consumer();
      member->subscribe({"t"}, nothing);
      const ports::OffsetCommit ahead{{"t", 0}, 30};
      ASSERT_TRUE(eventually([&] {
        member->poll(1ms);
        member->commit({&ahead, 1}, true);
        return broker->committed({"t", 0}) == 30;
      }));
      member->close();
    }
    broker->delete_before({{"t", 0}, first});
    auto next = consumer("t", kEffect | transactional(), config());
    thread = start(*next);
    EXPECT_TRUE(eventually([&] { return inbox->size() == 10 + 40 - static_cast<std::size_t>(first); }));
    next->stop();
    thread.join();
    const std::string settled = "Kafka has deleted offsets 10 to " + std::to_string(std::min<Offset>(first, 30) - 1) +
                                " (retention). The group had committed them as settled";
    EXPECT_THAT(log_text(), HasSubstr(settled));
    if (first > 30)
      EXPECT_THAT(log_text(), HasSubstr("Kafka has deleted records before they were read: offsets 30 to 34"));
    else EXPECT_THAT(log_text(), Not(HasSubstr("lost;")));
  }
}

/// The consumer reports why it ends before it begins to wait, and gives up its partitions in order.
TEST_F(EngineLogs, ends_in_order_when_the_broker_refuses_it_while_it_holds_partitions) {
  struct Member final : ForwardingConsumer {
    Member(std::unique_ptr<ports::BrokerConsumer> inner, const std::atomic<bool>& is_refused)
        : ForwardingConsumer(std::move(inner)), refused(is_refused) {}
    void poll(std::chrono::milliseconds timeout) override {
      ForwardingConsumer::poll(timeout);
      if (refused)
        throw BrokerError(Code::kafka_refused,
                          "kafka: Broker: Static consumer fenced by other consumer with same group.instance.id.");
    }
    const std::atomic<bool>& refused;
  };
  topic("t", 2);
  publish("t", 10);
  const auto refusing = std::make_shared<ForwardingBroker<Member, std::atomic<bool>>>(broker);
  Consumer app(config(), Backends{refusing, inbox});
  app.topic("t", kEffect | transactional()).observe(counts).handle_signals(false).logger(logger);
  auto thread = start(app);
  ASSERT_TRUE(eventually([&] { return inbox->size() == 10; }));
  refusing->state = true;
  thread.join();
  EXPECT_THAT(failure, HasSubstr("Static consumer fenced"));
  EXPECT_THAT(log_text(), HasSubstr("the consumer ends: kafka: Broker: Static consumer fenced"));
  EXPECT_THAT(log_text(), HasSubstr("stopped"));
  EXPECT_TRUE(all_committed("t", 2)) << "what was done is committed all the same";
}

TEST_F(EngineLogs, refuses_dead_letter_topics_that_lead_in_a_circle) {
  for (const auto* const name : {"a", "b", "c"}) topic(name, 1);
  auto app = consumer("a", kEffect | transactional() | dead_letter("b"), config());
  app->topic("b", kEffect | transactional() | dead_letter("c"));
  app->topic("c", kEffect | transactional() | dead_letter("a"));
  start(*app).join();
  EXPECT_THAT(failure, HasSubstr("in a circle, so a failed message would loop forever: a -> b -> c -> a"));
}

/// Two programs, each with one of the topics. Neither of them can see the circle.
TEST_F(EngineLogs, ends_a_circle_of_dead_letter_topics_over_two_programs) {
  topic("a", 1);
  topic("b", 1);
  const auto reject = [](const Message&, Context&) { return Outcome::dead_letter("no"); };
  auto one = consumer("a", Pipeline(reject) | transactional() | dead_letter("b"), config());
  Consumer two(config(), Backends{std::shared_ptr<ports::Broker>(broker), inbox});
  two.topic("b", Pipeline(reject) | transactional() | dead_letter("a")).handle_signals(false).logger(logger);
  auto other = start(two);
  auto thread = start(*one);
  publish("a", 1);
  EXPECT_TRUE(eventually([&] { return log_text().find("it has been a dead letter 16 times") != std::string::npos; }))
      << log_text();
  EXPECT_TRUE(eventually([&] { return all_committed("a", 1) && all_committed("b", 1); }));
  one->stop();
  two.stop();
  thread.join();
  other.join();
  EXPECT_EQ(broker->records("a").size() + broker->records("b").size(), 17U);
}

TEST_F(EngineLogs, a_dead_letter_has_the_time_of_its_death_and_the_records_in_a_header) {
  topic("t", 1);
  topic("t.dlq", 1);
  OwnedMessage message;
  message.topic = "t";
  message.partition = 0;
  message.timestamp = Timestamp(1'000'000'000'000ms);
  message.headers = {{"message-id", "old"}};
  broker->produce(message);
  auto app = consumer(
      "t", Pipeline([](const Message&, Context&) { return Outcome::dead_letter("no"); }) | dead_letter(), config());
  auto thread = start(*app);
  ASSERT_TRUE(broker->wait_records("t.dlq", 1, 20s));
  app->stop();
  thread.join();
  const auto letter = broker->records("t.dlq").front();
  EXPECT_GT(letter.timestamp,
            std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now()) - 1h);
  const Message view(letter);
  EXPECT_EQ(view.header("turnstile-original-timestamp"), "1000000000000");
  EXPECT_EQ(view.header("turnstile-deaths"), "1");
}

}  // namespace
}  // namespace turnstile
