// A handler gets another mode. What the mode before it has remembered still counts: its claims, and how far it has come
// in a partition.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/engine/failover_fixture.hpp"
#include "tests/unit/engine/poll_loop_fixture.hpp"

namespace turnstile::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const TopicPartition kOnly{"t", 0};

/// A transaction of mode by_offset, of a process that is killed before it writes a watermark: the handler has done the
/// records below `next`.
void do_by_offset(MemoryInbox& store, const std::string& handler, Offset next) {
  const auto claimed = store.partitions().claim_partitions(Config{}.group(), {&kOnly, 1}, 1s).front();
  const ports::InboxEntry entry{.id = MessageId::from("none"), .offset = next - 1};
  const auto session = store.open_session();
  session->begin({.handler = store.register_handler(handler), .fence = claimed.fence, .mode = Mode::by_offset},
                 {&entry, 1});
  session->commit();
}

/// A member of mode leased has begun this message, in a partition that it owns.
void begin_leased(MemoryInbox& store, const std::string& handler, const std::string& id) {
  const auto claimed = store.partitions().claim_partitions(Config{}.group(), {&kOnly, 1}, 1s).front();
  const ports::InboxEntry entry{.id = MessageId::from(id), .offset = 2};
  const auto claims = store.claims()->claim(
      {.handler = store.register_handler(handler), .fence = claimed.fence, .owner = MessageId::from("member")},
      {&entry, 1});
  ASSERT_EQ(claims.front().state, ports::Claim::State::claimed);
}

class ModeChange : public Failover {
 protected:
  std::vector<int> runs_from(int first) const {
    std::vector<int> all(static_cast<std::size_t>(published));
    std::fill(all.begin() + first, all.end(), 1);
    return all;
  }
  /// Kafka has an offset of the group, and the database no watermark.
  void commit_three_of_ten() {
    publish(3);
    start(handler() | by_offset());
    ASSERT_TRUE(eventually([&] { return committed(3); }));
    stop();
    runs.clear();
    inbox = std::make_shared<MemoryInbox>();
    publish(7);
  }
  void expect_to_run_from(int first) {
    EXPECT_TRUE(eventually([&] { return committed(10); })) << log_text();
    stop();
    EXPECT_EQ(all_runs(), runs_from(first)) << log_text();
  }
};

TEST_F(ModeChange, what_mode_by_offset_has_done_does_not_run_again_before_the_first_commit) {
  publish(10);
  do_by_offset(*inbox, "t", 7);
  start(handler() | transactional());
  expect_to_run_from(7);
  EXPECT_THAT(log_text(), HasSubstr("starting at offset 7: the handler has done the records below it in mode"));
}

TEST_F(ModeChange, what_mode_by_offset_has_done_does_not_run_again_after_a_commit) {
  commit_three_of_ten();
  do_by_offset(*inbox, "t", 7);
  start(handler() | transactional());
  expect_to_run_from(7);
}

TEST_F(ModeChange, what_mode_by_offset_has_done_does_not_run_again_in_mode_leased) {
  publish(10);
  do_by_offset(*inbox, "t", 7);
  transactions = false;
  start(handler() | leased());
  expect_to_run_from(7);
}

TEST_F(ModeChange, what_another_handler_has_done_runs) {
  publish(10);
  do_by_offset(*inbox, "other", 7);
  start(handler() | transactional());
  expect_to_run_from(0);
}

/// The database has how far the handler has come, Kafka an offset, and nobody has written a watermark.
TEST_F(ModeChange, a_partition_without_a_watermark_has_lost_none) {
  commit_three_of_ten();
  do_by_offset(*inbox, "t", 7);
  start(handler() | by_offset());
  ASSERT_TRUE(eventually([&] { return committed(10) && watermark_is(10); })) << log_text();
  stop();
  EXPECT_EQ(all_runs(), runs_from(7));
  EXPECT_THAT(log_text(), Not(HasSubstr("lower watermark")));
  EXPECT_THAT(log_text(), Not(HasSubstr("went back")));
}

/// The consumer has found no claim at its start.
class ModeChangeWithClaim : public ModeChange {
 protected:
  void get_the_partition_again_while_there_is_a_claim(bool unavailable) {
    start(handler() | transactional());
    publish(1);
    ASSERT_TRUE(eventually([&] { return committed(1); }));
    begin_leased(*inbox, "t", "m1");
    inbox->set_unavailable(unavailable);
    broker->evict(0);
    publish(1);
  }
  void expect_to_end() {
    const auto ended = [&] {
      const std::lock_guard lock(mutex);
      return !failure.empty();
    };
    EXPECT_TRUE(eventually(ended)) << log_text();
    stop();
    EXPECT_THAT(failure, HasSubstr("handler 't' has claims of mode leased: 1 running"));
    EXPECT_EQ(all_runs(), (std::vector{1, 0}));
  }
};

TEST_F(ModeChangeWithClaim, another_mode_ends_when_it_gets_a_partition) {
  ASSERT_NO_FATAL_FAILURE(get_the_partition_again_while_there_is_a_claim(false));
  expect_to_end();
}

TEST_F(ModeChangeWithClaim, another_mode_ends_when_it_claims_a_partition_late) {
  ASSERT_NO_FATAL_FAILURE(get_the_partition_again_while_there_is_a_claim(true));
  EXPECT_TRUE(eventually([&] {
    return log_text().find("assigned 1 partitions", log_text().find("lost 1")) != std::string::npos;
  })) << log_text();
  inbox->set_unavailable(false);
  expect_to_end();
}

class PollLoopModeChange : public PollLoopWatermark {};

TEST_F(PollLoopModeChange, what_mode_by_offset_has_done_does_not_run_again) {
  do_by_offset(*inbox, "t", 7);
  const auto loop = make_loop(insert() | transactional());
  EXPECT_EQ(read_again(*loop, 2), 7);
  EXPECT_EQ(read_again(*loop, 3), 7) << "until the caller has gone there";
  loop->revoked(at);
  EXPECT_EQ(handle(*loop, 7), Settled::done);
  EXPECT_EQ(handle(*loop, 8), Settled::done);
  EXPECT_EQ(inbox->committed().size(), 2U);
}

TEST_F(PollLoopModeChange, is_sent_back_to_where_mode_by_offset_has_come) {
  const auto claimed = inbox->partitions().claim_partitions(Config{}.group(), {&at, 1}, 1s).front();
  const ports::WatermarkUpdate update{claimed.fence, 2};
  inbox->partitions().advance_watermarks({&update, 1});
  do_by_offset(*inbox, "t", 7);
  const auto loop = make_loop(insert() | transactional());
  EXPECT_EQ(read_again(*loop, 9), 7);
  loop->revoked(at);
  EXPECT_EQ(handle(*loop, 7), Settled::done);
}

TEST_F(PollLoopModeChange, another_mode_refuses_a_partition_while_there_is_a_claim) {
  const auto loop = make_loop(insert() | transactional());
  EXPECT_EQ(handle(*loop, 0), Settled::done);
  loop->revoked(at);
  begin_leased(*inbox, "t", "m2");
  for (const Offset offset : {1, 2}) {
    try {
      handle(*loop, offset);
      ADD_FAILURE() << offset << " ran";
    } catch (const ConfigError& e) {
      EXPECT_THAT(e.what(), HasSubstr("handler 't' has claims of mode leased: 1 running"));
    }
  }
  EXPECT_EQ(inbox->committed().size(), 1U);
}

}  // namespace
}  // namespace turnstile::test
