// The position from which a PollLoop makes its caller read again, with the in-memory broker and store. It depends on
// the watermark in the database and on the start of the log.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/captured_log.hpp"
#include "tests/support/forwarding_store.hpp"
#include "turnstile/error.hpp"
#include "turnstile/poll_loop.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/testing/inbox.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class PollLoopWatermark : public ::testing::Test {
 protected:
  void SetUp() override {
    broker->create_topic("t", 1);
    broker->create_topic("t.dlq", 1);
    produce_more(12);
  }
  void produce_more(int count) {
    for (int i = 0; i < count; ++i) {
      OwnedMessage message;
      message.topic = "t";
      message.partition = 0;
      message.headers = {{"message-id", "m" + std::to_string(records.size() + static_cast<std::size_t>(i))}};
      broker->produce(message);
    }
    records = broker->records("t");
  }

  static Pipeline insert() {
    return [](const Message& message, Context& context) { context.tx().exec("INSERT", message.offset()); };
  }
  std::unique_ptr<PollLoop> make_loop(Pipeline pipeline) {
    auto loop = std::make_unique<PollLoop>(Config{}, Backends{broker, inbox});
    loop->topic("t", std::move(pipeline) | dead_letter()).logger(logger);
    return loop;
  }
  Settled handle(PollLoop& loop, Offset offset) {
    return loop.handle(Message(records.at(static_cast<std::size_t>(offset))));
  }
  Offset read_again(PollLoop& loop, Offset offset) {
    try {
      handle(loop, offset);
    } catch (const ReadAgain& again) {
      return again.from.offset;
    }
    ADD_FAILURE() << "it was handled";
    return -1;
  }
  std::string log_text() {
    logger->flush();
    return text.str();
  }

  const TopicPartition at{"t", 0};
  std::shared_ptr<testing::MemoryBroker> broker = std::make_shared<testing::MemoryBroker>();
  std::shared_ptr<testing::MemoryInbox> inbox = std::make_shared<testing::MemoryInbox>();
  std::vector<OwnedMessage> records;  // by offset; includes those that the broker has deleted since
  test::CapturedLog text;
  std::shared_ptr<spdlog::logger> logger = std::make_shared<spdlog::logger>("test", text.sink());
};

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
  std::unique_ptr<InboxSession> open_session() override {
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
  explicit ClaimedBeforeTakeOver(std::shared_ptr<Store> inner) : ForwardingStore(std::move(inner)) {}
  std::shared_ptr<Trials> trials() override { return std::make_shared<Hooked>(*this); }
  bool armed = false;

 private:
  class Hooked final : public Trials {
   public:
    explicit Hooked(ClaimedBeforeTakeOver& store) : store_(store), inner_(store.ForwardingStore::trials()) {}
    std::vector<Suspect> take_over(const Fence& fence, Offset first) override {
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
    std::shared_ptr<Trials> inner_;
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
  BeforeWriting(std::shared_ptr<Store> inner, std::function<void()> act)
      : ForwardingStore(std::move(inner)), act_(std::move(act)) {}
  std::vector<WatermarkState> advance_watermarks(std::span<const WatermarkUpdate> updates) override {
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

/// The topic is deleted and created again. The new topic ends below what was settled of the old one.
class PollLoopRecreated : public PollLoopWatermark {
 protected:
  void recreate(int count) {
    broker->replace_topic("t", [&](const auto& append) {
      for (int i = 0; i < count; ++i) {
        OwnedMessage message;
        message.topic = "t";
        message.partition = 0;
        message.payload = "of the new topic";
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
    struct Listener final : AssignmentListener {
      std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition>) override { return {}; }
      void on_revoked(std::span<const TopicPartition>, bool) override {}
    } listener;
    const TopicPartitionOffset committed{at, offset};
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
  inbox->begin_incarnation(fence, 0);
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
