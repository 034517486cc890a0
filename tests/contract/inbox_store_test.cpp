// The contract of every inbox besides the batches: handlers, claims, watermarks, dead letters.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <limits>
#include <set>

#include "tests/contract/inbox_fixture.hpp"
#include "turnstile/error.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Offset kLast = std::numeric_limits<Offset>::max();

class InboxStoreContract : public InboxContract {
 protected:
  std::optional<Offset> watermark(std::int32_t partition = 0) {
    const TopicPartition at{"payments", partition};
    const auto claimed = store().partitions().claim_partitions("group", {&at, 1}, 5s).at(0);
    fence_ = claimed.fence;
    return claimed.watermark;
  }
  void advance(const Fence& fence, Offset to) {
    const ports::WatermarkUpdate update{fence, to};
    store().partitions().advance_watermarks({&update, 1});
  }
  [[nodiscard]] ports::DeadMessage dead(Offset offset) const {
    ports::DeadMessage message;
    message.handler = handler_;
    message.fence = fence_;
    message.record.topic = "payments";
    message.record.offset = offset;
    message.reason = DeadReason::failed;
    message.error = "broken";
    message.attempts = 3;
    return message;
  }
};

INSTANTIATE_TEST_SUITE_P(Inbox, InboxStoreContract, all_inbox_kinds(), kind_name);

TEST_P(InboxStoreContract, the_schema_is_what_this_build_needs) { EXPECT_NO_THROW(store().check_schema()); }

TEST_P(InboxStoreContract, a_handlers_name_gives_the_same_id_for_ever) {
  const HandlerId first = store().register_handler("first"), second = store().register_handler("second");
  EXPECT_NE(first, second);
  EXPECT_EQ(store().register_handler("first"), first);
  EXPECT_EQ(second.value, first.value + 1) << "numbers are not burnt";
}

TEST_P(InboxStoreContract, one_group_is_the_first_of_a_handler) {
  std::vector<std::future<std::string>> groups;
  for (int i = 0; i < 8; ++i) {
    const std::string group = "group " + std::to_string(i);
    groups.push_back(std::async(std::launch::async, [&, group] { return store().first_group(handler_, group); }));
  }
  const std::string first = groups.front().get();
  for (std::size_t i = 1; i < groups.size(); ++i) EXPECT_EQ(groups[i].get(), first);
  EXPECT_THAT(first, ::testing::StartsWith("group "));
  const HandlerId another = store().register_handler("another");
  EXPECT_EQ(store().first_group(another, "its own"), "its own");
  EXPECT_EQ(store().first_group(another, "its own"), "its own");
  EXPECT_EQ(store().first_group(another, first), "its own");
}

TEST_P(InboxStoreContract, many_register_at_once) {
  std::vector<std::future<std::vector<HandlerId>>> members;
  for (int member = 0; member < 8; ++member) {
    members.push_back(std::async(std::launch::async, [&] {
      std::vector<HandlerId> ids;
      for (int i = 0; i < 10; ++i) ids.push_back(store().register_handler("handler " + std::to_string(i)));
      return ids;
    }));
  }
  const auto expected = members.front().get();
  for (std::size_t i = 1; i < members.size(); ++i) EXPECT_EQ(members[i].get(), expected);
  EXPECT_EQ(std::set<HandlerId>(expected.begin(), expected.end()).size(), 10U);
}

TEST_P(InboxStoreContract, a_fence_of_another_history_of_the_database_is_refused) {
  Fence other = claim();
  const Fence ours = other;
  ++other.history;
  const auto session = store().open_session();
  const auto refused = [&](Mode mode) {
    ports::InboxScope with = scope(other);
    with.mode = mode;
    EXPECT_THROW(session->begin(with, entries({"a"})), Fenced);
    EXPECT_THROW(session->begin(with, entries({"a", "b"})), Fenced);
  };
  refused(Mode::transactional);
  refused(Mode::by_offset);
  const ports::ClaimScope claims{.handler = handler_, .fence = other, .owner = MessageId::from("owner")};
  EXPECT_THROW(store().claims()->claim(claims, entries({"a"})), Fenced);
  const ports::WatermarkUpdate update{other, 10};
  EXPECT_THAT(store().partitions().advance_watermarks({&update, 1}), ElementsAre(ports::WatermarkState::not_ours));
  EXPECT_THROW(store().partitions().begin_incarnation(other, 0, 0), Fenced);
  ports::DeadMessage message = dead(7);
  message.fence = other;
  EXPECT_THROW(store().dead_letters().record_dead(message), Fenced);

  const std::vector ids{MessageId::from("a")};
  EXPECT_EQ(admit(*session, scope(ours), entries({"a"})), "f") << "nothing of it was done";
  session->commit();
  EXPECT_THAT(session->settled(handler_, ours, ids), ElementsAre(true));
  EXPECT_THAT(session->settled(handler_, other, ids), ElementsAre(false));
  message.fence = ours;
  EXPECT_TRUE(store().dead_letters().record_dead(message));
  EXPECT_THAT(store().dead_letters().dead_between(handler_, ours, 0, kLast), ElementsAre(7));
  EXPECT_THAT(store().dead_letters().dead_between(handler_, other, 0, kLast), IsEmpty());
}

TEST_P(InboxStoreContract, claims_of_one_history_have_its_number) {
  const Fence first = claim(), second = claim(), elsewhere = claim(1);
  EXPECT_EQ(first.history, second.history);
  EXPECT_EQ(first.history, elsewhere.history);
  EXPECT_NE(first.history, 0);
  EXPECT_EQ(store().history(), first.history);
}

TEST_P(InboxStoreContract, each_claim_counts_the_epoch_up) {
  const std::vector<TopicPartition> at{{"payments", 2}, {"emails", 1}, {"payments", 1}};
  const auto first = store().partitions().claim_partitions("group", at, 5s),
             second = store().partitions().claim_partitions("group", at, 5s);
  ASSERT_EQ(first.size(), 3U);
  std::set<std::int32_t> slots;
  for (std::size_t i = 0; i < at.size(); ++i) {
    EXPECT_EQ(first[i].at, at[i]);
    EXPECT_EQ(second[i].at, at[i]);
    EXPECT_EQ(first[i].fence.slot, second[i].fence.slot);
    EXPECT_EQ(first[i].fence.epoch.value, 1);
    EXPECT_EQ(second[i].fence.epoch.value, 2);
    EXPECT_EQ(first[i].watermark, std::nullopt);
    EXPECT_EQ(first[i].incarnation, 0);
    slots.insert(first[i].fence.slot);
  }
  EXPECT_EQ(slots.size(), 3U);
  EXPECT_TRUE(store().partitions().claim_partitions("group", {}, 5s).empty());
}

TEST_P(InboxStoreContract, groups_have_fences_of_their_own) {
  const TopicPartition at{"payments", 0};
  const auto other = store().partitions().claim_partitions("another group", {&at, 1}, 5s).at(0);
  EXPECT_NE(other.fence.slot, fence_.slot);
  EXPECT_EQ(once({"a"}), "f") << "the first group's epoch is still good";
}

TEST_P(InboxStoreContract, two_claimers_at_once_both_succeed_with_different_epochs) {
  std::vector<TopicPartition> at, reversed;
  for (int partition = 0; partition < 20; ++partition) at.push_back({"busy", partition});
  reversed.assign(at.rbegin(), at.rend());
  const auto rounds = [&](const std::vector<TopicPartition>& order) {
    std::set<std::pair<TopicPartition, Epoch>> epochs;
    for (int round = 0; round < 10; ++round) {
      for (const auto& claim : store().partitions().claim_partitions("group", order, 5s))
        epochs.insert({claim.at, claim.fence.epoch});
    }
    return epochs;
  };
  auto other = std::async(std::launch::async, rounds, reversed);
  auto all = rounds(at);
  all.merge(other.get());
  EXPECT_EQ(all.size(), 2U * 10U * at.size());
}

TEST_P(InboxStoreContract, a_watermark_only_moves_forward) {
  advance(fence_, 100);
  advance(fence_, 40);
  EXPECT_EQ(watermark(), 100);
  advance(fence_, 101);
  EXPECT_EQ(watermark(), 101);
}

TEST_P(InboxStoreContract, a_watermark_under_an_old_epoch_is_left_alone) {
  const Fence old = fence_;
  advance(old, 10);
  EXPECT_EQ(watermark(), 10);
  advance(old, 20);
  EXPECT_EQ(watermark(), 10);
}

TEST_P(InboxStoreContract, many_watermarks_move_in_one_call) {
  const Fence one = claim(1), two = claim(2);
  std::vector<ports::WatermarkUpdate> updates{{two, 7}, {one, 5}, {fence_, 3}, {two, 8}, {{9'999, {1}}, 1}};
  updates.push_back({{one.slot, {one.epoch.value + 5}}, 1'000});
  store().partitions().advance_watermarks(updates);
  store().partitions().advance_watermarks({});
  EXPECT_EQ(watermark(0), 3);
  EXPECT_EQ(watermark(1), 5);
  EXPECT_EQ(watermark(2), 8);
}

TEST_P(InboxStoreContract, a_watermark_moves_beside_an_open_batch) {  // hazard: hot-row
  const auto session = store().open_session();
  admit(*session, {"a"});
  advance(fence_, 1);
  session->commit();
  EXPECT_EQ(watermark(), 1);
}

/// A lagging replica was promoted, or a backup was restored.
TEST_P(InboxStoreContract, a_store_that_has_less_than_was_known_says_so_and_is_left_alone) {
  const auto say = [&](const Fence& fence, std::optional<Offset> known) {
    const ports::WatermarkUpdate update{fence, 200, known};
    return store().partitions().advance_watermarks({&update, 1}).at(0);
  };
  advance(fence_, 100);
  EXPECT_EQ(say(fence_, 101), ports::WatermarkState::behind);
  EXPECT_EQ(watermark(), 100);
  EXPECT_EQ(say(claim(1), 1), ports::WatermarkState::behind) << "it has none";
  EXPECT_EQ(watermark(1), std::nullopt);
  const Fence old = claim();
  const Fence now = claim();
  EXPECT_EQ(say(old, 100), ports::WatermarkState::not_ours);
  EXPECT_EQ(say(now, 100), ports::WatermarkState::moved);
  EXPECT_EQ(say(now, 150), ports::WatermarkState::moved);
  EXPECT_EQ(watermark(), 200);
}

TEST_P(InboxStoreContract, a_recreated_topic_begins_anew) {
  advance(fence_, 500);
  EXPECT_EQ(store().partitions().begin_incarnation(fence_, 0, 0), 1);
  EXPECT_EQ(store().partitions().begin_incarnation(fence_, 2, 1), 2);
  EXPECT_EQ(store().partitions().begin_incarnation(fence_, 2, 7), 7) << "it has forgotten some";
  advance(fence_, 3);
  const Fence old = fence_;
  const TopicPartition at{"payments", 0};
  const auto claimed = store().partitions().claim_partitions("group", {&at, 1}, 5s).at(0);
  EXPECT_EQ(claimed.incarnation, 7);
  EXPECT_EQ(claimed.watermark, 3);
  EXPECT_THROW(store().partitions().begin_incarnation(old, 0, 0), Fenced);
}

TEST_P(InboxStoreContract, a_claim_says_how_far_handlers_have_come_that_number_its_records) {
  const TopicPartition at{"payments", 0};
  const HandlerId other = store().register_handler("further");
  std::optional<Offset> of_other, highest;
  const auto progress = [&] {
    const auto claimed = store().partitions().claim_partitions("group", {&at, 1}, 5s).at(0);
    fence_ = claimed.fence;
    highest = claimed.highest_progress();
    of_other = claimed.progress_of(other);
    return claimed.progress_of(handler_);
  };
  const auto settle = [&](HandlerId handler, Offset offset) {
    const ports::InboxEntry entry{.id = MessageId::from("none"), .offset = offset};
    const auto session = store().open_session();
    session->begin({.handler = handler, .fence = fence_, .mode = Mode::by_offset}, {&entry, 1});
    session->commit();
  };
  EXPECT_EQ(progress(), std::nullopt);
  settle(handler_, 41);
  EXPECT_EQ(progress(), 42);
  EXPECT_EQ(of_other, std::nullopt);
  settle(other, 50);
  EXPECT_EQ(progress(), 42);
  EXPECT_EQ(of_other, 51);
  EXPECT_EQ(highest, 51);
  EXPECT_EQ(watermark(1), std::nullopt);
  progress();
  store().partitions().begin_incarnation(fence_, 0, 0);
  EXPECT_EQ(progress(), std::nullopt);
  EXPECT_EQ(highest, std::nullopt);
  EXPECT_EQ(watermark(), 0) << "known at once: a process may die before it has written another";
}

TEST_P(InboxStoreContract, a_dead_message_is_kept_once) {
  EXPECT_THAT(store().dead_letters().dead_between(handler_, fence_, 0, kLast), IsEmpty());
  EXPECT_TRUE(store().dead_letters().record_dead(dead(7)));
  EXPECT_FALSE(store().dead_letters().record_dead(dead(7)));
  EXPECT_TRUE(store().dead_letters().record_dead(dead(9)));
  EXPECT_THAT(store().dead_letters().dead_between(handler_, fence_, 0, kLast), ElementsAre(7, 9));
  EXPECT_THAT(store().dead_letters().dead_between(handler_, fence_, 7, kLast), ElementsAre(7, 9));
  EXPECT_THAT(store().dead_letters().dead_between(handler_, fence_, 8, kLast), ElementsAre(9));
  EXPECT_THAT(store().dead_letters().dead_between(handler_, fence_, 0, 7), ElementsAre(7));
  EXPECT_THAT(store().dead_letters().dead_between(handler_, fence_, 8, 8), IsEmpty());
  EXPECT_THAT(store().dead_letters().dead_between(store().register_handler("another"), fence_, 0, kLast), IsEmpty());
  watermark(1);  // the fence of another partition
  EXPECT_THAT(store().dead_letters().dead_between(handler_, fence_, 0, kLast), IsEmpty());
}

TEST_P(InboxStoreContract, the_dead_of_one_reason_are_found) {
  watermark();
  ports::DeadMessage killer = dead(8);
  killer.reason = DeadReason::killed_process;
  EXPECT_TRUE(store().dead_letters().record_dead(dead(7)));
  EXPECT_TRUE(store().dead_letters().record_dead(killer));
  EXPECT_THAT(store().dead_letters().dead_between(handler_, fence_, 0, kLast, DeadReason::killed_process),
              ElementsAre(8));
  EXPECT_THAT(store().dead_letters().dead_between(handler_, fence_, 9, kLast, DeadReason::killed_process), IsEmpty());
  EXPECT_THAT(store().dead_letters().dead_between(handler_, fence_, 0, kLast, DeadReason::too_old), IsEmpty());
  EXPECT_THAT(store().dead_letters().dead_between(handler_, fence_, 0, kLast, {}), ElementsAre(7, 8));
}

TEST_P(InboxStoreContract, a_dead_message_of_an_earlier_owner_is_refused) {
  EXPECT_TRUE(store().dead_letters().record_dead(dead(7)));
  ports::DeadMessage late = dead(8);
  watermark();  // claims the partition
  EXPECT_THROW(store().dead_letters().record_dead(late), Fenced);
  late.record.offset = 7;
  EXPECT_THROW(store().dead_letters().record_dead(late), Fenced);
  EXPECT_THAT(store().dead_letters().dead_between(handler_, fence_, 0, kLast), ElementsAre(7));
}

TEST_P(InboxStoreContract, a_dead_message_may_hold_anything) {
  using namespace std::string_literals;
  ports::DeadMessage message = dead(8);
  message.id = MessageId::from("x");
  message.error = "not UTF-8: \xff\xc0 and a NUL: \0 end"s;
  message.record.key = "\0\xff"s;
  message.record.payload = std::string(1 << 20, '\0');
  message.record.timestamp = Timestamp(std::chrono::milliseconds(1'700'000'000'123));
  message.record.headers = {{"a", "1"}, {"a", std::nullopt}, {"\xff", ""}};
  message.dead_letter = TopicPartitionOffset{{"payments.dlq", 3}, 42};
  EXPECT_TRUE(store().dead_letters().record_dead(message));
  EXPECT_THAT(store().dead_letters().dead_between(handler_, fence_, 8, kLast), ElementsAre(8));
}

/// The producer sets the timestamp, and a refused dead letter would stop its partition.
TEST_P(InboxStoreContract, a_dead_message_may_have_any_timestamp) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kFirst = -210'866'803'200'000, kExact = std::int64_t{1} << 53;  // the limits of PostgreSQL
  std::set<Offset> all;
  for (const std::int64_t ms :
       {kMost, std::numeric_limits<std::int64_t>::min(), kMost / 1'000, kMost / 1'000 + 1, std::int64_t{-1}, kFirst,
        kFirst - 1, kExact, kExact + 1, std::int64_t{1'700'000'000'123'456'789}, std::int64_t{253'402'300'800'000}}) {
    ports::DeadMessage message = dead(static_cast<Offset>(all.size()));
    message.record.timestamp = Timestamp(std::chrono::milliseconds(ms));
    EXPECT_TRUE(store().dead_letters().record_dead(message)) << ms;
    all.insert(message.record.offset);
  }
  EXPECT_EQ(store().dead_letters().dead_between(handler_, fence_, 0, kLast), all);
}

TEST_P(InboxStoreContract, a_recreated_topic_has_dead_of_its_own) {
  EXPECT_TRUE(store().dead_letters().record_dead(dead(7)));
  store().partitions().begin_incarnation(fence_, 0, 0);
  EXPECT_THAT(store().dead_letters().dead_between(handler_, fence_, 7, kLast), IsEmpty());
  EXPECT_TRUE(store().dead_letters().record_dead(dead(7)));
}

TEST_P(InboxStoreContract, ids_are_kept_for_the_longest_that_anybody_has_said) {
  EXPECT_EQ(store().retention().keep_ids(handler_, 10 * 24h).kept_for, 10 * 24h);
  EXPECT_EQ(store().retention().keep_ids(handler_, 1h).kept_for, 10 * 24h);
  EXPECT_EQ(store().retention().keep_ids(handler_, 20 * 24h).kept_for, 20 * 24h);
  EXPECT_EQ(store().retention().keep_ids(handler_, std::nullopt).kept_for, std::nullopt) << "forever";
  EXPECT_EQ(store().retention().keep_ids(handler_, 1h).kept_for, std::nullopt);
  EXPECT_EQ(store().retention().keep_ids(handler_, 1h).all_since, std::nullopt) << "nothing was deleted yet";
  EXPECT_EQ(store().retention().keep_ids(store().register_handler("another"), 1h).kept_for, 1h);
}

TEST_P(InboxStoreContract, the_cleaner_leaves_what_is_young) {
  store().retention().keep_ids(handler_, 1h);
  EXPECT_EQ(once({"a", "b"}), "ff");
  ports::PurgeStep step;
  for (int steps = 0; steps < 20 && step.wait == 0ms; ++steps) {
    step = store().retention().purge_step(100);
    EXPECT_EQ(step.deleted, 0);
    EXPECT_FALSE(step.rivalled);
  }
  EXPECT_GT(step.wait, 0ms) << "it has an end";
  EXPECT_EQ(once({"a", "b"}), "dd");
}

}  // namespace
}  // namespace turnstile::test
