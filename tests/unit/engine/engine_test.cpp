// The engine on the in-memory broker and store: fast, and with faults that a real server shows only rarely.

#include <set>

#include "tests/support/forwarding_store.hpp"
#include "tests/unit/engine/engine_fixture.hpp"
#include "turnstile/error.hpp"
#include "turnstile/ports/limiter.hpp"

namespace turnstile {
namespace {

using namespace test;

/// The decorator observe() calls it.
class Assignments final : public Observer {
 public:
  void on_assigned(const TopicPartition& at, Epoch) noexcept override { tell("+" + to_string(at)); }
  void on_revoked(const TopicPartition& at) noexcept override { tell("-" + to_string(at)); }
  std::multiset<std::string> told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }

 private:
  void tell(std::string text) {
    const std::lock_guard lock(mutex_);
    told_.insert(std::move(text));
  }
  std::mutex mutex_;
  std::multiset<std::string> told_;
};

TEST_F(EngineTest, tells_the_decorator_observe_of_the_assignments_of_its_topic_alone) {
  topic("a", 2);
  topic("b", 1);
  const auto of_a = std::make_shared<Assignments>(), of_b = std::make_shared<Assignments>(),
             of_all = std::make_shared<Assignments>();
  Consumer app(config(), Backends{broker, inbox});
  const auto nothing = [](const Message&) {};
  app.topic("a", Pipeline(nothing) | transactional() | observe(of_a)).topic("b", Pipeline(nothing) | observe(of_b));
  app.observe(of_all).handle_signals(false).logger(logger);
  auto thread = start(app);
  ASSERT_TRUE(eventually([&] { return of_all->told().size() == 3; })) << log_text();
  app.stop();
  thread.join();
  EXPECT_EQ(failure, "");
  EXPECT_THAT(of_a->told(), ::testing::UnorderedElementsAre("+a[0]", "+a[1]", "-a[0]", "-a[1]"));
  EXPECT_THAT(of_b->told(), ::testing::UnorderedElementsAre("+b[0]", "-b[0]"));
  EXPECT_EQ(of_all->told().size(), 6U);
}

TEST_F(EngineTest, says_that_the_groups_offset_lies_below_the_watermark) {
  topic("t", 1);
  publish("t", 20);
  const auto run_until = [&](std::int64_t done, std::int64_t duplicates) {
    const auto app = consumer("t", Pipeline(kEffect) | transactional(), config());
    auto thread = start(*app);
    EXPECT_TRUE(eventually([&] {
      return counts->done == done && counts->duplicates == duplicates && all_committed("t", 1);
    })) << log_text();
    app->stop();
    thread.join();
  };
  run_until(20, 0);
  struct Member final : ports::AssignmentListener {
    std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition>) override { return {}; }
    void on_revoked(std::span<const TopicPartition>, bool) override {}
  } member;
  const auto resetting = broker->open_consumer();
  resetting->subscribe({"t"}, member);
  resetting->poll(100ms);
  resetting->commit(std::vector<ports::OffsetCommit>{{{"t", 0}, 5}}, true);
  resetting->close();
  ASSERT_EQ(broker->committed({"t", 0}), 5);
  run_until(20, 15);
  EXPECT_NE(log_text().find("starting at Kafka's offset 5, below the database's watermark 20"), std::string::npos)
      << log_text();
}

TEST_F(EngineTest, settles_every_message_once_in_each_order) {
  for (const Order order : {Order::partition, Order::key, Order::none}) {
    const std::string name = "t" + std::to_string(static_cast<int>(order));
    topic(name, 3);
    publish(name, 500);
    publish(name, 100);  // the same messages again
    auto app = consumer(name, kEffect | transactional() | ordered_by(order), config());
    auto thread = start(*app);
    EXPECT_TRUE(eventually([&] { return all_committed(name, 3); }));
    app->stop();
    thread.join();
    EXPECT_EQ(failure, "");
  }
  EXPECT_EQ(inbox->committed().size(), 1500U);
  EXPECT_EQ(counts->done, 1500);
  EXPECT_EQ(counts->duplicates, 300);
}

TEST_F(EngineTest, loses_and_repeats_nothing_while_members_come_and_go) {
  topic("t", 6);
  std::vector<std::unique_ptr<Consumer>> apps;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    apps.push_back(consumer("t", kEffect | transactional() | ordered_by(Order::key) | batch(10), config()));
    threads.push_back(start(*apps.back()));
    publish("t", 750, std::to_string(i) + "-");
    const auto so_far = inbox->size();
    EXPECT_TRUE(
        eventually([&] { return inbox->size() > so_far || so_far == 750U * (static_cast<std::size_t>(i) + 1); }));
    if (i == 2) apps[0]->stop();
  }
  EXPECT_TRUE(eventually([&] { return inbox->size() == 3000 && all_committed("t", 6); })) << inbox->size();
  for (auto& app : apps) app->stop();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failure, "");
  EXPECT_EQ(inbox->committed().size(), 3000U);
}

TEST_F(EngineTest, runs_no_more_handlers_at_once_than_the_limit_over_topics_that_share_it) {
  topic("a", 4);
  topic("b", 4);
  publish("a", 200, "a");
  publish("b", 200, "b");
  std::atomic<int> running{0}, most{0};
  const auto handler = [&](const Message&) {
    const int now = ++running;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
    }
    std::this_thread::yield();
    --running;
  };
  auto c = config();
  c.consumer.workers = 16;
  auto app = consumer("a", handler | limit("shared", 3) | ordered_by(Order::none), c);
  app->topic("b", handler | limit("shared", 3) | ordered_by(Order::none));
  auto thread = start(*app);
  EXPECT_TRUE(eventually([&] { return all_committed("a", 4) && all_committed("b", 4); }));
  app->stop();
  thread.join();
  EXPECT_EQ(failure, "");
  EXPECT_LE(most, 3);
  EXPECT_GE(most, 1);
}

/// Remembers what was claimed, and whether the engine waited for it before any handler ran.
class ClaimingLimiters final : public ports::Limiters {
 public:
  std::shared_ptr<ports::Limiter> open(const std::string& name, std::int64_t limit) override {
    return local_->open(name, limit);
  }
  void on_claimed(const std::string&, const std::string&, const TopicPartition&, Epoch) override { ++claimed; }
  void wait_until_claimed() override { known = claimed.load(); }
  std::atomic<int> claimed{0}, known{0};

 private:
  const std::shared_ptr<ports::Limiters> local_ = make_local_limiters();
};

TEST_F(EngineTest, starts_nothing_on_partitions_whose_claims_are_not_known) {
  for (const std::string name : {"plain", "stored"}) {
    topic(name, 4);
    publish(name, 40);
    const auto limiters = std::make_shared<ClaimingLimiters>();
    std::atomic<int> too_soon{0}, ran{0};
    const auto handler = [&](const Message&) {
      ++ran;
      if (limiters->known != limiters->claimed || limiters->claimed == 0) ++too_soon;
    };
    Consumer app(config(), Backends{broker, inbox, limiters});
    auto pipeline = handler | limit("psp", 3);
    app.topic(name, name == "stored" ? std::move(pipeline) | transactional() : std::move(pipeline))
        .observe(counts)
        .handle_signals(false)
        .logger(logger);
    auto thread = start(app);
    EXPECT_TRUE(eventually([&] { return ran == 40; })) << name << ": " << ran << " " << failure;
    app.stop();
    thread.join();
    EXPECT_EQ(too_soon, 0);
    EXPECT_EQ(limiters->claimed, 4);
  }
}

TEST_F(EngineTest, settles_duplicates_while_no_permit_is_to_be_had) {
  topic("t", 1);
  publish("t", 5);
  auto app = consumer("t", kEffect | transactional(), config());
  auto thread = start(*app);
  ASSERT_TRUE(eventually([&] { return inbox->size() == 5; }));
  app->stop();
  thread.join();

  Door door;
  publish("t", 1, "slow", "wait");
  publish("t", 5);  // duplicates behind the message
  auto second = consumer(
      "t",
      [&](const Message& message, Context&) {
        if (message.text() == "wait") door.wait();
      } | transactional() |
          ordered_by(Order::none) | limit(1) | batch(1),
      config());
  auto other = start(*second);
  EXPECT_TRUE(eventually([&] { return counts->duplicates == 5; })) << "they waited for the permit";
  EXPECT_EQ(counts->done, 5) << "the slow one is not done yet";
  door.open();
  EXPECT_TRUE(eventually([&] { return all_committed("t", 1); }));
  second->stop();
  other.join();
}

TEST_F(EngineTest, waits_for_a_database_that_is_away_and_says_so_once) {
  topic("t", 2);
  auto app = consumer("t", kEffect | transactional(), config());
  auto thread = start(*app);
  publish("t", 10);
  ASSERT_TRUE(eventually([&] { return inbox->size() == 10; }));
  inbox->set_unavailable(true);
  publish("t", 50, "later");
  ASSERT_TRUE(eventually([&] { return counts->store_lost > 0; }));
  inbox->set_unavailable(false);
  EXPECT_TRUE(eventually([&] { return inbox->size() == 60 && all_committed("t", 2); })) << log_text();
  app->stop();
  thread.join();
  EXPECT_EQ(counts->store_lost, 1);
  EXPECT_EQ(counts->store_back, 1);
  EXPECT_EQ(counts->retries, 0) << "a database that is away is no failed attempt";
}

TEST_F(EngineTest, goes_on_without_a_database_where_it_is_told_to_and_counts_it) {
  topic("closed", 1);
  topic("open", 1);
  std::atomic<int> closed{0}, opened{0};
  auto app = consumer(
      "open", Pipeline([&](const Message&, Context&) { ++opened; }) | leased(5s) | on_store_down(StoreDownPolicy::run),
      config());
  app->topic("closed", Pipeline([&](const Message&, Context&) { ++closed; }) | leased(5s));
  auto thread = start(*app);
  publish("open", 3, "first");
  ASSERT_TRUE(eventually([&] { return opened == 3 && all_committed("open", 1); }));
  inbox->set_unavailable(true);
  publish("open", 100);
  publish("closed", 5);
  ASSERT_TRUE(eventually([&] { return opened == 103 && all_committed("open", 1); }));
  EXPECT_EQ(counts->unclaimed, 100);
  EXPECT_EQ(closed, 0);
  EXPECT_EQ(inbox->size(), 3U);
  inbox->set_unavailable(false);
  ASSERT_TRUE(eventually([&] { return closed == 5 && all_committed("closed", 1); }));
  publish("open", 3, "last");
  ASSERT_TRUE(eventually([&] { return inbox->size() == 11; })) << "claimed again";
  app->stop();
  thread.join();
  EXPECT_THAT(log_text(),
              ::testing::HasSubstr("topic open: its handlers keep running without claims, because store_down is run"));
  EXPECT_THAT(log_text(), ::testing::HasSubstr("topic open: 100 messages ran without a claim during the outage"));
}

/// This includes what runs when the database becomes unavailable. The next owner does not repeat what was done without
/// the database.
TEST_F(EngineTest, repeats_nothing_of_what_it_did_without_a_database) {
  topic("t", 4);
  Door door;
  std::atomic<int> inside{0};
  std::mutex runs_mutex;
  std::multiset<std::string> runs;
  const auto pipeline = [&] {
    return Pipeline([&](const Message& message, Context&) {
             ++inside;
             door.wait();
             const std::lock_guard lock(runs_mutex);
             runs.insert(std::string(message.header("message-id").value_or("")));
           }) |
           leased(5s) | on_store_down(StoreDownPolicy::run) | ordered_by(Order::none);
  };
  auto app = consumer("t", pipeline(), config());
  auto thread = start(*app);
  publish("t", 100);
  ASSERT_TRUE(eventually([&] { return inside == 8; })) << "each worker has one";
  inbox->set_unavailable(true);
  door.open();
  const auto ran = [&] {
    const std::lock_guard lock(runs_mutex);
    return runs.size();
  };
  EXPECT_TRUE(eventually([&] { return ran() == 100 && all_committed("t", 4); })) << ran();
  app->stop();
  thread.join();
  EXPECT_EQ(failure, "");

  inbox->set_unavailable(false);
  auto next = consumer("t", pipeline(), config());
  thread = start(*next);
  publish("t", 10, "after");
  EXPECT_TRUE(eventually([&] { return ran() >= 110 && all_committed("t", 4); }));
  next->stop();
  thread.join();
  EXPECT_EQ(ran(), 110U);
  for (const auto& run : runs) EXPECT_EQ(runs.count(run), 1U) << run;
}

/// The engine detects this from what was done in the handlers' transactions. The watermark is behind that, and a killed
/// process has not moved it.
TEST_F(EngineTest, reads_a_topic_that_was_recreated_from_its_beginning_where_offsets_number_its_records) {
  topic("t", 1);
  const TopicPartition at{"t", 0};
  const Config c = config();
  const auto claim = inbox->claim_partitions(c.group(), {&at, 1}, 1s).front();
  const auto session = inbox->open_session();
  const ports::InboxEntry tenth{.id = MessageId::from("t 9"), .offset = 9};
  const HandlerId handler = inbox->register_handler("t");
  session->begin({.handler = handler, .fence = claim.fence, .mode = Mode::by_offset}, {&tenth, 1});
  session->commit();

  publish("t", 3);
  std::atomic<int> ran{0};
  auto app = consumer("t", Pipeline([&](const Message&, Context&) { ++ran; }) | by_offset(), c);
  auto thread = start(*app);
  EXPECT_TRUE(eventually([&] { return ran == 3 && all_committed("t", 1); })) << ran;
  app->stop();
  thread.join();
  EXPECT_THAT(log_text(), ::testing::HasSubstr(
                              "the topic was recreated: it ends at offset 3 and the database has settled it up to 10"));
}

TEST_F(EngineTest, refuses_to_start_while_the_database_is_away) {
  topic("t", 2);
  publish("t", 10);
  auto app = consumer("t", kEffect | transactional(), config());
  inbox->set_unavailable(true);
  auto thread = start(*app);
  thread.join();
  EXPECT_NE(failure, "");  // the message contains the reason
  failure.clear();
  inbox->set_unavailable(false);
  auto again = consumer("t", kEffect | transactional(), config());
  auto other = start(*again);
  EXPECT_TRUE(eventually([&] { return inbox->size() == 10; }));
  again->stop();
  other.join();
  EXPECT_EQ(failure, "");
}

TEST_F(EngineTest, asks_a_handler_to_stop_when_its_time_is_over) {
  topic("t", 1);
  publish("t", 1);
  std::atomic<bool> asked{false};
  auto app = consumer(
      "t",
      [&](const Message&, Context& context) {
        asked = eventually([&] { return context.stop_token().stop_requested(); }, 10s);
      } | handler_timeout(50ms),
      config());
  auto thread = start(*app);
  EXPECT_TRUE(eventually([&] { return all_committed("t", 1); }));
  app->stop();
  thread.join();
  EXPECT_TRUE(asked);
  EXPECT_NE(log_text().find("handler_timeout (50 ms)"), std::string::npos) << log_text();
}

TEST_F(EngineTest, names_the_message_that_holds_a_partition) {
  topic("t", 1);
  publish("t", 3);
  Door door;
  auto c = config();
  c.consumer.stall_after = 100ms;
  auto app = consumer(
      "t",
      [&](const Message& message) {
        if (message.offset() == 1) door.wait();
      },
      c);
  auto thread = start(*app);
  EXPECT_TRUE(eventually([&] { return counts->stalled_at == 1; }));
  door.open();
  EXPECT_TRUE(eventually([&] { return all_committed("t", 1); }));
  app->stop();
  thread.join();
}

TEST_F(EngineTest, does_not_hold_up_other_keys_while_one_is_retried) {
  topic("t", 1);
  publish("t", 70);
  std::atomic<int> others{0};
  auto c = config();
  auto app = consumer(
      "t",
      [&](const Message& message) {
        if (message.key() == "3" && others < 60) throw std::runtime_error("not before the others");
        if (message.key() != "3") ++others;
      } | ordered_by(Order::key) |
          retry(exponential{5ms, 1000, 20ms}),
      c);
  auto thread = start(*app);
  EXPECT_TRUE(eventually([&] { return all_committed("t", 1); }));
  app->stop();
  thread.join();
  EXPECT_EQ(others, 60);
}

TEST_F(EngineTest, lets_running_handlers_finish_when_it_is_stopped) {
  topic("t", 1);
  publish("t", 1);
  Door door;
  std::atomic<bool> inside{false};
  auto app = consumer(
      "t",
      [&](const Message&, Context& context) {
        inside = true;
        door.wait();
        context.tx().exec("INSERT");
      } | transactional(),
      config());
  auto thread = start(*app);
  ASSERT_TRUE(eventually([&] { return inside.load(); }));
  app->stop();
  door.open();
  thread.join();
  EXPECT_EQ(inbox->committed().size(), 1U);
  EXPECT_TRUE(all_committed("t", 1));
}

TEST_F(EngineTest, refuses_to_start_with_settings_that_contradict_each_other_all_at_once) {
  topic("a", 1);
  auto app = consumer("a", kEffect | transactional() | handler_id("same") | limit(0), config());
  app->topic("b", kEffect | transactional() | handler_id("same"));
  start(*app).join();
  EXPECT_NE(failure.find("handler id 'same' also belongs to topic 'a'"), std::string::npos) << failure;
  EXPECT_NE(failure.find("limit"), std::string::npos) << failure;
}

TEST_F(EngineTest, names_its_topics_when_the_configuration_has_another_one) {
  auto c = config();
  c.topics["paymnets"].limit = 1;
  auto app = consumer("orders", kEffect | transactional(), c);
  app->topic("payments", kEffect | transactional());
  start(*app).join();
  EXPECT_NE(failure.find("topics.paymnets: the program has no handler for this topic; known: orders, payments; did you "
                         "mean 'payments'?"),
            std::string::npos)
      << failure;
  for (int i = 10; i < 22; ++i) app->topic("topic" + std::to_string(i), kEffect | transactional());
  start(*app).join();
  EXPECT_NE(
      failure.find("known: orders, payments, topic10, topic11, topic12, topic13, topic14, topic15, topic16, topic17 "
                   "and 4 more; did you mean 'payments'?"),
      std::string::npos)
      << failure;
}

TEST_F(EngineTest, names_topics_that_do_not_exist_and_how_to_create_them) {
  auto app = consumer("nowhere", kEffect | transactional() | dead_letter() | replies("nowhere.replies"), config());
  start(*app).join();
  EXPECT_NE(failure.find("topic 'nowhere' does not exist; create it: kafka-topics.sh"), std::string::npos) << failure;
  EXPECT_NE(failure.find("dead letter topic 'nowhere.dlq' does not exist"), std::string::npos) << failure;
  EXPECT_NE(failure.find("reply topic 'nowhere.replies' does not exist"), std::string::npos) << failure;
}

TEST_F(EngineTest, runs_other_topics_while_handlers_of_a_deleted_topic_end) {
  topic("t", 2);
  topic("other", 1);
  Door door;
  std::atomic<int> waiting{0};
  Config c = config();
  c.consumer.drain_timeout = 1h;
  auto app = consumer("t", Pipeline([&](const Message&, Context&) {
                        ++waiting;
                        door.wait();
                      }),
                      c);
  std::atomic<int> others{0};
  app->topic("other", Pipeline([&](const Message&, Context&) { ++others; }));
  publish("t", 20);
  auto thread = start(*app);
  EXPECT_TRUE(eventually([&] { return waiting == 2; })) << log_text();
  broker->delete_topic("t");
  EXPECT_TRUE(eventually([&] { return log_text().find("was deleted in Kafka") != std::string::npos; }));
  topic("t", 2);
  EXPECT_TRUE(eventually([&] { return log_text().find("running handlers finish") != std::string::npos; }));
  publish("other", 1);
  EXPECT_TRUE(eventually([&] { return others == 1; }, 10s)) << log_text();
  door.open();
  app->stop();
  thread.join();
}

/// Its dead letters are stored when the door is open.
class HoldsDeadLetters final : public ForwardingStore {
 public:
  HoldsDeadLetters(std::shared_ptr<ports::Store> inner, std::shared_ptr<Door> door)
      : ForwardingStore(std::move(inner)), door_(std::move(door)) {}
  bool record_dead(const ports::DeadMessage& message) override {
    waits = true;
    door_->wait();
    return ForwardingStore::record_dead(message);
  }
  std::atomic<bool> waits{false};

 private:
  std::shared_ptr<Door> door_;
};

TEST_F(EngineTest, tells_whether_a_handler_or_another_system_holds_up_the_end) {
  for (const bool in_handler : {true, false}) {
    const std::string of = in_handler ? "in-handler" : "in-store";
    topic(of, 1);
    topic(of + ".dlq", 1);
    publish(of, 1, of);
    const auto door = std::make_shared<Door>();
    const auto store = std::make_shared<HoldsDeadLetters>(inbox, door);
    Config c = config();
    c.consumer.drain_timeout = 50ms;
    std::atomic<bool> began{false};
    std::optional<Consumer> app(std::in_place, c, Backends{broker, store});
    app->topic(of, Pipeline([&began, door, in_handler](const Message&) {
                     began = true;
                     if (in_handler) door->wait();
                     return Outcome::dead_letter("no");
                   }) | transactional() |
                       dead_letter())
        .observe(counts)
        .handle_signals(false)
        .logger(logger);
    std::thread runs = start(*app);
    EXPECT_TRUE(eventually([&] { return in_handler ? began.load() : store->waits.load(); }));
    app->stop();
    const std::string expected = in_handler ? "1 handlers still run 2000 ms after their stop_token was set"
                                            : "no handler of them runs: 1 workers wait for PostgreSQL";
    EXPECT_TRUE(eventually([&] { return log_text().find(expected) != std::string::npos; })) << log_text();
    door->open();
    runs.join();
    app.reset();
    // A worker that was left behind may still use what this test has.
    EXPECT_TRUE(eventually([&] { return std::shared_ptr(store).use_count() == 2; }));
  }
}

TEST_F(EngineTest, a_consumer_that_cannot_start_logs_the_code_of_its_error) {
  topic("t", 1);
  const auto app = consumer("t", Pipeline([](const Message&) {}) | transactional() | dead_letter("absent"), config());
  EXPECT_THROW(app->run(), Error);
  EXPECT_NE(log_text().find("the consumer does not start: "), std::string::npos) << log_text();
  EXPECT_NE(log_text().find("code="), std::string::npos) << log_text();
}

}  // namespace
}  // namespace turnstile
