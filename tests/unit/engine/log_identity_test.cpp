// Compares a log that was deleted and created again, or truncated, with the log that was read.

#include "engine/log_identity.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace turnstile::detail {
namespace {

using Kind = LogIdentity::Verdict::Kind;
using Look = LogIdentity::Look;

/// Records from `first` on, of the log with that name. No other log has records with the same times.
class Records {
 public:
  Records(Offset first, std::size_t count, int log) {
    for (std::size_t i = 0; i < count; ++i) {
      OwnedMessage message;
      message.topic = "t";
      message.offset = first + static_cast<Offset>(i);
      message.timestamp = Timestamp(std::chrono::milliseconds(1'000'000 * log + message.offset));
      owned_.push_back(std::move(message));
    }
    for (const auto& message : owned_) views_.emplace_back(message);
  }
  [[nodiscard]] std::span<const Message> all() const { return views_; }

 private:
  std::vector<OwnedMessage> owned_;
  std::vector<Message> views_;
};

class LogIdentityTest : public ::testing::Test {
 protected:
  Look look(Offset first, std::size_t count, int log = 1) { return watch.look(at, Records(first, count, log).all()); }
  LogIdentity::Verdict judge(std::optional<Offset> committed, std::optional<Offset> done, Offset first, Offset end) {
    return watch.judge(at, {committed, done, first, end});
  }
  const TopicPartition at{"t", 0};
  LogIdentity watch;
};

TEST_F(LogIdentityTest, finds_nothing_in_a_log_that_goes_on) {
  EXPECT_EQ(look(0, 100), Look::follow);
  EXPECT_EQ(look(150, 5'000), Look::follow) << "offsets have gaps";
  watch.begin(at);
  EXPECT_EQ(look(3, 5'147), Look::follow) << "read again from an earlier place";
  EXPECT_EQ(judge(5'150, 5'150, 0, 5'150).kind, Kind::same);
}

TEST_F(LogIdentityTest, tells_a_record_that_comes_twice_from_another_at_its_offset) {
  EXPECT_EQ(look(0, 100), Look::follow);
  EXPECT_EQ(look(95, 5), Look::repeat);
  EXPECT_EQ(look(100, 5), Look::follow);
  EXPECT_EQ(look(0, 1, 2), Look::broken);
}

TEST_F(LogIdentityTest, takes_a_record_where_there_was_none_for_one_of_another_log) {
  EXPECT_EQ(look(0, 10), Look::follow);
  EXPECT_EQ(look(20, 10), Look::follow);
  watch.begin(at);
  EXPECT_EQ(look(15, 1), Look::broken);
}

TEST_F(LogIdentityTest, doubts_offsets_that_begin_again_before_all_that_it_remembers) {
  EXPECT_EQ(look(0, 5'000), Look::follow);
  EXPECT_EQ(look(0, 100), Look::broken);
  EXPECT_EQ(judge(4'000, 4'000, 0, 5'000).kind, Kind::same) << "Kafka has the offset, so it has the topic";
}

TEST_F(LogIdentityTest, knows_a_recreated_topic_by_the_offset_that_kafka_has_dropped) {
  watch.has_offset(at, LeaseClock::now());
  const auto verdict = judge(std::nullopt, 300, 0, 5'000);
  EXPECT_EQ(verdict.kind, Kind::recreated);
  EXPECT_EQ(verdict.from, 0);
  watch.settle(at, verdict, 1, verdict.from);
  EXPECT_FALSE(watch.suspects(at));
}

/// Kafka deletes a topic with all its partitions. Another process read this one until now.
TEST_F(LogIdentityTest, knows_a_recreated_topic_by_another_partition) {
  const TopicPartition other{at.topic, at.partition + 1};
  watch.claimed(at, 0);
  watch.has_offset(at, LeaseClock::now());
  watch.settle(at, judge(std::nullopt, 300, 0, 5'000), 1, 0);
  watch.claimed(other, 0);
  EXPECT_TRUE(watch.suspects(other));
  LogIdentity::Known known;
  known.done = 300;
  known.end = 5'000;
  const auto verdict = watch.judge(other, known);
  EXPECT_EQ(verdict.kind, Kind::recreated);
  watch.settle(other, verdict, 1, 0);
  EXPECT_FALSE(watch.suspects(other));
  EXPECT_FALSE(watch.suspects(at)) << "it is begun already";
}

TEST_F(LogIdentityTest, knows_a_recreated_topic_by_another_partition_before_that_is_judged) {
  const TopicPartition other{at.topic, at.partition + 1};
  watch.has_offset(other, LeaseClock::now());
  EXPECT_THAT(watch.with_offset(), ::testing::ElementsAre(other));
  watch.shows_recreation(other);
  watch.claimed(at, 0);
  const auto verdict = judge(std::nullopt, 300, 0, 5'000);
  EXPECT_EQ(verdict.kind, Kind::recreated);
  watch.settle(at, verdict, 1, 0);
  watch.shows_recreation(other);
  EXPECT_FALSE(watch.suspects(at)) << "it is known already";
}

TEST_F(LogIdentityTest, a_partition_of_a_recreated_topic_that_another_process_has_begun_is_not_begun_again) {
  watch.topic_is_gone(at.topic);
  watch.claimed(at, 1);
  const auto verdict = judge(20, 20, 0, 5'000);
  EXPECT_EQ(verdict.kind, Kind::same) << "that process has committed an offset";
  watch.settle(at, verdict, 1, {});
  EXPECT_FALSE(watch.suspects(at));
}

TEST_F(LogIdentityTest, does_not_take_an_offset_that_it_saw_long_ago_for_a_sign) {
  const auto seen = LeaseClock::now();
  watch.has_offset(at, seen);
  watch.forget_offsets(seen);
  EXPECT_TRUE(watch.had_offset(at));
  watch.forget_offsets(seen + std::chrono::nanoseconds(1));
  EXPECT_FALSE(watch.had_offset(at));
  EXPECT_EQ(judge(std::nullopt, 300, 0, 5'000).kind, Kind::same);
}

TEST_F(LogIdentityTest, does_not_take_a_group_whose_offsets_were_dropped_for_a_recreated_topic) {
  EXPECT_EQ(judge(std::nullopt, 300, 0, 5'000).kind, Kind::same) << "a week without members";
}

TEST_F(LogIdentityTest, knows_a_recreated_topic_by_its_end_or_its_absence) {
  EXPECT_EQ(judge(std::nullopt, 300, 2, 299).kind, Kind::recreated);
  watch.is_gone(at);
  EXPECT_EQ(judge(std::nullopt, 300, 2, 5'000).kind, Kind::recreated);
  EXPECT_EQ(judge(std::nullopt, 300, 2, 5'000).from, 2);
  EXPECT_EQ(judge(300, 300, 2, 5'000).kind, Kind::same) << "a broker did not know it for a moment";
}

/// The broker answers a fetch in the new topic before it reports that the topic exists again.
TEST_F(LogIdentityTest, begins_a_recreated_topic_once_if_it_is_found_before_it_is_reported) {
  look(0, 30);
  watch.is_gone(at);
  const auto found = judge({}, 30, 0, 15);
  ASSERT_EQ(found.kind, Kind::recreated);
  watch.settle(at, found, 1, 0);
  EXPECT_EQ(look(0, 15, 2), Look::follow);
  watch.exists_again(at);
  EXPECT_TRUE(watch.suspects(at));
  const auto again = judge({}, 15, 0, 15);
  EXPECT_EQ(again.kind, Kind::same);
  EXPECT_EQ(again.from, 0) << "its records are read again and compared, because it may be another one even so";
  watch.settle(at, again, 1, 0);
  watch.begin(at);
  EXPECT_EQ(look(0, 20, 2), Look::follow);
  EXPECT_FALSE(watch.suspects(at));
}

TEST_F(LogIdentityTest, finds_a_topic_that_was_recreated_twice_while_it_was_missing) {
  look(0, 30);
  watch.is_gone(at);
  watch.settle(at, judge({}, 30, 0, 15), 1, 0);
  look(0, 15, 2);
  watch.exists_again(at);
  watch.settle(at, judge({}, 15, 0, 40), 1, 0);
  watch.begin(at);
  EXPECT_EQ(look(0, 20, 3), Look::broken);
  EXPECT_EQ(judge({}, 15, 0, 40).kind, Kind::recreated);
}

TEST_F(LogIdentityTest, begins_each_topic_that_was_missing_before) {
  look(0, 30);
  for (std::int32_t incarnation = 1; incarnation < 3; ++incarnation) {
    watch.is_gone(at);
    watch.exists_again(at);
    const auto verdict = judge({}, 10, 0, 20);
    EXPECT_EQ(verdict.kind, Kind::recreated);
    watch.settle(at, verdict, incarnation, 0);
    watch.exists_again(at);
    EXPECT_EQ(judge({}, 10, 0, 20).kind, Kind::same) << "reported twice";
    watch.settle(at, {}, incarnation, {});
  }
}

TEST_F(LogIdentityTest, does_not_take_a_truncated_log_for_a_recreated_topic) {
  const auto verdict = judge(1'000, 1'000, 0, 999);
  EXPECT_EQ(verdict.kind, Kind::truncated);
  EXPECT_EQ(verdict.from, 999);
  EXPECT_FALSE(verdict.exact) << "it may have been cut off further down, and have grown since";
}

TEST_F(LogIdentityTest, finds_where_a_log_was_cut_off_by_reading_again_what_it_remembers) {
  EXPECT_EQ(look(0, 3'000), Look::follow);
  watch.has_offset(at, LeaseClock::now());
  const auto again = judge(3'000, 3'000, 0, 2'995);
  EXPECT_EQ(again.kind, Kind::same);
  ASSERT_TRUE(again.from.has_value());
  EXPECT_EQ(*again.from, 3'000 - 1'024);
  watch.settle(at, again, 0, again.from);
  EXPECT_EQ(look(*again.from, static_cast<std::size_t>(2'990 - *again.from)), Look::follow);
  EXPECT_EQ(look(2'990, 5, 2), Look::broken);
  const auto verdict = judge(3'000, 3'000, 0, 2'995);
  EXPECT_EQ(verdict.kind, Kind::truncated);
  EXPECT_EQ(verdict.from, 2'990);
  EXPECT_TRUE(verdict.exact);
  watch.settle(at, verdict, 1, verdict.from);
  EXPECT_EQ(look(2'990, 20, 2), Look::follow);
}

TEST_F(LogIdentityTest, forgets_what_was_read_when_the_partition_comes_back_from_another_member) {
  EXPECT_EQ(look(0, 10), Look::follow);
  watch.assigned(at);
  EXPECT_EQ(look(0, 10, 2), Look::follow);
}

/// The group's offset and the absence were of the topic that the other member has replaced.
TEST_F(LogIdentityTest, forgets_the_old_log_when_another_member_has_begun_another) {
  EXPECT_FALSE(watch.claimed(at, 3)) << "nothing was known";
  EXPECT_EQ(look(0, 10), Look::follow);
  watch.has_offset(at, LeaseClock::now());
  watch.is_gone(at);
  watch.assigned(at);
  EXPECT_FALSE(watch.claimed(at, 3));
  EXPECT_TRUE(watch.suspects(at));
  EXPECT_TRUE(watch.claimed(at, 4));
  EXPECT_FALSE(watch.suspects(at));
  EXPECT_EQ(judge(std::nullopt, 6, 0, 8).kind, Kind::same);
  EXPECT_EQ(look(0, 8, 2), Look::follow);
}

/// The store's watermark, 300, is that of the old log.
TEST_F(LogIdentityTest, reads_all_of_a_log_again_that_the_store_has_forgotten) {
  watch.claimed(at, 1);
  watch.has_offset(at, LeaseClock::now());
  watch.settle(at, judge(std::nullopt, 300, 0, 299), 2, 0);
  EXPECT_EQ(look(0, 10), Look::follow);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(watch.claimed(at, 1)) << "the first attempt may have failed";
  EXPECT_TRUE(watch.suspects(at));
  const auto verdict = judge(10, 300, 0, 20);
  EXPECT_EQ(verdict.kind, Kind::forgotten);
  EXPECT_EQ(verdict.from, 0);
  watch.settle(at, verdict, 3, verdict.from);
  EXPECT_EQ(watch.incarnation(at), 3);
  EXPECT_FALSE(watch.suspects(at));
  EXPECT_EQ(look(0, 20), Look::follow);
}

TEST_F(LogIdentityTest, reads_a_log_again_from_where_the_incarnations_began_that_the_store_has_forgotten) {
  const auto begin = [&](Offset first_other, std::int32_t incarnation) {
    look(first_other, 10, incarnation);
    const auto verdict = judge(first_other, 100, 0, 120);
    EXPECT_EQ(verdict.kind, Kind::truncated);
    watch.settle(at, verdict, incarnation, verdict.from);
  };
  const auto forgotten_since = [&](std::int32_t incarnation, std::optional<Offset> done) {
    EXPECT_FALSE(watch.claimed(at, incarnation));
    const auto verdict = judge(120, done, 10, 120);
    EXPECT_EQ(verdict.kind, Kind::forgotten);
    return verdict.from;
  };
  watch.claimed(at, 5);
  look(0, 100, 5);
  begin(80, 6);
  look(80, 20, 6);
  begin(90, 7);
  EXPECT_EQ(forgotten_since(6, 100), 90) << "all below it is the same in both";
  EXPECT_EQ(forgotten_since(5, 100), 80);
  EXPECT_EQ(forgotten_since(5, 60), 60) << "the database has lost what was done above it";
  EXPECT_EQ(forgotten_since(5, std::nullopt), 10);
  EXPECT_EQ(forgotten_since(4, 100), 10) << "another member has begun incarnation 5, anywhere";
  EXPECT_EQ(forgotten_since(5, 100), 80);
  watch.settle(at, judge(120, 100, 10, 120), 8, 80);
  EXPECT_EQ(forgotten_since(5, 100), 80);
  watch.settle(at, {Kind::recreated, 10, true, {}}, 9, 10);
  EXPECT_EQ(forgotten_since(5, 100), 10);
}

TEST_F(LogIdentityTest, takes_a_log_that_the_store_has_forgotten_for_recreated_if_it_was_recreated_again) {
  watch.claimed(at, 2);
  watch.has_offset(at, LeaseClock::now());
  watch.claimed(at, 1);
  EXPECT_EQ(judge(std::nullopt, 300, 0, 20).kind, Kind::recreated);
}

TEST_F(LogIdentityTest, remembers_what_it_has_read_of_a_log_that_it_has_begun_itself) {
  watch.claimed(at, 0);
  watch.has_offset(at, LeaseClock::now());
  watch.settle(at, judge(std::nullopt, 300, 0, 299), 1, 0);
  EXPECT_EQ(look(0, 10), Look::follow);
  EXPECT_FALSE(watch.claimed(at, 1));
  EXPECT_EQ(look(0, 10, 2), Look::broken);
}

TEST_F(LogIdentityTest, knows_an_offset_of_an_earlier_log_by_its_metadata) {
  LogIdentity before;
  EXPECT_EQ(before.metadata(at), "") << "no claim yet";
  before.claimed(at, 0);
  const std::string old = before.metadata(at);
  before.settle(at, {.kind = Kind::truncated, .from = 80}, 1, 80);
  const std::string now = before.metadata(at);

  watch.claimed(at, 1);
  EXPECT_FALSE(watch.read(at, old));
  EXPECT_TRUE(watch.read(at, now));
  EXPECT_TRUE(watch.read(at, "")) << "an operator has set the offset";
  EXPECT_TRUE(watch.read(at, "somebody else's"));
  EXPECT_EQ(judge(90, 90, 0, 100).kind, Kind::same);
  EXPECT_EQ(watch.metadata(at), now) << "as the next process needs it";
}

TEST_F(LogIdentityTest, knows_by_the_metadata_what_the_store_has_forgotten) {
  LogIdentity before;
  before.claimed(at, 0);
  before.settle(at, {.kind = Kind::truncated, .from = 80}, 1, 80);
  before.settle(at, {.kind = Kind::truncated, .from = 90}, 2, 90);

  watch.claimed(at, 0);
  EXPECT_TRUE(watch.read(at, before.metadata(at)));
  const auto verdict = judge(95, 99, 0, 100);
  EXPECT_EQ(verdict.kind, Kind::forgotten);
  EXPECT_EQ(verdict.from, 80) << "where the first forgotten one began";
  EXPECT_EQ(watch.incarnation(at), 2);
  watch.settle(at, verdict, 2, verdict.from);
  EXPECT_EQ(judge(95, 80, 0, 100).kind, Kind::same);
}

/// Another member begins the log that follows the first recreation. This process learns of both by another partition.
TEST_F(LogIdentityTest, knows_by_the_metadata_which_recreation_another_member_has_seen) {
  LogIdentity other;
  other.claimed(at, 4);
  watch.claimed(at, 3);
  watch.has_offset(at, LeaseClock::now());
  watch.topic_is_gone("t");
  watch.begun_elsewhere(at, other.metadata(at));
  watch.has_offset(at, LeaseClock::now());
  EXPECT_EQ(judge({}, 300, 0, 5'000).kind, Kind::recreated) << "Kafka had an offset of that log";
  watch.topic_is_gone("t");
  EXPECT_TRUE(watch.claimed(at, 4)) << "it differs from what the partition's last claim showed";
  EXPECT_EQ(judge({}, 300, 0, 5'000).kind, Kind::recreated);
}

/// What showed that the topic was recreated is not the report that it exists, which comes later.
TEST_F(LogIdentityTest, a_log_that_was_begun_before_its_topic_was_reported_to_exist_is_not_begun_again) {
  watch.topic_is_gone("t");
  watch.claimed(at, 0);
  const auto verdict = judge({}, 0, 0, 10);
  ASSERT_EQ(verdict.kind, Kind::recreated);
  watch.settle(at, verdict, 1, 0);
  EXPECT_EQ(look(0, 10), Look::follow);
  watch.exists_again(at);
  EXPECT_EQ(judge({}, 0, 0, 10).kind, Kind::same);
}

TEST_F(LogIdentityTest, the_fence_of_a_released_partition_is_that_of_the_last_claim) {
  const auto claim = [&](std::int64_t epoch, std::int32_t incarnation) {
    watch.assigned(at);
    watch.claimed(at, incarnation);
    watch.claimed_under(at, {.slot = 7, .epoch = {epoch}});
  };
  watch.released(at);
  EXPECT_FALSE(watch.take_released(at)) << "it was never claimed";
  claim(1, 0);
  EXPECT_FALSE(watch.take_released(at)) << "it is read";
  watch.released(at);
  claim(2, 0);  // also if it could not be read then
  EXPECT_FALSE(watch.take_released(at)) << "it is read again";
  watch.released(at);
  EXPECT_EQ(watch.take_released(at)->epoch, Epoch{2});
  EXPECT_FALSE(watch.take_released(at)) << "once";
  watch.released(at);
  watch.begun_elsewhere(at, "turnstile:1@0");
  EXPECT_FALSE(watch.take_released(at)) << "another member has claimed it since";
  claim(4, 1);
  watch.released(at);
  EXPECT_EQ(watch.take_released(at)->epoch, Epoch{4});
}

}  // namespace
}  // namespace turnstile::detail
