// The contract of every inbox for batches that are numbered by their offsets.

#include <gmock/gmock.h>

#include <future>

#include "inbox_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "turnstile/error.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

class SequenceContract : public InboxContract {
 protected:
  [[nodiscard]] ports::InboxScope numbered(std::int32_t incarnation = 0) const {
    ports::InboxScope numbered = scope(fence_);
    numbered.mode = Mode::by_offset;
    numbered.incarnation = incarnation;
    return numbered;
  }
  static std::vector<ports::InboxEntry> at(const std::vector<Offset>& offsets) {
    std::vector<ports::InboxEntry> entries;
    for (const Offset offset : offsets) entries.emplace_back().offset = offset;
    return entries;
  }
  /// A transaction with an effect for each fresh offset, named after it.
  std::string handle(const ports::InboxScope& scope, const std::vector<Offset>& offsets, bool committed = true) {
    const auto session = store().open_session();
    const std::string admitted = admit(*session, scope, at(offsets));
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      if (admitted[i] == 'f') session->transaction().exec(InboxFixture::kEffect, std::to_string(offsets[i]));
    }
    if (committed) session->commit();
    return admitted;
  }
};

INSTANTIATE_TEST_SUITE_P(Sequence, SequenceContract, inbox_kinds(), kind_name);

TEST_P(SequenceContract, what_lies_below_the_progress_is_a_duplicate) {
  EXPECT_EQ(handle(numbered(), {0, 1, 2}), "fff");
  EXPECT_EQ(handle(numbered(), {1, 2, 3, 4}), "ddff");
  EXPECT_EQ(handle(numbered(), {0, 1, 2, 3, 4}), "ddddd");
  EXPECT_THAT(world_->effects(), ElementsAre("0", "1", "2", "3", "4"));
}

TEST_P(SequenceContract, gaps_are_normal) {
  EXPECT_EQ(handle(numbered(), {10, 17}), "ff");
  EXPECT_EQ(handle(numbered(), {17, 40}), "df");
  EXPECT_EQ(handle(numbered(), {18, 39, 41}), "ddf") << "what was passed over is behind";
}

TEST_P(SequenceContract, a_rollback_moves_nothing) {
  EXPECT_EQ(handle(numbered(), {0, 1}, false), "ff");
  EXPECT_EQ(handle(numbered(), {0}), "f");
  EXPECT_EQ(handle(numbered(), {0, 1}), "df");
}

TEST_P(SequenceContract, a_partition_belongs_to_its_owner) {
  const ports::InboxScope old = numbered();
  handle(old, {0});
  fence_ = claim();
  EXPECT_THROW(handle(old, {1}), Fenced);
  EXPECT_EQ(handle(numbered(), {0, 1}), "df") << "the progress is the partition's, not its owner's";
}

TEST_P(SequenceContract, partitions_and_handlers_count_by_themselves) {
  handle(numbered(), {0, 1, 2});
  fence_ = claim(1);
  EXPECT_EQ(handle(numbered(), {0, 1}), "ff");
  ports::InboxScope mail = numbered();
  mail.handler = store().register_handler("mail");
  EXPECT_EQ(handle(mail, {0}), "f");
}

TEST_P(SequenceContract, a_recreated_topic_begins_anew) {
  handle(numbered(0), {0, 1, 2});
  EXPECT_EQ(handle(numbered(1), {0}), "f");
  EXPECT_EQ(handle(numbered(1), {0, 1}), "df");
}

TEST_P(SequenceContract, an_answer_to_commit_that_is_lost_doubles_nothing) {
  for (const bool carried_out : {true, false}) {
    const Offset offset = carried_out ? 7 : 8;
    const auto session = store().open_session();
    EXPECT_EQ(admit(*session, numbered(), at({offset})), "f");
    session->transaction().exec(InboxFixture::kEffect, std::to_string(offset));
    world_->lose_next_commit(carried_out);
    EXPECT_THROW(session->commit(), CommitInDoubt);
    EXPECT_EQ(handle(numbered(), {offset}), carried_out ? "d" : "f");
  }
  EXPECT_THAT(world_->effects(), ElementsAre("7", "8"));
}

/// The commit whose answer was lost may still be in progress. The next transaction waits for it, and sees it.
TEST_P(SequenceContract, who_comes_next_waits_for_a_transaction_that_is_open) {
  for (const Offset first : {Offset{0}, Offset{2}}) {  // without the row; with the row
    const auto session = store().open_session();
    EXPECT_EQ(admit(*session, numbered(), at({first, first + 1})), "ff");
    std::promise<void> started;
    auto next = std::async(std::launch::async, [&] {
      started.set_value();
      return handle(numbered(), {first, first + 1});
    });
    started.get_future().wait();
    EXPECT_EQ(next.wait_for(100ms), std::future_status::timeout);
    session->commit();
    EXPECT_EQ(next.get(), "dd");
  }
  ports::InboxScope impatient = numbered();
  impatient.lock_timeout = 50ms;
  const auto session = store().open_session();
  admit(*session, numbered(), at({9}));
  EXPECT_THROW(handle(impatient, {9}), StoreBusy);
}

TEST_P(SequenceContract, an_empty_batch_moves_nothing) {
  EXPECT_EQ(handle(numbered(), {}), "");
  EXPECT_EQ(handle(numbered(), {0}), "f");
}

}  // namespace
}  // namespace turnstile::test
