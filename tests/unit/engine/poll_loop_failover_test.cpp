// A PollLoop's database goes back to an earlier state. The loop's caller is told where to read again from.

#include "tests/unit/engine/failover_fixture.hpp"
#include "turnstile/error.hpp"
#include "turnstile/poll_loop.hpp"

namespace turnstile {
namespace {

using namespace test;
using ::testing::Each;
using ::testing::SizeIs;

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
