// A PollLoop whose topic is deleted and created again, and what is in doubt then, with the in-memory broker and store.

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/engine/poll_loop_fixture.hpp"

namespace turnstile {
namespace {

using test::PollLoopWatermark;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// The topic is deleted and created again. The new topic ends below what was settled of the old one.
class PollLoopRecreated : public PollLoopWatermark {
 protected:
  void recreate(int count, const std::string& payload = "of the new topic") {
    broker->replace_topic("t", [&](const auto& append) {
      for (int i = 0; i < count; ++i) {
        OwnedMessage message;
        message.topic = "t";
        message.partition = 0;
        message.payload = payload;
        message.headers = {{"message-id", "n" + std::to_string(i)}};
        append(message);
      }
    });
    records = broker->records("t");
  }
  void handle_all(PollLoop& loop, Settled expected = Settled::done, Offset first = 0) {
    for (Offset offset = first; offset < static_cast<Offset>(records.size()); ++offset)
      EXPECT_EQ(handle(loop, offset), expected) << offset;
  }
  static Pipeline reject() {
    return [](const Message&, Context&) { return Outcome::dead_letter("no"); };
  }
  void commit(Offset offset) {
    struct Listener final : ports::AssignmentListener {
      std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition>) override { return {}; }
      void on_revoked(std::span<const TopicPartition>, bool) override {}
    } listener;
    const ports::OffsetCommit committed{at, offset};
    const auto member = broker->open_consumer();
    member->subscribe({"t"}, listener);
    for (int i = 0; i < 10; ++i) member->poll(std::chrono::milliseconds(1));
    member->commit({&committed, 1}, true);
    ASSERT_EQ(broker->committed(at), offset);
  }
  /// Another member finds the recreated topic. Its watermark in the database is 1 when it ends without a release.
  void be_begun_by_another_member(const std::function<Pipeline()>& pipeline, Offset up_to) {
    other = make_loop(pipeline());
    for (Offset offset = 0; offset < up_to; ++offset) handle(*other, offset);
    ASSERT_EQ(inbox->watermark(1), 1);
  }
  std::unique_ptr<PollLoop> other;  // stays alive, so that nothing is released
};

TEST_F(PollLoopRecreated, its_dead_letters_are_sent_at_offsets_where_the_old_one_had_some) {
  const auto loop = make_loop(reject() | transactional());
  handle_all(*loop, Settled::dead_letter);
  loop->revoked(at);
  recreate(6);
  handle_all(*loop, Settled::dead_letter);
  EXPECT_EQ(broker->records("t.dlq").size(), 12U + 6U);
  EXPECT_EQ(inbox->dead().size(), 12U + 6U);
  EXPECT_EQ(inbox->watermark(1), 1) << "not that of the old topic, which would hide what is lost in a failover";
  EXPECT_THAT(log_text(), HasSubstr("the topic was recreated"));
}

/// A consumer whose position is past the end of the new topic begins at its start, and nothing was revoked.
TEST_F(PollLoopRecreated, it_is_found_also_by_a_loop_that_kept_its_partition) {
  const auto loop = make_loop(reject() | transactional());
  handle_all(*loop, Settled::dead_letter);
  recreate(6);
  handle_all(*loop, Settled::dead_letter);
  EXPECT_EQ(broker->records("t.dlq").size(), 12U + 6U);
}

/// The end of the log then proves nothing, but the loop has handled other records at these offsets.
TEST_F(PollLoopRecreated, it_is_found_also_when_it_is_longer_than_the_old_one) {
  const auto loop = make_loop(reject() | transactional());
  handle_all(*loop, Settled::dead_letter);
  loop->revoked(at);
  recreate(15);
  handle_all(*loop, Settled::dead_letter);
  EXPECT_EQ(broker->records("t.dlq").size(), 12U + 15U);
  EXPECT_THAT(log_text(), HasSubstr("offset 0 holds another record"));
}

TEST_F(PollLoopRecreated, what_is_read_again_of_the_same_topic_is_no_other_one) {
  const auto loop = make_loop(insert() | transactional());
  handle_all(*loop);
  loop->revoked(at);
  handle_all(*loop, Settled::duplicate);
  EXPECT_THAT(log_text(), Not(HasSubstr("recreated")));
}

TEST_F(PollLoopRecreated, its_records_run_where_offsets_count) {
  const auto loop = make_loop(insert() | by_offset());
  handle_all(*loop);
  loop->revoked(at);
  recreate(6);
  handle_all(*loop);
  EXPECT_EQ(inbox->committed().size(), 12U + 6U);
}

TEST_F(PollLoopRecreated, a_record_runs_where_one_of_the_old_topic_killed_its_process) {
  const auto loop = make_loop(insert() | transactional());
  handle_all(*loop);
  loop->revoked(at);
  const auto fence = inbox->claim_partitions(Config{}.group(), {&at, 1}, std::chrono::seconds(1)).front().fence;
  ASSERT_TRUE(inbox->record_dead({.handler = {1},
                                  .fence = fence,
                                  .record = records.at(3),
                                  .id = {},
                                  .reason = DeadReason::killed_process,
                                  .error = "",
                                  .dead_letter = {}}));
  recreate(6);
  handle_all(*loop);
}

TEST_F(PollLoopRecreated, it_is_read_from_its_beginning) {
  const auto loop = make_loop(Pipeline([](const Message&, Context&) {}) | leased());
  handle_all(*loop);
  loop->revoked(at);
  recreate(6);
  EXPECT_EQ(read_again(*loop, 2), 0);
  loop->revoked(at);
  handle_all(*loop);
  EXPECT_TRUE(loop->may_commit({at, 1})) << "no record of it was settled before";
}

TEST_F(PollLoopRecreated, what_a_failover_loses_of_it_is_read_again) {
  auto loop = make_loop(insert() | transactional());
  handle_all(*loop);
  loop->revoked(at);
  recreate(8);
  for (Offset offset = 0; offset < 3; ++offset) handle(*loop, offset);
  const auto replica = inbox->replica();
  for (Offset offset = 3; offset < 6; ++offset) handle(*loop, offset);
  inbox->fail_over(replica);
  const auto killed = std::exchange(loop, make_loop(insert() | transactional()));
  const Offset from = read_again(*loop, 6);
  EXPECT_LE(from, 3);
  loop->revoked(at);
  for (Offset offset = from; offset < 8; ++offset)
    EXPECT_EQ(handle(*loop, offset), offset < 3 ? Settled::duplicate : Settled::done) << offset;
}

/// The group has an offset, so the log may have lost records at its end. The messages that were settled must not run
/// again.
TEST_F(PollLoopRecreated, a_log_that_is_too_short_does_not_begin_anew_where_offsets_count_and_the_group_has_one) {
  const auto loop = make_loop(insert() | by_offset());
  handle_all(*loop);
  loop->revoked(at);
  broker->truncate({at, 6});
  records.resize(6);
  commit(12);
  handle_all(*loop, Settled::duplicate);
  EXPECT_THAT(log_text(), HasSubstr("count as duplicates"));
}

/// The replica does not know that the topic was created again.
TEST_F(PollLoopRecreated, what_a_failover_loses_of_all_of_it_is_read_again) {
  const auto loop = make_loop(insert() | by_offset());
  handle_all(*loop);
  loop->revoked(at);
  const auto replica = inbox->replica();
  recreate(8);
  for (Offset offset = 0; offset < 6; ++offset) handle(*loop, offset);
  inbox->fail_over(replica);
  EXPECT_EQ(read_again(*loop, 6), 0);
  loop->revoked(at);
  handle_all(*loop);
}

/// The messages that an earlier owner of the new topic had handled are lost too.
TEST_F(PollLoopRecreated, what_a_failover_loses_of_all_of_it_is_read_again_from_its_beginning) {
  const auto make = [] { return insert() | by_offset(); };
  auto loop = make_loop(make());
  handle_all(*loop);
  loop->revoked(at);
  const auto replica = inbox->replica();
  recreate(8);
  for (Offset offset = 0; offset < 4; ++offset) handle(*loop, offset);
  loop->revoked(at);
  const auto first = std::exchange(loop, make_loop(make()));
  for (Offset offset = 4; offset < 6; ++offset) handle(*loop, offset);
  inbox->fail_over(replica);
  EXPECT_EQ(read_again(*loop, 6), 0);
  loop->revoked(at);
  handle_all(*loop);
}

/// The loop has no place of the partition any more. The new topic is longer than the old one, so that its end proves
/// nothing.
TEST_F(PollLoopRecreated, what_a_failover_loses_of_all_of_it_is_read_again_also_after_a_rebalance) {
  const auto loop = make_loop(insert() | by_offset());
  handle_all(*loop);
  loop->revoked(at);
  const auto replica = inbox->replica();
  recreate(20);
  for (Offset offset = 0; offset < 6; ++offset) handle(*loop, offset);
  loop->revoked(at);
  inbox->fail_over(replica);
  EXPECT_EQ(read_again(*loop, 6), 0);
  loop->revoked(at);
  handle_all(*loop);
  EXPECT_THAT(log_text(), HasSubstr("before it knew that the topic was recreated; reading again from offset 0"));
}

/// The topic was recreated twice since the state that the database went back to. Outside systems know the first new
/// topic's keys.
TEST_F(PollLoopRecreated, its_keys_are_never_given_to_records_of_another_topic) {
  std::map<MessageId, std::set<int>> keys;
  int which = 0;
  const auto loop =
      make_loop(Pipeline([&](const Message& message, Context& context) {
                  keys[*context.idempotency_key()].insert(100 * which + static_cast<int>(message.offset()));
                }) |
                transactional() | id_from("offset"));
  handle_all(*loop);
  loop->revoked(at);
  const auto replica = inbox->replica();
  for (which = 1; which < 3; ++which) {
    recreate(10 - which, which == 1 ? "first" : "second");
    for (Offset offset = 0; offset < 6; ++offset) EXPECT_EQ(handle(*loop, offset), Settled::done);
    if (which == 1) loop->revoked(at);
  }
  which = 2;
  inbox->fail_over(replica);
  EXPECT_EQ(read_again(*loop, 6), 0);
  loop->revoked(at);
  handle_all(*loop);
  EXPECT_EQ(keys.size(), 12U + 6U + 8U);
  for (const auto& [key, whose] : keys) EXPECT_EQ(whose.size(), 1U);
}

/// Mode at_least_once has no fence that tells the two messages apart. Their timestamps can be equal.
TEST_F(PollLoopRecreated, its_message_runs_at_the_offset_of_a_dead_letter_that_was_refused) {
  std::vector<std::string> ran;
  const auto loop = make_loop([&ran](const Message& message, Context&) {
    ran.emplace_back(message.text());
    return message.text() == "new" ? Outcome::done() : Outcome::dead_letter("no");
  });
  records.at(0).payload = "old";
  broker->refuse("t.dlq", "full");
  for (int i = 0; i < 2; ++i) EXPECT_THROW(handle(*loop, 0), BrokerError);
  loop->revoked(at);
  records.at(0).payload = "new";
  EXPECT_EQ(handle(*loop, 0), Settled::done);
  EXPECT_THAT(ran, ElementsAre("old", "new"));
}

TEST_F(PollLoopRecreated, records_that_were_cut_off_count_where_ids_tell_what_has_taken_effect) {
  const auto loop = make_loop(insert() | transactional());
  handle_all(*loop);
  loop->revoked(at);
  broker->truncate({at, 4});
  records.resize(4);
  handle_all(*loop, Settled::duplicate);
}

/// What a loop remembers of the old topic proves nothing about the new topic that another member has begun.
TEST_F(PollLoopRecreated, what_another_member_has_done_of_it_does_not_run_again) {
  for (const bool is_revoked : {true, false}) {
    const auto make = [] { return insert() | by_offset(); };
    const auto loop = make_loop(make());
    const std::size_t before = inbox->committed().size();
    handle_all(*loop);
    if (is_revoked) loop->revoked(at);
    recreate(8);
    be_begun_by_another_member(make, 6);
    if (is_revoked) commit(6);
    text.clear();
    for (Offset offset = 0; offset < 6; ++offset) EXPECT_EQ(handle(*loop, offset), Settled::duplicate) << offset;
    for (Offset offset = 6; offset < 8; ++offset) EXPECT_EQ(handle(*loop, offset), Settled::done) << offset;
    EXPECT_EQ(inbox->committed().size() - before, 12U + 8U);
    EXPECT_THAT(log_text(), Not(HasSubstr("recreated")));
    other.reset();
    broker = std::make_shared<testing::MemoryBroker>();
    inbox = std::make_shared<testing::MemoryInbox>();
    SetUp();
  }
}

TEST_F(PollLoopRecreated, its_dead_letters_are_sent_once_by_two_members) {
  const auto make = [] { return reject() | transactional(); };
  const auto loop = make_loop(make());
  handle_all(*loop, Settled::dead_letter);
  loop->revoked(at);
  recreate(8);
  be_begun_by_another_member(make, 6);
  handle_all(*loop, Settled::dead_letter);
  EXPECT_EQ(broker->records("t.dlq").size(), 12U + 8U);
  EXPECT_EQ(inbox->dead().size(), 12U + 8U);
}

TEST_F(PollLoopRecreated, a_record_of_it_that_another_member_has_buried_does_not_run) {
  std::vector<Offset> ran;
  const auto make = [&ran] {
    return Pipeline([&ran](const Message& message, Context&) { ran.push_back(message.offset()); }) | transactional();
  };
  const auto loop = make_loop(make());
  handle_all(*loop);
  loop->revoked(at);
  recreate(8);
  be_begun_by_another_member(make, 3);
  const auto fence = inbox->claim_partitions(Config{}.group(), {&at, 1}, std::chrono::seconds(1)).front().fence;
  ASSERT_TRUE(inbox->record_dead({.handler = {1},
                                  .fence = fence,
                                  .record = records.at(3),
                                  .id = {},
                                  .reason = DeadReason::killed_process,
                                  .error = "",
                                  .dead_letter = {}}));
  ran.clear();
  EXPECT_EQ(read_again(*loop, 4), 1);
  loop->revoked(at);
  for (Offset offset = 1; offset < 8; ++offset)
    EXPECT_EQ(handle(*loop, offset), offset < 3    ? Settled::duplicate
                                     : offset == 3 ? Settled::dead_letter
                                                   : Settled::done)
        << offset;
  EXPECT_THAT(ran, ElementsAre(4, 5, 6, 7));
}

/// Its offsets are not those that were settled before the failover.
TEST_F(PollLoopRecreated, it_is_not_in_doubt_after_a_failover_where_another_member_has_begun_it) {
  const auto make = [] { return Pipeline([](const Message&, Context&) {}) | leased(); };
  const auto loop = make_loop(make());
  handle_all(*loop);
  recreate(20);
  const auto fence = inbox->claim_partitions(Config{}.group(), {&at, 1}, std::chrono::seconds(1)).front().fence;
  inbox->begin_incarnation(fence, 0, 0);
  inbox->fail_over(inbox->replica());
  EXPECT_EQ(read_again(*loop, 15), 0);
  loop->revoked(at);
  handle_all(*loop);
}

/// Mode leased. Kafka's offset is above the watermark of a member that was killed, and shows what the group had settled.
class PollLoopDoubt : public PollLoopRecreated {
 protected:
  static Pipeline do_nothing() {
    return Pipeline([](const Message&, Context&) {}) | leased();
  }
  void SetUp() override {
    PollLoopRecreated::SetUp();
    killed = make_loop(do_nothing());
    handle(*killed, 0);
    loop = make_loop(do_nothing());
    EXPECT_EQ(read_again(*loop, 10), 1);
    loop->revoked(at);
  }
  std::unique_ptr<PollLoop> killed;  // stays alive, so that nothing is released
  std::unique_ptr<PollLoop> loop;
};

/// The recreated topic is longer than what was settled, so that no member finds it.
TEST_F(PollLoopDoubt, is_over_when_the_partition_was_revoked) {
  loop->revoked(at);
  recreate(12);
  const auto next = make_loop(do_nothing());
  EXPECT_EQ(read_again(*next, 6), 1);
  next->revoked(at);
  for (Offset offset = 1; offset < 6; ++offset) handle(*next, offset);
  next->revoked(at);
  for (Offset offset = 6; offset < 12; ++offset) EXPECT_EQ(handle(*loop, offset), Settled::done) << offset;
  EXPECT_TRUE(loop->may_commit({at, 7}));
}

TEST_F(PollLoopDoubt, is_found_again_when_the_partition_comes_back) {
  loop->revoked(at);
  EXPECT_EQ(read_again(*loop, 10), 1);
  loop->revoked(at);
  EXPECT_FALSE(loop->may_commit({at, 9}));
  for (Offset offset = 1; offset < 12; ++offset)
    EXPECT_EQ(handle(*loop, offset), offset < 10 ? Settled::dead_letter : Settled::done) << offset;
}

/// The caller seeks to the first message that threw Fenced, so Kafka's offset is not read again.
TEST_F(PollLoopDoubt, goes_on_when_the_loop_was_fenced) {
  handle(*loop, 1);
  inbox->claim_partitions(Config{}.group(), {&at, 1}, std::chrono::seconds(1));
  EXPECT_THROW(handle(*loop, 2), Fenced);
  loop->revoked(at);
  for (Offset offset = 2; offset < 12; ++offset)
    EXPECT_EQ(handle(*loop, offset), offset < 10 ? Settled::dead_letter : Settled::done) << offset;
}

/// Kafka's offset does not show what this loop had settled and not committed.
TEST_F(PollLoopDoubt, goes_on_for_what_the_loop_had_settled_itself) {
  for (Offset offset = 1; offset < 10; ++offset) handle(*loop, offset);
  loop->revoked(at);
  const auto replica = inbox->replica();
  for (Offset offset = 10; offset < 12; ++offset) EXPECT_EQ(handle(*loop, offset), Settled::done);
  inbox->fail_over(replica);
  produce_more(1);
  EXPECT_EQ(read_again(*loop, 12), 10);
  loop->revoked(at);
  loop->revoked(at);
  for (Offset offset = 10; offset < 13; ++offset)
    EXPECT_EQ(handle(*loop, offset), offset < 12 ? Settled::dead_letter : Settled::done) << offset;
}

/// The loop lives, so that no message has killed the last owner.
TEST_F(PollLoopRecreated, is_claimed_again_without_a_suspicion) {
  const auto loop = make_loop(insert() | transactional());
  handle_all(*loop);
  recreate(6);
  handle_all(*loop);
  EXPECT_THAT(log_text(), HasSubstr("the topic was recreated"));
  EXPECT_THAT(log_text(), Not(HasSubstr("without releasing")));
  loop->revoked(at);
  EXPECT_TRUE(inbox->claim_partitions(Config{}.group(), {&at, 1}, std::chrono::seconds(1)).front().is_clean);
}

}  // namespace
}  // namespace turnstile
