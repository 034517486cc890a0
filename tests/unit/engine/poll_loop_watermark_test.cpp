// The position from which a PollLoop makes its caller read again, with the in-memory broker and store. It depends on
// the watermark in the database and on the start of the log.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/forwarding_store.hpp"
#include "tests/unit/engine/poll_loop_fixture.hpp"

namespace turnstile {
namespace {

using test::PollLoopWatermark;
using ::testing::HasSubstr;
using ::testing::Not;

/// A process that is killed writes no last watermark. The next process must not be sent below the start of the log:
/// there, librdkafka would follow auto.offset.reset. With "latest", it would never read the unread records.
class PollLoopRetention : public PollLoopWatermark {
 protected:
  /// Messages 0 to 4 were settled, the watermark in the database is 1, and retention has deleted all records below
  /// `first_kept`.
  void be_killed_after_five(const std::function<std::unique_ptr<PollLoop>()>& make, Offset first_kept) {
    killed = make();
    for (Offset offset = 0; offset < 5; ++offset) handle(*killed, offset);
    ASSERT_EQ(inbox->watermark(1), 1);
    broker->delete_before({at, first_kept});
    loop = make();
  }
  std::unique_ptr<PollLoop> killed;  // stays alive, so that nothing is released
  std::unique_ptr<PollLoop> loop;
};

TEST_F(PollLoopRetention, goes_on_where_nothing_is_left_to_read_again) {
  be_killed_after_five([this] { return make_loop(insert() | transactional()); }, 5);
  for (Offset offset = 5; offset < 9; ++offset) EXPECT_EQ(handle(*loop, offset), Settled::done) << offset;
  EXPECT_THAT(log_text(), HasSubstr("does not record as settled: offsets 1 to 4 (retention)"));
}

TEST_F(PollLoopRetention, reads_again_from_where_the_log_begins) {
  be_killed_after_five([this] { return make_loop(insert() | transactional()); }, 3);
  EXPECT_EQ(read_again(*loop, 5), 3);
  EXPECT_EQ(read_again(*loop, 6), 3) << "until the caller has gone there";
  EXPECT_THAT(log_text(), HasSubstr("offsets 1 to 2 (retention)"));
  loop->revoked(at);
  for (Offset offset = 3; offset < 9; ++offset)
    EXPECT_EQ(handle(*loop, offset), offset < 5 ? Settled::duplicate : Settled::done) << offset;
}

TEST_F(PollLoopRetention, has_nothing_in_doubt_where_nothing_is_left_to_read_again) {
  be_killed_after_five([this] { return make_loop(Pipeline([](const Message&, Context&) {}) | leased()); }, 5);
  EXPECT_EQ(handle(*loop, 5), Settled::done);
  EXPECT_TRUE(loop->may_commit({at, 6}));
}

TEST_F(PollLoopRetention, reads_again_from_where_the_log_begins_after_a_failover) {
  loop = make_loop(insert() | transactional());
  for (Offset offset = 0; offset < 5; ++offset) handle(*loop, offset);
  const auto replica = inbox->replica();
  for (Offset offset = 5; offset < 10; ++offset) handle(*loop, offset);
  inbox->fail_over(replica);
  broker->delete_before({at, 7});
  EXPECT_EQ(read_again(*loop, 10), 7);
  loop->revoked(at);
  for (Offset offset = 7; offset < 12; ++offset) EXPECT_EQ(handle(*loop, offset), Settled::done) << offset;
}

TEST_F(PollLoopRetention, reads_from_the_watermark_without_a_broker) {
  const auto make = [this] {
    auto without = std::make_unique<PollLoop>(Config{}, Backends{nullptr, inbox});
    without->topic("t", insert() | transactional()).logger(logger);
    return without;
  };
  be_killed_after_five(make, 5);
  EXPECT_EQ(read_again(*loop, 5), 1) << "where the log begins, only its caller can know";
}

/// Another member claims the partition before the transaction of the first message begins.
class ClaimedMeanwhile final : public test::ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  std::unique_ptr<ports::InboxSession> open_session() override {
    const TopicPartition at{"t", 0};
    if (std::exchange(is_first_, false)) claim_partitions(Config{}.group(), {&at, 1}, std::chrono::seconds(1));
    return ForwardingStore::open_session();
  }

 private:
  bool is_first_ = true;
};

/// A loop that passes records to threads may already have the next message when it is fenced.
TEST_F(PollLoopWatermark, the_first_message_is_not_passed_over_by_the_loop_that_was_fenced_in_it) {
  PollLoop loop(Config{}, Backends{broker, std::make_shared<ClaimedMeanwhile>(inbox)});
  loop.topic("t", insert() | transactional() | dead_letter());
  EXPECT_THROW(handle(loop, 0), Fenced);
  EXPECT_EQ(read_again(loop, 1), 0);
  EXPECT_EQ(read_again(loop, 2), 0) << "until the caller has gone there";
  loop.revoked(at);
  for (Offset offset = 0; offset < 3; ++offset) EXPECT_EQ(handle(loop, offset), Settled::done) << offset;
}

/// Another member claims the partition after this loop's claim, and before this loop looks at what the last owner was
/// running.
class ClaimedBeforeTakeOver final : public test::ForwardingStore {
 public:
  explicit ClaimedBeforeTakeOver(std::shared_ptr<ports::Store> inner) : ForwardingStore(std::move(inner)) {}
  std::shared_ptr<ports::Trials> trials() override { return std::make_shared<Hooked>(*this); }
  bool armed = false;

 private:
  class Hooked final : public ports::Trials {
   public:
    explicit Hooked(ClaimedBeforeTakeOver& store) : store_(store), inner_(store.ForwardingStore::trials()) {}
    std::vector<ports::Suspect> take_over(const Fence& fence, Offset first) override {
      const TopicPartition at{"t", 0};
      if (std::exchange(store_.armed, false))
        store_.claim_partitions(Config{}.group(), {&at, 1}, std::chrono::seconds(1));
      return inner_->take_over(fence, first);
    }
    void begin(const Fence& fence, std::span<const Offset> offsets, bool alone) override {
      inner_->begin(fence, offsets, alone);
    }
    void end(const Fence& fence, std::span<const Offset> offsets, std::span<const Offset> settled) override {
      inner_->end(fence, offsets, settled);
    }
    void release(std::span<const Release> partitions) override { inner_->release(partitions); }

   private:
    ClaimedBeforeTakeOver& store_;
    std::shared_ptr<ports::Trials> inner_;
  };
};

TEST_F(PollLoopWatermark, the_first_message_behind_the_seek_is_not_passed_over_when_it_is_fenced) {
  const auto killed = make_loop(insert() | transactional());
  handle(*killed, 0);  // the partition is never released
  const auto store = std::make_shared<ClaimedBeforeTakeOver>(inbox);
  PollLoop loop(Config{}, Backends{broker, store});
  loop.topic("t", insert() | transactional() | dead_letter());
  EXPECT_EQ(read_again(loop, 3), 1);
  loop.revoked(at);
  store->armed = true;
  try {
    handle(loop, 1);
    ADD_FAILURE() << "it was handled";
  } catch (const Fenced& e) {
    EXPECT_THAT(e.what(), HasSubstr("t[0]@1: "));
  }
  EXPECT_EQ(read_again(loop, 2), 1) << "message 1 was dropped";
  loop.revoked(at);
  for (Offset offset = 1; offset < 4; ++offset) EXPECT_EQ(handle(loop, offset), Settled::done) << offset;
}

/// Another member claims the partition once, and runs nothing.
class PollLoopFenced : public PollLoopWatermark {
 protected:
  void be_fenced_in(PollLoop& fenced, Offset offset) {
    inbox->claim_partitions(Config{}.group(), {&at, 1}, std::chrono::seconds(1));
    EXPECT_THROW(handle(fenced, offset), Fenced);
  }
};

/// In mode leased, the message that the loop dropped has not taken effect, whichever message comes next.
TEST_F(PollLoopFenced, what_it_dropped_is_not_in_doubt) {
  const auto loop = make_loop(Pipeline([](const Message&, Context&) {}) | leased());
  for (Offset offset = 0; offset < 3; ++offset) handle(*loop, offset);
  be_fenced_in(*loop, 3);
  const Offset from = read_again(*loop, 4);
  loop->revoked(at);
  for (Offset offset = from; offset < 8; ++offset)
    EXPECT_EQ(handle(*loop, offset), offset < 3 ? Settled::duplicate : Settled::done) << offset;
}

/// The header of PollLoop describes this for a loop that keeps the partition.
TEST_F(PollLoopFenced, it_goes_on_from_the_message_that_was_fenced) {
  const auto loop = make_loop(Pipeline([](const Message&, Context&) {}) | leased());
  for (Offset offset = 0; offset < 3; ++offset) handle(*loop, offset);
  be_fenced_in(*loop, 3);
  loop->revoked(at);
  const Offset from = read_again(*loop, 3);
  loop->revoked(at);
  for (Offset offset = from; offset < 8; ++offset)
    EXPECT_EQ(handle(*loop, offset), offset < 3 ? Settled::duplicate : Settled::done) << offset;
}

/// Does something before the first watermark is written.
class BeforeWriting final : public test::ForwardingStore {
 public:
  BeforeWriting(std::shared_ptr<ports::Store> inner, std::function<void()> act)
      : ForwardingStore(std::move(inner)), act_(std::move(act)) {}
  std::vector<ports::WatermarkState> advance_watermarks(std::span<const ports::WatermarkUpdate> updates) override {
    if (const auto act = std::exchange(act_, nullptr)) act();
    return ForwardingStore::advance_watermarks(updates);
  }

 private:
  std::function<void()> act_;
};

TEST_F(PollLoopWatermark, the_first_watermark_is_written_also_by_a_loop_that_another_one_came_before) {
  const auto claim = [&] { inbox->claim_partitions(Config{}.group(), {&at, 1}, std::chrono::seconds(1)); };
  PollLoop loop(Config{}, Backends{broker, std::make_shared<BeforeWriting>(inbox, claim)});
  loop.topic("t",
             [this](const Message&, Context&) { EXPECT_EQ(inbox->watermark(1), 3); } | transactional() | dead_letter());
  EXPECT_EQ(handle(loop, 3), Settled::done);
  EXPECT_EQ(inbox->watermark(1), 4);
}

/// The group begins at the first message that it is given, as with auto.offset.reset=latest.
TEST_F(PollLoopWatermark, a_group_may_begin_in_the_middle_of_the_log) {
  auto loop = make_loop(insert() | transactional());
  for (Offset offset = 6; offset < 8; ++offset) EXPECT_EQ(handle(*loop, offset), Settled::done);
  const auto killed = std::exchange(loop, make_loop(insert() | transactional()));
  EXPECT_EQ(read_again(*loop, 8), 7);
}

TEST_F(PollLoopWatermark, nothing_runs_before_the_first_watermark_is_written) {
  const auto fail = [] { throw StoreUnavailable("away"); };
  PollLoop loop(Config{}, Backends{broker, std::make_shared<BeforeWriting>(inbox, fail)});
  loop.topic("t", insert() | transactional() | dead_letter());
  EXPECT_THROW(handle(loop, 3), StoreUnavailable);
  EXPECT_TRUE(inbox->committed().empty());
  EXPECT_EQ(handle(loop, 3), Settled::done);
  EXPECT_EQ(inbox->watermark(1), 4);
}

TEST_F(PollLoopWatermark, a_failover_is_no_suspicion) {
  auto loop = make_loop(insert() | transactional());
  for (Offset offset = 0; offset < 5; ++offset) handle(*loop, offset);
  inbox->fail_over(inbox->replica());
  const Offset from = read_again(*loop, 5);
  loop->revoked(at);
  for (Offset offset = from; offset < 9; ++offset) handle(*loop, offset);
  EXPECT_THAT(log_text(), Not(HasSubstr("without releasing")));
  loop.reset();
  EXPECT_TRUE(inbox->claim_partitions(Config{}.group(), {&at, 1}, std::chrono::seconds(1)).front().is_clean);
}

}  // namespace
}  // namespace turnstile
