// The contract of trials for every store (ports/trials.hpp).

#include <gmock/gmock.h>

#include "inbox_fixture.hpp"
#include "turnstile/error.hpp"

namespace turnstile::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::chrono::hours kLong{1};
constexpr std::chrono::milliseconds kNone{0};

class TrialsContract : public InboxContract {
 protected:
  void SetUp() override {
    InboxContract::SetUp();
    if (world_) trials_ = store().trials();
  }
  /// A new owner, after an owner that has not released the partition.
  ports::PartitionClaim next_owner(std::int32_t partition = 0) {
    const TopicPartition at{"payments", partition};
    return store().partitions().claim_partitions("group", {&at, 1}, std::chrono::seconds(5)).front();
  }
  std::vector<ports::Suspect> take_over(const Fence& fence, Offset first = 0) {
    return trials_->take_over(fence, first);
  }
  void begin(const Fence& fence, const std::vector<Offset>& offsets, bool alone = false) {
    trials_->begin(fence, offsets, alone);
  }
  void end(const Fence& fence, const std::vector<Offset>& offsets, const std::vector<Offset>& settled) {
    trials_->end(fence, offsets, settled);
  }
  void release(const Fence& fence, bool is_proved = true) {
    const ports::Trials::Release released{fence, is_proved};
    trials_->release({&released, 1});
  }
  /// The owner gives the partition up while its handlers run, and goes on.
  void give_up(const Fence& fence, std::chrono::milliseconds runs_for) {
    const ports::Trials::Release released{.fence = fence, .is_proved = false, .runs_for = runs_for};
    trials_->release({&released, 1});
  }

  std::shared_ptr<ports::Trials> trials_;
};

INSTANTIATE_TEST_SUITE_P(Trials, TrialsContract, inbox_kinds(), kind_name);

TEST_P(TrialsContract, tells_an_owner_that_left_from_one_that_died) {
  const ports::PartitionClaim first = next_owner(9);
  EXPECT_TRUE(first.is_clean) << "nobody had it before";
  const ports::PartitionClaim second = next_owner(9);
  EXPECT_FALSE(second.is_clean);
  release(second.fence);
  const ports::PartitionClaim third = next_owner(9);
  EXPECT_TRUE(third.is_clean);
  release(second.fence);
  EXPECT_FALSE(next_owner(9).is_clean) << "what an earlier owner says is nothing to the last one";
}

TEST_P(TrialsContract, an_owner_that_was_careful_to_the_end_leaves_its_care) {
  const Fence first = next_owner().fence;
  begin(first, {7});
  release(first, false);
  const ports::PartitionClaim second = next_owner();
  EXPECT_FALSE(second.is_clean);
  EXPECT_THAT(take_over(second.fence), IsEmpty()) << "nothing ran any more";
}

/// A handler that does not end in time. Its transaction has the partition.
TEST_P(TrialsContract, an_owner_that_leaves_while_a_message_runs_has_not_died) {
  const Fence first = next_owner().fence;
  begin(first, {7}, true);
  const auto open = store().open_session();
  admit(*open, scope(first), entries({"m"}));
  release(first, false);
  open->rollback();
  EXPECT_THAT(take_over(next_owner().fence), IsEmpty());
}

TEST_P(TrialsContract, what_outlasts_its_owner_kills_it_only_if_it_does_not_end) {
  const Fence first = next_owner().fence;
  begin(first, {7}, true);
  give_up(first, kLong);
  const Fence second = next_owner().fence;
  EXPECT_THAT(take_over(second), IsEmpty()) << "its process may live";
  begin(second, {7}, true);
  give_up(second, kNone);
  const Fence third = next_owner().fence;
  EXPECT_THAT(take_over(third), ElementsAre(ports::Suspect{7, 1})) << "the second one has died";
  EXPECT_THAT(take_over(third), ElementsAre(ports::Suspect{7, 1})) << "once";
  end(first, {7}, {});
  give_up(first, kNone);
  EXPECT_THAT(take_over(next_owner().fence), ElementsAre(ports::Suspect{7, 1})) << "the first one has not";
}

TEST_P(TrialsContract, what_outlasts_its_owner_kills_nobody_as_long_as_the_owner_says_so) {
  const Fence first = next_owner().fence;
  begin(first, {7}, true);
  give_up(first, kNone);
  give_up(first, kLong);
  EXPECT_THAT(take_over(next_owner().fence), IsEmpty());
  give_up(first, kNone);
  EXPECT_THAT(take_over(next_owner().fence), ElementsAre(ports::Suspect{7, 1}));
  const Fence second = next_owner().fence;
  begin(second, {8}, true);
  give_up(second, kNone);
  release(second, false);
  EXPECT_THAT(take_over(next_owner().fence), ElementsAre(ports::Suspect{7, 1})) << "it ends by itself";
}

/// After a restart of the database. The record has survived, and so has the process.
TEST_P(TrialsContract, what_outlasts_its_owner_ends_in_another_history_too) {
  const auto before = [](Fence fence) {
    --fence.history;
    return fence;
  };
  Fence owner = next_owner().fence;
  begin(owner, {7}, true);
  give_up(owner, kNone);
  end(before(owner), {7}, {});
  EXPECT_THAT(take_over(next_owner().fence), IsEmpty());
  owner = next_owner().fence;
  begin(owner, {7}, true);
  give_up(owner, kNone);
  release(before(owner), false);
  EXPECT_THAT(take_over(next_owner().fence), IsEmpty());
  owner = next_owner().fence;
  begin(owner, {7}, true);
  give_up(owner, kNone);
  give_up(before(owner), kLong);
  EXPECT_THAT(take_over(next_owner().fence), IsEmpty());
  owner = next_owner().fence;
  begin(owner, {8}, true);
  release(before(owner), false);
  EXPECT_THAT(take_over(next_owner().fence), ElementsAre(ports::Suspect{8, 1})) << "who has begun it, is not known";
}

TEST_P(TrialsContract, each_owner_that_dies_of_what_outlasts_it_counts) {
  for (int owner = 0; owner < 3; ++owner) {
    const Fence fence = next_owner().fence;
    begin(fence, {7}, true);
    give_up(fence, kNone);
  }
  const Fence careful = next_owner().fence;
  begin(careful, {7, 8});
  give_up(careful, kNone);
  EXPECT_THAT(take_over(next_owner().fence), ElementsAre(ports::Suspect{7, 3}, ports::Suspect{8, 0}));
}

TEST_P(TrialsContract, what_outlasts_an_owner_that_stops_has_not_killed_it) {
  const Fence first = next_owner().fence;
  begin(first, {7}, true);
  give_up(first, kNone);  // a rebalance; then the process stops
  release(first, false);
  EXPECT_THAT(take_over(next_owner().fence), IsEmpty());
}

TEST_P(TrialsContract, what_outlasts_an_owner_and_is_settled_by_another_one_is_no_suspect) {
  const Fence first = next_owner().fence;
  begin(first, {7}, true);
  begin(first, {8, 9});
  give_up(first, kNone);
  const Fence second = next_owner().fence;
  begin(second, {7, 8});
  end(second, {7, 8}, std::vector<Offset>{7, 8});
  const Fence third = next_owner().fence;
  EXPECT_THAT(take_over(third), ElementsAre(ports::Suspect{8, 0}, ports::Suspect{9, 0}))
      << "what ran together is settled together";
  give_up(third, kNone);
}

TEST_P(TrialsContract, what_outlasts_an_owner_is_forgotten_once_a_later_one_has_nothing_to_prove) {
  const Fence first = next_owner().fence;
  begin(first, {7}, true);
  give_up(first, kNone);
  release(next_owner().fence);
  next_owner();
  EXPECT_THAT(take_over(next_owner().fence), IsEmpty());
}

TEST_P(TrialsContract, what_was_running_is_suspect_and_what_ran_alone_has_killed) {
  const Fence first = next_owner().fence;
  begin(first, {3, 4, 9});
  begin(first, {5, 6});
  end(first, {5, 6}, std::vector<Offset>{5, 6});
  const Fence second = next_owner().fence;
  EXPECT_THAT(take_over(second), ElementsAre(ports::Suspect{3, 0}, ports::Suspect{4, 0}, ports::Suspect{9, 0}));
  EXPECT_THAT(take_over(second), ElementsAre(ports::Suspect{3, 0}, ports::Suspect{4, 0}, ports::Suspect{9, 0}))
      << "the second call returns them again";
  begin(second, {3}, true);
  end(second, {3}, std::vector<Offset>{3});
  begin(second, {4}, true);
  const Fence third = next_owner().fence;
  EXPECT_THAT(take_over(third), ElementsAre(ports::Suspect{4, 1}, ports::Suspect{9, 0}));
  begin(third, {4}, true);
  const Fence fourth = next_owner().fence;
  EXPECT_THAT(take_over(fourth), ElementsAre(ports::Suspect{4, 2}, ports::Suspect{9, 0}));
  begin(fourth, {4}, true);
  end(fourth, {4}, {});
  EXPECT_THAT(take_over(next_owner().fence), ElementsAre(ports::Suspect{4, 2}, ports::Suspect{9, 0}))
      << "it ended, and is not settled";
}

TEST_P(TrialsContract, partitions_do_not_mix) {
  const Fence one = next_owner(0).fence, other = next_owner(1).fence;
  begin(one, {3});
  begin(other, {4});
  EXPECT_THAT(take_over(next_owner(0).fence), ElementsAre(ports::Suspect{3, 0}));
  EXPECT_THAT(take_over(next_owner(1).fence), ElementsAre(ports::Suspect{4, 0}));
}

TEST_P(TrialsContract, a_death_of_a_process_that_lives_is_taken_back) {
  const Fence first = next_owner().fence;
  begin(first, {4}, true);
  const Fence second = next_owner().fence;
  EXPECT_THAT(take_over(second), ElementsAre(ports::Suspect{4, 1}));
  end(first, {4}, {});
  EXPECT_THAT(take_over(second), ElementsAre(ports::Suspect{4, 0}));
  end(first, {4}, {});
  EXPECT_THAT(take_over(second), ElementsAre(ports::Suspect{4, 0}));
}

TEST_P(TrialsContract, what_is_not_read_any_more_is_no_suspect) {
  const Fence first = next_owner().fence;
  begin(first, {3, 4});
  begin(first, {9});
  const Fence second = next_owner().fence;
  EXPECT_THAT(take_over(second, 4), ElementsAre(ports::Suspect{4, 0}, ports::Suspect{9, 0}));
  EXPECT_THAT(take_over(second, 9), ElementsAre(ports::Suspect{9, 0}));
  EXPECT_THAT(take_over(second), ElementsAre(ports::Suspect{9, 0})) << "they are gone";
}

TEST_P(TrialsContract, what_is_read_again_below_the_watermark_is_suspect) {
  const Fence first = next_owner().fence;
  const ports::WatermarkUpdate update{first, 9};
  store().partitions().advance_watermarks({&update, 1});
  begin(first, {3, 4});
  const Fence second = next_owner().fence;
  EXPECT_THAT(take_over(second, 3), ElementsAre(ports::Suspect{3, 0}, ports::Suspect{4, 0}));
  begin(second, {3}, true);
  EXPECT_THAT(take_over(next_owner().fence, 3), ElementsAre(ports::Suspect{3, 1}, ports::Suspect{4, 0}));
}

TEST_P(TrialsContract, a_topic_that_was_recreated_begins_without_suspects) {
  const Fence first = next_owner().fence;
  begin(first, {3});
  const Fence second = next_owner().fence;
  EXPECT_THAT(take_over(second), ElementsAre(ports::Suspect{3, 0}));
  begin(second, {4}, true);
  const Fence third = next_owner().fence;
  store().partitions().begin_incarnation(third, 0, 0);
  EXPECT_THAT(take_over(third), IsEmpty());
}

TEST_P(TrialsContract, an_owner_whose_epoch_is_over_begins_nothing) {
  const Fence first = next_owner().fence;
  next_owner();
  EXPECT_THROW(begin(first, {3}), Fenced);
  EXPECT_THROW(take_over(first), Fenced);
}

TEST_P(TrialsContract, an_owner_of_another_history_of_the_database_changes_nothing) {
  const Fence first = next_owner().fence;
  begin(first, {3, 4}, true);
  const Fence ours = next_owner().fence;
  EXPECT_THAT(take_over(ours), ElementsAre(ports::Suspect{3, 1}, ports::Suspect{4, 1}));
  const auto elsewhere = [](Fence fence) {
    ++fence.history;
    return fence;
  };
  const Fence other = elsewhere(ours);
  EXPECT_THROW(take_over(other), Fenced);
  EXPECT_THROW(begin(other, {5}, true), Fenced);
  end(elsewhere(first), {3, 4}, std::vector<Offset>{3});
  EXPECT_THAT(take_over(ours), ElementsAre(ports::Suspect{3, 1}, ports::Suspect{4, 1}))
      << "what settled the first may be lost, and the epoch may be another owner's";
  begin(ours, {4}, true);
  release(other);
  const ports::PartitionClaim next = next_owner();
  EXPECT_FALSE(next.is_clean);
  EXPECT_THAT(take_over(next.fence), ElementsAre(ports::Suspect{3, 1}, ports::Suspect{4, 2}));
}

/// After a restart of the database. What the message did may be lost, but its process has outlived it.
TEST_P(TrialsContract, what_ended_in_another_history_is_suspect_but_has_killed_nobody) {
  const Fence first = next_owner().fence;
  begin(first, {3}, true);
  begin(first, {4}, true);
  Fence before = first;
  --before.history;
  end(before, {3}, std::vector<Offset>{3});
  EXPECT_THAT(take_over(next_owner().fence), ElementsAre(ports::Suspect{3, 0}, ports::Suspect{4, 1}));
}

/// A suspect that ran beside others. Its process lives, but nothing was counted that could be taken back.
TEST_P(TrialsContract, a_death_that_did_not_count_is_not_taken_back) {
  const Fence first = next_owner().fence;
  begin(first, {4}, true);
  const Fence second = next_owner().fence;
  EXPECT_THAT(take_over(second), ElementsAre(ports::Suspect{4, 1}));
  begin(second, {4}, false);
  const Fence third = next_owner().fence;
  EXPECT_THAT(take_over(third), ElementsAre(ports::Suspect{4, 1}));
  end(second, {4}, {});
  EXPECT_THAT(take_over(third), ElementsAre(ports::Suspect{4, 1}));
  end(first, {4}, {});
  EXPECT_THAT(take_over(third), ElementsAre(ports::Suspect{4, 0})) << "the first one lives";
}

}  // namespace
}  // namespace turnstile::test
