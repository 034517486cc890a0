// A database goes back to an earlier state (a failover to a replica that lagged, or a backup). The messages that it
// lost are read again. The tests use the in-memory broker and a store that can be set back.

#include <atomic>
#include <map>
#include <set>
#include <string>

#include "tests/support/forwarding_store.hpp"
#include "tests/unit/engine/failover_fixture.hpp"
#include "turnstile/error.hpp"
#include "turnstile/sender.hpp"

namespace turnstile {
namespace {

using namespace test;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

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
    for (const auto& fate : sender.send(messages)) ASSERT_EQ(fate.kind, ports::BrokerSender::Fate::Kind::sent);
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
  ASSERT_NO_FATAL_FAILURE(publish_ten_of_which_a_replica_has_three());
  inbox->fail_over(replica_of_three);
  publish(2);
  EXPECT_TRUE(eventually([&] { return committed(12) && inbox->dead().size() == 7; }));
  EXPECT_THAT(all_runs(), Each(1));
  for (const ports::DeadMessage& message : inbox->dead()) {
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
  ASSERT_NO_FATAL_FAILURE(publish_ten_of_which_a_replica_has_three());
  stop();
  inbox->fail_over(replica_of_three);
  start(handler() | leased());
  EXPECT_TRUE(eventually([&] { return inbox->dead().size() == 7 && watermark_is(10); }));
  EXPECT_TRUE(committed(10));
  EXPECT_THAT(all_runs(), Each(1));
}

/// Does not take dead letters, or does not find them.
class NoDeadLetters final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  bool record_dead(const ports::DeadMessage& message) override {
    ++asked;
    if (takes_none) throw StoreBusy("another session holds the lock");
    return ForwardingStore::record_dead(message);
  }
  std::set<Offset> dead_between(HandlerId handler, const Fence& fence, Offset first, Offset last,
                                std::optional<DeadReason> reason) override {
    if (finds_not > 0 && finds_not-- > 0) throw StoreBusy("another session holds the lock");
    return ForwardingStore::dead_between(handler, fence, first, last, reason);
  }
  std::atomic<bool> takes_none{false};
  std::atomic<int> asked{0}, finds_not{0};
};

/// The owner knows where to start, but not yet what is in doubt. Meanwhile it must not lower Kafka's offset.
TEST_F(Failover, an_effect_elsewhere_is_parked_by_an_owner_whose_claim_fails_late) {
  transactions = false;
  start(handler() | leased());
  ASSERT_NO_FATAL_FAILURE(publish_ten_of_which_a_replica_has_three());
  stop();
  inbox->fail_over(replica_of_three);
  const auto store = std::make_shared<NoDeadLetters>(inbox);
  store->finds_not = 2;
  start(handler() | leased(), store);
  EXPECT_TRUE(eventually([&] { return inbox->dead().size() == 7 && watermark_is(10); }, 20s)) << log_text();
  EXPECT_LE(store->finds_not, 0);
  EXPECT_THAT(all_runs(), Each(1));
}

TEST_F(Failover, an_effect_elsewhere_is_parked_by_an_owner_that_claims_again) {
  transactions = false;
  const auto store = std::make_shared<NoDeadLetters>(inbox);
  start(handler() | leased() | ordered_by(Order::partition) | batch(1), store);
  ASSERT_NO_FATAL_FAILURE(publish_ten_of_which_a_replica_has_three());
  store->takes_none = true;
  inbox->fail_over(replica_of_three);
  ASSERT_TRUE(eventually([&] { return store->asked > 0; }, 20s)) << log_text();
  const TopicPartition at{"t", 0};
  const auto other = inbox->claim_partitions(config.group(), {&at, 1}, 1s).front();
  const std::string again = "claimed, epoch " + std::to_string(other.fence.epoch.value + 1);
  ASSERT_TRUE(eventually([&] { return log_text().find(again) != std::string::npos; }, 30s)) << log_text();
  store->takes_none = false;
  EXPECT_TRUE(eventually([&] { return inbox->dead().size() == 7 && watermark_is(10); }, 20s)) << log_text();
  EXPECT_THAT(all_runs(), Each(1));
}

TEST_F(Failover, an_effect_elsewhere_whose_record_was_lost_runs_again_where_that_is_the_policy) {
  transactions = false;
  start(handler() | leased() | on_unknown(UnknownPolicy::rerun));
  ASSERT_NO_FATAL_FAILURE(publish_ten_of_which_a_replica_has_three());
  inbox->fail_over(replica_of_three);
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

class FailoverOfRecreatedTopic : public Failover {
 protected:
  /// The database loses all that it knew of the new topic, which is longer than the old one.
  void recreate_and_lose(Pipeline pipeline) {
    start(std::move(pipeline));
    publish(10);
    ASSERT_TRUE(eventually([&] { return watermark_is(10) && committed(10); })) << log_text();
    const auto replica = inbox->replica();
    broker->delete_topic("t");
    ASSERT_TRUE(eventually([&] { return log_text().find("topic t was deleted in Kafka") != std::string::npos; }));
    broker->create_topic("t", 1);
    publish(30);
    ASSERT_TRUE(eventually([&] { return watermark_is(30) && committed(30); })) << log_text();
    inbox->fail_over(replica);
    publish(1);
  }
};

TEST_F(FailoverOfRecreatedTopic, all_of_the_new_topic_is_read_again_by_another_process) {
  for (const bool numbers_records : {true, false}) {
    const auto pipeline = [&] {
      return numbers_records ? handler() | by_offset() : handler() | transactional() | id_from("offset");
    };
    start(pipeline());
    publish(10);
    ASSERT_TRUE(eventually([&] { return watermark_is(10) && committed(10); })) << log_text();
    const auto replica = inbox->replica();
    broker->delete_topic("t");
    ASSERT_TRUE(eventually([&] { return log_text().find("topic t was deleted in Kafka") != std::string::npos; }));
    broker->create_topic("t", 1);
    publish(30);
    ASSERT_TRUE(eventually([&] { return watermark_is(30) && committed(30); })) << log_text();
    stop();
    inbox->fail_over(replica);
    publish(1);
    start(pipeline());
    EXPECT_TRUE(eventually([&] { return all_took_effect() && committed(31); })) << log_text();
    EXPECT_THAT(effects(), Each(1)) << "nothing is lost, nothing doubled";
    start_over();
  }
}

TEST_F(FailoverOfRecreatedTopic, all_of_the_new_topic_is_read_again) {
  recreate_and_lose(handler() | transactional());
  EXPECT_TRUE(eventually([&] { return all_took_effect() && watermark_is(31) && committed(31); })) << log_text();
  EXPECT_THAT(effects(), Each(1)) << "nothing is lost, nothing doubled";
}

TEST_F(FailoverOfRecreatedTopic, all_of_the_new_topic_is_read_again_where_offsets_tell_what_took_effect) {
  recreate_and_lose(handler() | by_offset());
  EXPECT_TRUE(eventually([&] { return all_took_effect() && committed(31); })) << log_text();
  EXPECT_THAT(effects(), Each(1)) << "nothing is lost, nothing doubled";
}

TEST_F(FailoverOfRecreatedTopic, effects_elsewhere_of_the_new_topic_are_parked) {
  transactions = false;
  recreate_and_lose(handler() | leased());
  EXPECT_TRUE(eventually([&] { return inbox->dead().size() == 30 && watermark_is(31); })) << log_text();
  EXPECT_THAT(all_runs(), Each(1));
  EXPECT_THAT(log_text(), HasSubstr("the database went back to a time before it knew that the topic was recreated; "
                                    "reading again from its beginning, offset 0"));
}

/// The incarnation began in the middle of the log. What the database has of the records below that is not lost.
TEST_F(Failover, what_a_cut_off_log_retains_takes_effect_once_where_offsets_tell_what_took_effect) {
  for (const bool numbers_records : {true, false}) {
    start(numbers_records ? handler() | by_offset() : handler() | transactional() | id_from("offset"));
    publish(100);
    ASSERT_TRUE(eventually([&] { return watermark_is(100) && committed(100); })) << log_text();
    const auto replica = inbox->replica();
    broker->truncate({{"t", 0}, 80});
    publish(40);
    ASSERT_TRUE(eventually([&] { return watermark_is(120) && committed(120); })) << log_text();
    inbox->fail_over(replica);
    publish(1);
    EXPECT_TRUE(eventually([&] { return all_took_effect() && watermark_is(121) && committed(121); })) << log_text();
    EXPECT_THAT(effects(), Each(1));
    EXPECT_THAT(log_text(), HasSubstr("before it knew that records were cut off the partition's end; reading again "
                                      "from offset 80"));
    start_over();
  }
}

/// Both fail at once. The records that the database has lost are below those that the process remembers.
TEST_F(Failover, what_the_database_has_lost_is_read_again_although_the_log_was_cut_off_too) {
  for (const bool numbers_records : {true, false}) {
    start(numbers_records ? handler() | by_offset() : handler() | transactional());
    publish(100);
    ASSERT_TRUE(eventually([&] { return watermark_is(100) && committed(100); })) << log_text();
    const auto replica = inbox->replica();
    publish(1'900);
    ASSERT_TRUE(eventually([&] { return watermark_is(2'000) && committed(2'000); }, 20s)) << log_text();
    broker->truncate({{"t", 0}, 1'990});
    inbox->fail_over(replica);
    const auto some = [&](int times) {
      const auto all = effects();
      return std::count(all.begin(), all.begin() + 1'990, times);
    };
    EXPECT_TRUE(eventually([&] { return some(0) == 0; }, 20s)) << some(0) << " are lost" << log_text();
    EXPECT_EQ(some(1), 1'990) << "nothing is doubled";
    start_over();
  }
}

/// The new log is as long as the old one, so the offset that is committed is the same number.
TEST_F(Failover, the_group_has_an_offset_of_a_cut_off_log_that_is_as_long_as_before) {
  const auto looks = broker->open_consumer();
  const auto metadata = [&] {
    const TopicPartition at{"t", 0};
    return looks->committed({&at, 1}, 1s).front()->metadata;
  };
  start(handler() | by_offset());
  publish(100);
  ASSERT_TRUE(eventually([&] { return watermark_is(100) && committed(100); })) << log_text();
  EXPECT_EQ(metadata(), "turnstile:0@0");
  broker->truncate({{"t", 0}, 80});
  publish(20);
  EXPECT_TRUE(eventually([&] { return metadata() == "turnstile:0@0,1@80"; })) << metadata() << log_text();
  EXPECT_TRUE(eventually([&] { return committed(100); }));
}

/// The old topic was longer than the new one, and the database still has its offsets as ids.
class FailoverWithoutTheStore : public Failover, public ::testing::WithParamInterface<bool> {};

TEST_P(FailoverWithoutTheStore, a_recreated_topic_goes_on_where_it_was) {
  const bool by_another_process = GetParam();
  transactions = false;
  const auto pipeline = [&] { return handler() | leased() | id_from("offset") | on_store_down(StoreDownPolicy::run); };
  start(pipeline());
  publish(40);
  ASSERT_TRUE(eventually([&] { return watermark_is(40) && committed(40); })) << log_text();
  const auto replica = inbox->replica();
  broker->delete_topic("t");
  ASSERT_TRUE(eventually([&] { return log_text().find("topic t was deleted in Kafka") != std::string::npos; }));
  broker->create_topic("t", 1);
  publish(5);
  ASSERT_TRUE(eventually([&] { return watermark_is(5) && committed(5); })) << log_text();
  if (by_another_process) stop();
  inbox->fail_over(replica);
  if (by_another_process) start(pipeline());
  publish(10);
  EXPECT_TRUE(eventually([&] { return committed(15); })) << log_text();
  EXPECT_THAT(all_runs(), Each(1)) << log_text();
}

INSTANTIATE_TEST_SUITE_P(ByAnotherProcess, FailoverWithoutTheStore, ::testing::Bool());

/// The topic was recreated twice since the state that the database went back to. Outside systems know the first new
/// topic's keys.
TEST_F(Failover, a_key_of_one_record_is_never_given_to_a_record_of_another_topic) {
  std::map<MessageId, std::set<std::string>> keys;
  start(Pipeline([&](const Message& message, Context& context) {
          const std::lock_guard lock(mutex);
          keys[*context.idempotency_key()].insert(std::string(message.text()));
        }) |
        transactional() | id_from("offset"));
  const auto is_settled = [&](Offset end) { return watermark_is(end) && committed(end); };
  publish(10);
  ASSERT_TRUE(eventually([&] { return is_settled(10); })) << log_text();
  const auto replica = inbox->replica();
  for (const int count : {8, 6}) {
    text.clear();
    broker->delete_topic("t");
    ASSERT_TRUE(eventually([&] { return log_text().find("topic t was deleted in Kafka") != std::string::npos; }));
    broker->create_topic("t", 1);
    publish(count);
    ASSERT_TRUE(eventually([&] { return is_settled(count); })) << log_text();
  }
  inbox->fail_over(replica);
  publish(1);
  EXPECT_TRUE(eventually([&] { return is_settled(7); })) << log_text();
  stop();
  EXPECT_THAT(keys, SizeIs(25));
  for (const auto& [key, whose] : keys) EXPECT_THAT(whose, SizeIs(1));
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

/// The row of a message that failed says nothing about a later run that the database has lost.
TEST_F(Failover, what_took_effect_after_it_had_failed_is_in_doubt) {
  transactions = false;
  std::atomic<bool> broken = true;
  std::atomic<int> effects = 0;
  act = [&](const Message&) {
    if (broken) throw std::runtime_error("broken");
    ++effects;
  };
  start(handler() | leased() | ordered_by(Order::none) | retry(exponential{20ms, 1'000, 50ms}));
  publish(1);
  const auto claims = inbox->claims();
  ASSERT_TRUE(eventually([&] { return claims->count({}).failed == 1; }));
  const auto replica = inbox->replica();
  broken = false;
  ASSERT_TRUE(eventually([&] { return watermark_is(1); }));
  inbox->fail_over(replica);
  publish(1);
  EXPECT_TRUE(eventually([&] { return committed(2); }));
  stop();
  EXPECT_EQ(effects, 2);
  EXPECT_THAT(inbox->dead(), SizeIs(1));
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

}  // namespace
}  // namespace turnstile
