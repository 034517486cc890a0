// A database goes back to an earlier state (a failover to a replica that lagged, or a backup). The messages that it
// lost are read again. The tests use the in-memory broker and a store that can be set back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "tests/support/captured_log.hpp"
#include "tests/support/eventually.hpp"
#include "turnstile/error.hpp"
#include "turnstile/poll_loop.hpp"
#include "turnstile/sender.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/testing/inbox.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MemoryBroker;
using testing::MemoryInbox;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::int32_t kSlot = 1;  // the slot of the only partition

class Failover : public ::testing::Test {
 protected:
  void SetUp() override {
    broker->create_topic("t", 1);
    broker->create_topic("t.dlq", 1);
    config.consumer.commit_interval = 10ms;
    config.consumer.drain_timeout = 5s;
  }
  void TearDown() override { stop(); }

  void publish(int n) {
    for (int i = 0; i < n; ++i) {
      OwnedMessage message;
      message.topic = "t";
      message.partition = 0;
      message.key = std::to_string(published % 5);
      message.payload = std::to_string(published++);
      message.headers = {{"message-id", "m" + *message.payload}};
      broker->produce(message);
    }
  }
  /// Makes an effect in the transaction if there is one, and notes the run.
  auto handler() {
    return Pipeline([this](const Message& message, Context& context) {
      {
        const std::lock_guard lock(mutex);
        ++runs[std::stoi(std::string(message.text()))];
      }
      if (act) act(message);
      if (transactions) context.tx().exec("INSERT", std::string(message.text()));
    });
  }
  void start(Pipeline pipeline) {
    app = std::make_unique<Consumer>(config, Backends{broker, inbox});
    app->topic("t", std::move(pipeline) | dead_letter()).handle_signals(false).logger(logger);
    thread = std::thread([this] {
      try {
        app->run();
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex);
        failure = e.what();
      }
    });
  }
  void stop() {
    if (!app) return;
    app->stop();
    thread.join();
    app.reset();
  }
  /// How many effects each message has in the database, in the order of the messages.
  std::vector<int> effects() {
    std::vector<int> all(static_cast<std::size_t>(published));
    for (const auto& statement : inbox->committed())
      ++all[static_cast<std::size_t>(std::stoi(*statement.params.at(0)))];
    return all;
  }
  std::vector<int> all_runs() {
    const std::lock_guard lock(mutex);
    std::vector<int> all(static_cast<std::size_t>(published));
    for (const auto& [which, times] : runs) all[static_cast<std::size_t>(which)] = times;
    return all;
  }
  bool all_took_effect() {
    const auto made = effects();
    return std::all_of(made.begin(), made.end(), [](int times) { return times > 0; });
  }
  bool watermark_is(Offset offset) { return inbox->watermark(kSlot) == offset; }
  bool committed(Offset offset) { return broker->committed({"t", 0}) == offset; }
  std::string log_text() {
    logger->flush();
    return text.str();
  }

  Config config;
  std::shared_ptr<MemoryBroker> broker = std::make_shared<MemoryBroker>();
  std::shared_ptr<MemoryInbox> inbox = std::make_shared<MemoryInbox>();
  std::unique_ptr<Consumer> app;
  std::thread thread;
  int published = 0;
  bool transactions = true;
  std::function<void(const Message&)> act;
  std::mutex mutex;
  std::map<int, int> runs;
  std::string failure;
  test::CapturedLog text;
  std::shared_ptr<spdlog::logger> logger = std::make_shared<spdlog::logger>("test", text.sink());
};

TEST_F(Failover, what_was_committed_after_the_last_watermark_and_lost_is_read_again) {
  for (const Order order : {Order::partition, Order::key, Order::none}) {
    start(handler() | transactional() | ordered_by(order));
    publish(10);
    ASSERT_TRUE(eventually([&] { return watermark_is(published); }));
    publish(20);
    ASSERT_TRUE(eventually([&] { return all_took_effect(); }));
    const auto replica = inbox->replica();
    publish(20);  // committed and not replicated; the watermark was not written since
    ASSERT_TRUE(eventually([&] { return all_took_effect(); }));
    inbox->fail_over(replica);
    publish(1);
    EXPECT_TRUE(eventually([&] { return all_took_effect() && committed(published); }));
    EXPECT_THAT(effects(), Each(1)) << "nothing is lost, nothing doubled";
    stop();
    EXPECT_EQ(failure, "");
    EXPECT_THAT(inbox->dead(), IsEmpty());
  }
}

TEST_F(Failover, progress_does_not_move_past_what_was_lost) {
  start(handler() | by_offset());
  publish(10);
  ASSERT_TRUE(eventually([&] { return watermark_is(10); }));
  const auto replica = inbox->replica();
  for (int round = 0; round < 3; ++round) {
    publish(20);
    ASSERT_TRUE(eventually([&] { return all_took_effect(); }));
    inbox->fail_over(replica);
    publish(5);  // the first unit after the failover contains one of these
    EXPECT_TRUE(eventually([&] { return all_took_effect() && committed(published); }));
    EXPECT_THAT(effects(), Each(1));
  }
}

TEST_F(Failover, numbered_messages_are_read_again) {
  NumberedSender sender(*broker, inbox->producers(), {.name = "shop", .logger = logger});
  const auto send = [&](int n) {
    std::vector<OwnedMessage> messages;
    for (int i = 0; i < n; ++i) {
      OwnedMessage& message = messages.emplace_back();
      message.topic = "t";
      message.payload = std::to_string(published++);
    }
    for (const auto& fate : sender.send(messages)) ASSERT_EQ(fate.kind, BrokerSender::Fate::Kind::sent);
  };
  start(handler() | numbered());
  send(10);
  ASSERT_TRUE(eventually([&] { return watermark_is(10); }));
  const auto replica = inbox->replica();
  send(20);
  ASSERT_TRUE(eventually([&] { return all_took_effect(); }));
  inbox->fail_over(replica);
  send(5);
  EXPECT_TRUE(eventually([&] { return all_took_effect() && committed(published); }));
  EXPECT_THAT(effects(), Each(1));
  EXPECT_THAT(inbox->dead(), IsEmpty());
}

TEST_F(Failover, a_database_from_before_the_first_watermark_is_read_from_where_the_group_began) {
  const auto replica = inbox->replica();
  publish(3);
  transactions = false;
  start(handler());  // like a program from before Turnstile kept the group's ids
  ASSERT_TRUE(eventually([&] { return committed(3); }));
  stop();
  transactions = true;
  publish(5);
  start(handler() | transactional());
  ASSERT_TRUE(eventually([&] { return committed(8) && watermark_is(8); }));
  inbox->fail_over(replica);
  publish(1);
  EXPECT_TRUE(eventually([&] { return inbox->size() == 6 && watermark_is(9); }));
  EXPECT_THAT(effects(), ElementsAre(0, 0, 0, 1, 1, 1, 1, 1, 1));
}

TEST_F(Failover, where_nobody_knows_where_the_group_began_all_is_read_again) {
  const auto replica = inbox->replica();
  publish(5);
  start(handler() | transactional());
  ASSERT_TRUE(eventually([&] { return committed(5) && watermark_is(5); }));
  stop();
  start(handler() | transactional());  // reading begins at the watermark
  publish(5);
  ASSERT_TRUE(eventually([&] { return committed(10); }));
  inbox->fail_over(replica);
  EXPECT_TRUE(eventually([&] { return inbox->size() == 10; }));
  EXPECT_THAT(effects(), Each(1));
  EXPECT_THAT(log_text(), HasSubstr("before its first watermark of the partition; reading again from offset 0"));
}

TEST_F(Failover, a_restart_that_loses_nothing_changes_nothing) {
  transactions = false;
  start(handler() | leased());
  for (int round = 0; round < 3; ++round) {
    publish(10);
    ASSERT_TRUE(eventually([&] { return committed(published); }));
    inbox->fail_over(inbox->replica());
  }
  publish(1);
  ASSERT_TRUE(eventually([&] { return committed(published); }));
  EXPECT_THAT(all_runs(), Each(1));
  EXPECT_THAT(inbox->dead(), IsEmpty());
}

TEST_F(Failover, an_effect_elsewhere_whose_record_was_lost_is_parked) {
  transactions = false;
  start(handler() | leased());
  publish(3);
  ASSERT_TRUE(eventually([&] { return watermark_is(3); }));
  const auto replica = inbox->replica();
  publish(7);
  ASSERT_TRUE(eventually([&] { return committed(10); }));
  inbox->fail_over(replica);
  publish(2);
  EXPECT_TRUE(eventually([&] { return committed(12) && inbox->dead().size() == 7; }));
  EXPECT_THAT(all_runs(), Each(1));
  for (const DeadMessage& message : inbox->dead()) {
    EXPECT_EQ(message.reason, DeadReason::unknown);
    EXPECT_THAT(message.error, HasSubstr("the database went back to an earlier time"));
    EXPECT_GE(message.record.offset, 3);
    EXPECT_LT(message.record.offset, 10);
  }
}

TEST_F(Failover, many_in_doubt_do_not_stop_the_partition) {
  transactions = false;
  start(handler() | leased() | stop_after_dead(5));
  publish(3);
  ASSERT_TRUE(eventually([&] { return watermark_is(3); }));
  const auto replica = inbox->replica();
  publish(20);
  ASSERT_TRUE(eventually([&] { return committed(23); }));
  inbox->fail_over(replica);
  publish(2);
  EXPECT_TRUE(eventually([&] { return committed(25) && inbox->dead().size() == 20; })) << log_text();
  EXPECT_THAT(all_runs(), Each(1));
}

/// The next owner learns from Kafka's offset what was settled.
TEST_F(Failover, an_effect_elsewhere_of_an_earlier_owner_is_parked_too) {
  transactions = false;
  start(handler() | leased());
  publish(3);
  ASSERT_TRUE(eventually([&] { return watermark_is(3); }));
  const auto replica = inbox->replica();
  publish(7);
  ASSERT_TRUE(eventually([&] { return committed(10); }));
  stop();
  inbox->fail_over(replica);
  start(handler() | leased());
  EXPECT_TRUE(eventually([&] { return inbox->dead().size() == 7 && watermark_is(10); }));
  EXPECT_TRUE(committed(10));
  EXPECT_THAT(all_runs(), Each(1));
}

TEST_F(Failover, an_effect_elsewhere_whose_record_was_lost_runs_again_where_that_is_the_policy) {
  transactions = false;
  start(handler() | leased() | on_unknown(UnknownPolicy::rerun));
  publish(3);
  ASSERT_TRUE(eventually([&] { return watermark_is(3); }));
  const auto replica = inbox->replica();
  publish(7);
  ASSERT_TRUE(eventually([&] { return committed(10); }));
  inbox->fail_over(replica);
  EXPECT_TRUE(eventually([&] { return inbox->size() == 10 && watermark_is(10); }));
  EXPECT_THAT(all_runs(), ElementsAre(1, 1, 1, 2, 2, 2, 2, 2, 2, 2));
  EXPECT_THAT(inbox->dead(), IsEmpty());
  EXPECT_THAT(log_text(), HasSubstr("may have taken effect before the database went back to an earlier time"));
}

TEST_F(Failover, a_message_whose_claim_was_lost_while_its_handler_ran_is_in_doubt) {
  transactions = false;
  std::atomic<bool> began = false, go_on = false;
  act = [&](const Message& message) {
    if (message.text() != "3") return;
    began = true;
    EXPECT_TRUE(eventually([&] { return go_on.load(); }));
  };
  start(handler() | leased());
  publish(3);
  ASSERT_TRUE(eventually([&] { return watermark_is(3); }));
  const auto replica = inbox->replica();
  publish(1);
  ASSERT_TRUE(eventually([&] { return began.load(); }));
  inbox->fail_over(replica);
  go_on = true;
  EXPECT_TRUE(eventually([&] { return committed(4) && watermark_is(4); }));
  EXPECT_THAT(all_runs(), Each(1));
  ASSERT_THAT(inbox->dead(), SizeIs(1));
  EXPECT_EQ(inbox->dead().front().record.payload, "3");
  EXPECT_EQ(inbox->dead().front().reason, DeadReason::unknown);
}

/// A message that failed is known not to have taken effect.
TEST_F(Failover, what_had_not_taken_effect_is_not_in_doubt) {
  transactions = false;
  std::atomic<bool> broken = true;
  act = [&](const Message& message) {
    if (message.text() == "1" && broken) throw std::runtime_error("broken");
  };
  start(handler() | leased() | ordered_by(Order::none) | retry(exponential{20ms, 1'000, 50ms}));
  publish(1);
  ASSERT_TRUE(eventually([&] { return watermark_is(1); }));
  const auto replica = inbox->replica();
  publish(3);
  ASSERT_TRUE(eventually([&] { return inbox->size() == 3; })) << "2 and 3 are done ahead of 1";
  inbox->fail_over(replica);
  broken = false;
  EXPECT_TRUE(eventually([&] { return committed(4); }));
  EXPECT_THAT(inbox->dead(), SizeIs(2)) << "2 and 3";
  EXPECT_TRUE(inbox->contains(inbox->register_handler("t"), MessageId::from("m1")));
  stop();
}

TEST_F(Failover, a_handler_whose_number_another_one_has_now_stops_the_consumer) {
  const auto replica = inbox->replica();
  publish(1);
  start(handler() | transactional());
  ASSERT_TRUE(eventually([&] { return all_took_effect(); }));
  inbox->fail_over(replica);
  inbox->register_handler("another");
  publish(1);
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return failure.find("handler 't' of topic 't': its number in the database was 1 and is 2") != std::string::npos;
  }));
}

class PollLoopFailover : public Failover {
 protected:
  /// Handles the message at that offset.
  Settled handle(Offset offset) {
    const OwnedMessage owned = broker->records("t").at(static_cast<std::size_t>(offset));
    return loop->handle(Message(owned));
  }
  void make_loop(Pipeline pipeline) {
    loop = std::make_unique<PollLoop>(config, Backends{broker, inbox});
    loop->topic("t", std::move(pipeline) | dead_letter()).logger(logger);
  }
  Offset read_again(Offset offset) {
    try {
      handle(offset);
    } catch (const ReadAgain& again) {
      EXPECT_EQ(again.from.at, (TopicPartition{"t", 0}));
      return again.from.offset;
    }
    ADD_FAILURE() << "it was handled";
    return -1;
  }
  /// Messages 0 to 9 were handled, and the new primary knows only 0 to 4.
  void fail_over_after_ten() {
    publish(20);
    for (Offset offset = 0; offset < 5; ++offset) handle(offset);
    const auto replica = inbox->replica();
    for (Offset offset = 5; offset < 10; ++offset) handle(offset);
    inbox->fail_over(replica);
  }
  /// The caller goes back to `from`. `lost` is the expected result for the messages that the new primary does not know.
  void go_on(Offset from, Settled lost) {
    loop->revoked({"t", 0});
    for (Offset offset = from; offset < 12; ++offset) {
      const Settled expected = offset < 5 ? Settled::duplicate : offset < 10 ? lost : Settled::done;
      EXPECT_EQ(handle(offset), expected) << offset;
    }
  }
  std::unique_ptr<PollLoop> loop;
};

TEST_F(PollLoopFailover, its_caller_is_told_from_where_to_read_again) {
  make_loop(handler() | transactional());
  fail_over_after_ten();
  const Offset from = read_again(10);
  EXPECT_LE(from, 5);
  EXPECT_EQ(read_again(11), from) << "until the caller has gone there";
  go_on(from, Settled::done);
  EXPECT_THAT(inbox->committed(), SizeIs(12));
}

TEST_F(PollLoopFailover, effects_elsewhere_whose_records_were_lost_are_parked) {
  transactions = false;
  make_loop(handler() | leased());
  fail_over_after_ten();
  go_on(read_again(10), Settled::dead_letter);
  const auto ran = all_runs();
  EXPECT_THAT(std::vector<int>(ran.begin(), ran.begin() + 12), Each(1));
}

/// The process that would have noticed the failover has ended.
TEST_F(PollLoopFailover, a_new_process_is_told_from_where_to_read_again) {
  make_loop(handler() | transactional());
  fail_over_after_ten();
  make_loop(handler() | transactional());
  const Offset from = read_again(10);
  EXPECT_LE(from, 5);
  go_on(from, Settled::done);
  EXPECT_THAT(inbox->committed(), SizeIs(12));
}

TEST_F(PollLoopFailover, effects_elsewhere_that_a_new_process_cannot_know_are_parked) {
  transactions = false;
  make_loop(handler() | leased());
  fail_over_after_ten();
  make_loop(handler() | leased());
  go_on(read_again(10), Settled::dead_letter);
}

/// The rest of the lost messages is in doubt, whichever process reads it again.
TEST_F(PollLoopFailover, effects_elsewhere_are_parked_also_after_a_rebalance_while_they_are_read_again) {
  transactions = false;
  for (const bool is_new_process : {false, true}) {
    make_loop(handler() | leased());
    publish(20);
    const Offset first = published - 20;
    const auto handle_all = [&](Offset from, Offset end) {
      for (Offset offset = from; offset < end; ++offset) EXPECT_EQ(handle(first + offset), Settled::done) << offset;
    };
    handle_all(0, 5);
    loop->revoked({"t", 0});  // this writes the watermark
    const auto replica = inbox->replica();
    handle_all(5, 10);
    inbox->fail_over(replica);
    const Offset from = read_again(first + 10);
    EXPECT_EQ(from, first + 5);
    loop->revoked({"t", 0});
    EXPECT_EQ(handle(first + 5), Settled::dead_letter);
    EXPECT_FALSE(loop->may_commit({{"t", 0}, first + 6}));
    EXPECT_TRUE(loop->may_commit({{"t", 0}, first + 10}));
    EXPECT_TRUE(loop->may_commit({{"t", 1}, 0})) << "another partition";

    loop->revoked({"t", 0});
    if (is_new_process) make_loop(handler() | leased());
    const Offset rest = read_again(first + 10);  // read on from Kafka's offset
    EXPECT_EQ(rest, first + 6);
    loop->revoked({"t", 0});
    for (Offset offset = rest; offset < first + 10; ++offset) EXPECT_EQ(handle(offset), Settled::dead_letter) << offset;
    EXPECT_TRUE(loop->may_commit({{"t", 0}, first + 10}));
    EXPECT_EQ(handle(first + 10), Settled::done);
    EXPECT_TRUE(loop->may_commit({{"t", 0}, first + 6})) << "it is over";
    handle_all(11, 20);
    loop->revoked({"t", 0});
  }
  EXPECT_THAT(all_runs(), Each(1));
}

/// This also holds if the partition comes back in the middle of the lost messages.
TEST_F(PollLoopFailover, effects_elsewhere_stay_in_doubt_until_all_are_read_again) {
  transactions = false;
  make_loop(handler() | leased());
  fail_over_after_ten();
  const Offset from = read_again(10);
  loop->revoked({"t", 0});
  for (Offset offset = from; offset < 7; ++offset) handle(offset);
  loop->revoked({"t", 0});
  for (Offset offset = 7; offset < 10; ++offset) EXPECT_EQ(handle(offset), Settled::dead_letter) << offset;
  EXPECT_EQ(handle(10), Settled::done);
}

/// Between the watermark and the first message there are only offsets that are not messages.
TEST_F(PollLoopFailover, goes_on_where_nothing_lies_between) {
  make_loop(handler() | transactional());
  publish(20);
  handle(0);
  loop->revoked({"t", 0});
  EXPECT_EQ(handle(1), Settled::done) << "what was settled is recorded when a partition is revoked";
  loop->revoked({"t", 0});
  EXPECT_EQ(read_again(5), 2);
  loop->revoked({"t", 0});
  EXPECT_EQ(handle(5), Settled::done);
}

/// The partition may come back at Kafka's offset, which is above messages that have not been read again.
TEST_F(PollLoopFailover, a_rebalance_before_the_messages_are_read_again_does_not_lose_them) {
  make_loop(handler() | transactional());
  fail_over_after_ten();
  const Offset from = read_again(10);
  for (const bool is_new_process : {false, true}) {
    if (is_new_process) {
      make_loop(handler() | transactional());
      ASSERT_EQ(read_again(10), from);
    }
    loop->revoked({"t", 0});  // the call after the seek
    loop->revoked({"t", 0});  // the call of the rebalance
    EXPECT_EQ(read_again(10), from) << is_new_process;
  }
  go_on(from, Settled::done);
  EXPECT_THAT(inbox->committed(), SizeIs(12));
}

TEST_F(PollLoopFailover, a_database_that_goes_back_twice_to_the_same_time_is_read_again_twice) {
  make_loop(handler() | transactional());
  publish(20);
  for (Offset offset = 0; offset < 5; ++offset) handle(offset);
  const auto backup = inbox->replica();
  for (Offset offset = 5; offset < 10; ++offset) handle(offset);
  inbox->fail_over(backup);
  make_loop(handler() | transactional());
  const Offset from = read_again(10);
  go_on(from, Settled::done);
  inbox->fail_over(backup);
  loop->revoked({"t", 0});
  EXPECT_EQ(read_again(12), from);
}

/// Then only the database could tell the next owner, and it has no watermark of the partition.
TEST_F(PollLoopFailover, a_rebalance_after_the_first_watermark_was_lost_does_not_lose_messages) {
  make_loop(handler() | transactional());
  publish(20);
  inbox->register_handler("t");
  const auto backup = inbox->replica();
  for (Offset offset = 0; offset < 10; ++offset) handle(offset);
  inbox->fail_over(backup);
  EXPECT_EQ(read_again(10), 0);
  make_loop(handler() | transactional());
  EXPECT_EQ(read_again(10), 0);
  loop->revoked({"t", 0});
  for (Offset offset = 0; offset < 12; ++offset) EXPECT_EQ(handle(offset), Settled::done) << offset;
}

TEST_F(PollLoopFailover, goes_on_where_nothing_lies_between_also_after_a_rebalance) {
  make_loop(handler() | transactional());
  publish(20);
  handle(0);
  loop->revoked({"t", 0});
  EXPECT_EQ(read_again(5), 1);
  loop->revoked({"t", 0});  // the call after the seek
  loop->revoked({"t", 0});  // the call of the rebalance
  EXPECT_EQ(read_again(5), 1);
  loop->revoked({"t", 0});
  EXPECT_EQ(handle(5), Settled::done);
  EXPECT_EQ(handle(6), Settled::done);
}

TEST_F(PollLoopFailover, another_member_is_no_failover) {
  make_loop(handler() | transactional());
  publish(2);
  handle(0);
  const TopicPartition at{"t", 0};
  inbox->claim_partitions(config.group(), {&at, 1}, 1s);
  EXPECT_THROW(handle(1), Fenced);
}

}  // namespace
}  // namespace turnstile
